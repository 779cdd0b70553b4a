"""Every op runs at most once more: a program in the stage after which it runs.

For an op o that may run in the stages K, ``b[o, k] = 1`` says that it runs after stage k, so b
falls with k, ``A[o] = b[o, -1]`` says that it runs at all, and ``R[o, k] = b[o, k-1] - b[o, k]``
that it runs in stage k. With w for the ops that read an output v of o:

* o before w:             ``(A[w] - b[w, k]) + b[o, k] <= 1``
* just in time:           ``R[o, k] <= sum over w of R[w, k]``, before the first direct use
* v is live after k:      ``>= b[w, k] - b[o, k]`` and, up to the last direct use, ``1 - b[o, k]``
* v is saved:             it is live after stage -1

"If w is to run, v is kept or o runs later" takes the place of a product of binaries, so what is
live needs no integers. b changes only at the stages of K, so it takes one variable for each.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from fxremat.problem.types import Phase
from fxremat.solver.exact.formulation import Formulation
from fxremat.solver.exact.milp import ONE, ZERO, Linear, total
from fxremat.solver.exact.stages import START, Stages

__all__ = ["Single"]


class Single(Formulation):
    """The program, with costs in seconds times a scale."""

    def __init__(self, stages: Stages, scale: float) -> None:
        super().__init__(stages)
        self._later: dict[int, list[Linear]] = {}
        self._live: dict[tuple[int, tuple[Linear, ...]], Linear] = {}
        for op in reversed(stages.ops):
            self._add(op)
        for op in stages.ops:
            self._order(op)
        for v in range(len(self.problem.values)):
            self._save(v)
        for op in self._when:
            seconds = self.table.seconds[op] * scale
            spare = ONE if op in self.problem.required else ZERO
            self.model.charge((self._later[op][0] + self.hoisted(op) - spare) * seconds)

    def _add(self, op: int) -> None:
        """The variables of an op; those of the ops that read it are there."""
        stages = self.stages
        outputs = [v for v in self.table.makes[op] if not stages.free[v]]
        first = min((d[0] for v in outputs if (d := stages.direct[v])), default=len(stages.ends))
        when = [k for k in stages.need(op, self._when) if k <= first]
        self._when[op] = when
        late = [self._hoist(v) for v in self.table.makes[op]]
        deferrable = self.problem.ops[op].phase is Phase.DEFERRABLE
        start = ONE if deferrable and all(e.is_zero for e in late) else self.model.binary()
        if not when:
            start = ZERO
        later = [start] + [self.model.binary() for _ in when[1:]]
        for high, low in pairwise(later):
            self.model.at_least(high, low)
        self._later[op] = [*later, ZERO] if when else [ZERO]
        if deferrable:
            self._hoists[op] = self.model.share() if start is not ONE else ZERO
            self.model.at_least(start + self._hoists[op], ONE)
            if self.problem.ops[op].fixed:
                self.model.at_most(start + self._hoists[op], 1.0)

    def _hoist(self, v: int) -> Linear:
        """Nonzero if hoisting the DEFERRABLE op that makes a value may be of use."""
        useful = not self.problem.values[v].unsaveable and (
            self.stages.direct[v] or self.stages.users[v]
        )
        return ONE if useful else total(self._hoists.get(w, ZERO) for w in self.stages.users[v])

    def _order(self, op: int) -> None:
        for w in self._just_in_time(op):
            for k in self._when[w]:
                mine = self._after(op, k)
                if not mine.is_zero:
                    self.model.at_most(self.ran(w, k) + mine, 1.0)
        self._hoist_inputs(op)

    def _save(self, v: int) -> None:
        maker = self.problem.producer[v]
        if maker < 0 or self.stages.free[v]:
            return
        if self.problem.values[v].unsaveable:
            self.model.at_most(self.after(v, START), 0.0)

    def _after(self, op: int, stage: int) -> Linear:
        """Whether an op runs after a stage."""
        when = self._when.get(op, ())
        return self._later[op][bisect_right(when, stage)] if when else ZERO

    def run(self, op: int, stage: int) -> Linear:
        """Whether an op runs in a stage."""
        return self._after(op, stage - 1) - self._after(op, stage)

    def ran(self, op: int, stage: int) -> Linear:
        """Whether an op has run by the end of a stage."""
        return self._after(op, START) - self._after(op, stage)

    def after(self, value: int, stage: int) -> Linear:
        """Whether a copy that costs bytes is live after a stage, for a later one."""
        stages, maker = self.stages, self.problem.producer[value]
        missing = self._after(maker, stage)
        if stages.free[value]:
            missing = missing + ONE - self.ran(maker, stage)
        direct = stages.direct[value]
        found = [ONE - missing] if direct and stage < direct[-1] else []
        pending = [self._after(w, stage) for w in stages.users[value]]
        if not found or stages.free[value]:
            found += [e - missing for e in pending if not e.is_zero]
        elif len(found) == 1:
            return found[0]
        key = (value, tuple(found))
        if key not in self._live:
            self._live[key] = self._tight(value, found)
        return self._live[key]

    def _tight(self, value: int, found: list[Linear]) -> Linear:
        """The largest of these; one alone is not negative if the op runs for its reader only."""
        maker = self.problem.producer[value]
        alone = len(self.table.makes[maker]) == 1
        if len(found) == 1 and alone and not self.stages.free[value]:
            return found[0]
        return self.model.most(found)
