"""The rows of bytes that exact formulations share."""

from __future__ import annotations

from collections.abc import Sequence

from fxremat.problem.replay import replay
from fxremat.problem.types import Kind, Phase
from fxremat.solver.exact.formulation import Formulation
from fxremat.solver.exact.milp import ONE, ZERO, Floats, Linear, total
from fxremat.solver.exact.stages import START

__all__ = ["Rows"]


class Rows:
    """Rows of bytes of a formulation: those of the stages at once, others where they are missed."""

    def __init__(self, formulation: Formulation, limit: int) -> None:
        self.form, self.model, self.limit = formulation, formulation.model, limit
        self.stages = formulation.stages
        self.problem, self.flat = self.stages.problem, self.stages.flat
        self.known: dict[tuple[str, int, int], Linear] = {}
        self.front_at = {o: p for p, o in enumerate(self.problem.forward)}
        for stage in range(START, len(self.stages.ends)):
            self._stage(stage)
        most = -1
        for p in reversed(range(len(self.problem.forward))):
            forward = self.problem.ops[self.problem.forward[p]].phase is Phase.FORWARD
            if forward and self.flat.forward[p] > most:
                most = int(self.flat.forward[p])
                self._add(("front", p, 0), self._front(p))

    def missed(self, schedule: Sequence[int], x: Floats) -> None:
        """Add the rows that a schedule breaks, and cut off its point where it breaks known ones."""
        line = replay(self.problem, schedule)
        broken = [
            ("front", self.front_at[op], 0)
            for op, nbytes in zip(line.order, line.forward, strict=True)
            if nbytes > self.limit
        ]
        stage, ends = START, {self.problem.backward[k]: s for s, k in enumerate(self.stages.ends)}
        for op, nbytes in zip(schedule, line.backward, strict=True):
            if self.problem.ops[op].phase is not Phase.BACKWARD:
                key = ("inside", stage + 1, op)
            else:
                stage = ends.get(op, stage)
                key = ("stage" if op in ends else "fold", stage, 0)
            if nbytes > self.limit:
                broken.append(key)
        for key in broken:
            if key in self.known:
                self.model.cover(self.known[key], self.limit, x)
            else:
                front = key[0] == "front"
                self._add(key, self._front(key[1]) if front else self._inside(key[2], key[1]))

    def _add(self, key: tuple[str, int, int], row: Linear) -> None:
        self.known[key] = row
        self.model.memory(row, self.limit)

    def _stage(self, stage: int) -> None:
        at, later = self.stages.bases(stage)
        form, nbytes = self.form, self.flat.nbytes
        kept = {v: form.after(v, stage) for v in self.stages.values}
        kept = {v: e for v, e in kept.items() if not e.is_zero}
        row = [e * nbytes[v] for v, e in kept.items()]
        self._add(("fold", stage, 0), total([Linear(later), *row]))
        if stage < 0:
            return
        reads = self.flat.reads[self.problem.backward[self.stages.ends[stage]]]
        for v in set(reads).intersection(self.stages.values):
            kept[v] = form.ran(self.problem.producer[v], stage) if self.stages.free[v] else ONE
        row = [e * nbytes[v] for v, e in kept.items()]
        self._add(("stage", stage, 0), total([Linear(at), *row]))

    def _inside(self, op: int, stage: int) -> Linear:
        """Bytes while an op runs in a stage, or between the runs around its place if it doesn't.

        At that moment a value is live if it is there and read by the op or after it.
        """
        flat, stages = self.flat, self.stages
        runs = self.form.run(op, stage)
        extra = [v for v in flat.makes[op] if v not in stages.values]
        own = flat.workspace[op] + sum(flat.nbytes[v] for v in extra)
        parts = [Linear(flat.base_before[stages.ends[stage]]), runs * own]
        for v in stages.values:
            parts.append(self._live(v, op, stage) * flat.nbytes[v])
        return total(parts)

    def _live(self, v: int, op: int, stage: int) -> Linear:
        form, place = self.form, self.stages.place[stage]
        maker = self.problem.producer[v]
        later = maker in place and place[maker] > place[op]
        made = form.run(maker, stage) if later else ZERO
        stale = made + ONE - form.ran(maker, stage) if self.stages.free[v] else made
        found = [form.after(v, stage) - made]
        if stage in self.stages.direct[v]:
            found.append(ONE - stale)
        for w in self.stages.users[v]:
            if w in place and place[w] >= place[op]:
                found.append(form.run(w, stage) - stale)
        if maker == op:
            found.append(form.run(op, stage))
        return self.model.most(found)

    def _front(self, p: int) -> Linear:
        """Bytes at a place of the forward, whether or not a DEFERRABLE op there runs."""
        flat, problem, form = self.flat, self.problem, self.form
        op = problem.forward[p]
        parts = [Linear(int(flat.forward[p]))]
        if problem.ops[op].phase is Phase.DEFERRABLE:
            parts.append(form.hoisted(op) * flat.workspace[op])
        readers: dict[int, list[Linear]] = {}
        for e in problem.forward[p:]:
            if problem.ops[e].phase is Phase.DEFERRABLE:
                for v in (*flat.reads[e], *(flat.makes[e] if e == op else ())):
                    readers.setdefault(v, []).append(form.hoisted(e))
        matter = set(self.stages.values)
        for v, born in enumerate(flat.born):
            if not 0 <= born <= p or problem.values[v].kind is not Kind.COMPUTED:
                continue
            forward = problem.ops[problem.producer[v]].phase is Phase.FORWARD
            if forward and (flat.last[v] >= p or problem.values[v].is_output):
                continue
            saved = form.after(v, START) if v in matter and not self.stages.free[v] else ZERO
            parts.append(self.model.most([saved, *readers.get(v, ())]) * flat.nbytes[v])
        return total(parts)
