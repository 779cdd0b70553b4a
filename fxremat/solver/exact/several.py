"""An op may run again in every stage: a program in runs and retention (Checkmate, Jain 2020).

``R[o, k] = 1`` says that op o runs in stage k, ``S[v, k] = 1`` that a copy of value v is live
after stage k; ``S[v, -1]`` that it is saved. With o for the op that makes v, and for every use of v
in stage k, which is 1 if the backward op of the stage reads v and ``R[w, k]`` for an op w that
does:

* the copy is there:      ``S[v, k-1] + R[o, k] >= use``
* it came from somewhere: ``S[v, k-1] + R[o, k] >= S[v, k]``
* a run makes it stale:   ``S[v, k-1] + R[o, k] <= 1``
* just in time:           ``R[o, k] <= sum over w of R[w, k]`` where no backward op reads an output

S is the least that these allow, so it needs no integers; and it changes only at stages that use or
make v, so it takes one variable for each.

Source: P. Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor
Rematerialization", MLSys 2020; here on the stages of the backward instead of all ops.
"""

from __future__ import annotations

from bisect import bisect_right

from fxremat.problem.types import Phase
from fxremat.solver.exact.formulation import Formulation
from fxremat.solver.exact.milp import ONE, ZERO, Linear, total
from fxremat.solver.exact.stages import Stages

__all__ = ["Several"]


class Several(Formulation):
    """The program, with costs in seconds times a scale."""

    def __init__(self, stages: Stages, scale: float) -> None:
        super().__init__(stages)
        self._runs: dict[tuple[int, int], Linear] = {}
        self._stale: dict[int, list[Linear]] = {}
        self._events: dict[int, list[int]] = {}
        self._before: dict[int, list[Linear]] = {}
        for op in reversed(stages.ops):
            self._add(op)
        for op in stages.ops:
            self._order(op)
        for v, maker in enumerate(self.problem.producer):
            if maker >= 0 and (stages.direct[v] or stages.users[v]):
                self._retain(v, maker)
        for op, when in self._when.items():
            seconds = self.table.seconds[op] * scale
            spare = ONE if op in self.problem.required else ZERO
            runs = total([*(self.run(op, k) for k in when), self.hoisted(op)])
            self.model.charge((runs - spare) * seconds)

    def _add(self, op: int) -> None:
        """The variables of an op; those of the ops that read it are there."""
        when = self.stages.need(op, self._when)
        self._when[op] = when
        for k in when:
            self._runs[op, k] = self.model.binary()
        if self.problem.ops[op].phase is Phase.DEFERRABLE:
            self._hoists[op] = self.model.share()
            runs = total([*(self._runs[op, k] for k in when), self._hoists[op]])
            self.model.at_least(runs, ONE)
            if self.problem.ops[op].fixed:
                self.model.at_most(runs, 1.0)

    def _order(self, op: int) -> None:
        self._just_in_time(op)
        self._hoist_inputs(op)
        if any(self.stages.free[v] for v in self.table.makes[op]):
            self._stale[op] = [ZERO]
            for k in self._when[op]:
                self._stale[op].append(self.model.most([self._stale[op][-1], self.run(op, k)]))

    def _retain(self, v: int, maker: int) -> None:
        stages, model = self.stages, self.model
        uses = {k: [ONE] for k in stages.direct[v]}
        for w in stages.users[v]:
            for k in self._when[w]:
                uses.setdefault(k, []).append(self.run(w, k))
        events = sorted({*uses, *self._when.get(maker, ())})
        kept = [ZERO]
        for k in reversed(events):
            run = self.run(maker, k)
            saved = ONE - self.ran(maker, k) if stages.free[v] else ZERO
            found = [use - run - saved for use in uses.get(k, ())]
            held = model.most([*found, kept[-1] - run])
            model.at_most(held + run, 1.0)
            kept.append(held)
        self._events[v], self._before[v] = events, kept[::-1]
        if self.problem.values[v].unsaveable:
            model.at_most(kept[-1], 0.0)
        elif maker in self._hoists:
            model.at_least(self._hoists[maker], kept[-1])

    def run(self, op: int, stage: int) -> Linear:
        """Whether an op runs in a stage."""
        return self._runs.get((op, stage), ZERO)

    def ran(self, op: int, stage: int) -> Linear:
        """Whether an op has run by the end of a stage; only for ops with an output free to save."""
        stale = self._stale.get(op)
        return stale[bisect_right(self._when[op], stage)] if stale else ZERO

    def after(self, value: int, stage: int) -> Linear:
        """Whether a copy that costs bytes is live after a stage, for a later one."""
        return self._before[value][bisect_right(self._events[value], stage)]
