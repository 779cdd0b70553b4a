"""The backward in stages, for exact formulations, and the rows of bytes that they share.

A *stage* ends with a backward op that reads tracked values (:class:`~fxremat.solvers.table.Table`)
and begins after the one before. All runs of a stage stand right before its backward op. The
backward ops in between read no tracked value, so the tracked values live there are the same and
only the largest base counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fxremat.problem import Kind, Phase, Problem
from fxremat.solvers.milp import ONE, ZERO, Floats, Linear, Model, total
from fxremat.solvers.table import Table
from fxremat.timeline import replay

__all__ = ["Formulation", "Rows", "Stages"]

START = -1  # the end of the forward, as a stage


class Stages:
    """What formulations look up.

    Attributes:
        ops: ops that may stand in the schedule beside the backward ops, in forward order. An op
            whose saved outputs would cost nothing is not among them: running it again never helps.
        order: for each stage the ops that may run in it, as a depth-first search through the
            inputs, in their order, would finish them: the order in which a stage runs them.
        place: for each stage the place of each op in ``order``.
        direct: for each value the stages whose backward op reads it, ascending.
        users: for each value the ops of ``ops`` that read it.
        free: whether a value's saved copy costs nothing.
        values: the values whose bytes matter, ascending.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.table = problem, Table.of(problem)
        table = self.table
        self.ends = [k for k, op in enumerate(problem.backward) if table.reads[op]]
        forward = [p >= 0 and problem.ops[p].phase is Phase.FORWARD for p in problem.producer]
        self.free = [
            forward[v] and not value.unsaveable and (value.held or value.nbytes == 0)
            for v, value in enumerate(problem.values)
        ]
        may = {o for o in problem.forward if self._may(o)}
        self.order = [self._search(problem.backward[k], may) for k in self.ends]
        self.place = [{o: i for i, o in enumerate(ops)} for ops in self.order]
        reached = {o for ops in self.order for o in ops}
        self.ops = [o for o in problem.forward if o in reached]
        self.direct: list[list[int]] = [[] for _ in problem.values]
        self.users: list[list[int]] = [[] for _ in problem.values]
        for stage, k in enumerate(self.ends):
            for v in table.reads[problem.backward[k]]:
                self.direct[v].append(stage)
        for o in self.ops:
            for v in table.reads[o]:
                self.users[v].append(o)
        self.values = [
            v
            for v, value in enumerate(problem.values)
            if (self.direct[v] or self.users[v])
            and value.nbytes > 0
            and (not self.free[v] or problem.producer[v] in reached)
        ]

    def _may(self, op: int) -> bool:
        if self.problem.ops[op].phase is Phase.EITHER:
            return op in self.problem.needed
        return self.table.rerun[op] and not all(self.free[v] for v in self.table.makes[op])

    def _search(self, root: int, may: set[int]) -> list[int]:
        found: dict[int, None] = {}
        stack = [(root, 0)]
        while stack:
            op, index = stack.pop()
            reads = self.table.reads[op]
            if index < len(reads):
                stack.append((op, index + 1))
                below = self.problem.producer[reads[index]]
                if below in may and below not in found:
                    stack.append((below, 0))
            elif op != root:
                found[op] = None
        return list(found)

    def bases(self, stage: int) -> tuple[int, int]:
        """Bytes of backward values while a stage's backward op runs, and most from then on."""
        table = self.table
        first = self.ends[stage] if stage >= 0 else -1
        last = self.ends[stage + 1] if stage + 1 < len(self.ends) else len(table.at)
        return table.at[first] if stage >= 0 else 0, max(table.at[first + 1 : last], default=0)

    def need(self, op: int, stages: dict[int, list[int]]) -> list[int]:
        """Stages in which a run of an op may be of use, given those of the ops that read it."""
        found: set[int] = set()
        for v in self.table.makes[op]:
            if not self.free[v]:
                found.update(self.direct[v])
                for w in self.users[v]:
                    found.update(stages[w])
        return sorted(found)


class Formulation(Protocol):
    """A program whose 0/1 solutions are schedules."""

    stages: Stages
    model: Model

    def run(self, op: int, stage: int) -> Linear:
        """Whether an op runs in a stage."""

    def ran(self, op: int, stage: int) -> Linear:
        """Whether an op has run by the end of a stage."""

    def after(self, value: int, stage: int) -> Linear:
        """Whether a copy that costs bytes is live after a stage, for a later one."""

    def hoisted(self, op: int) -> Linear:
        """Whether an EITHER op runs in the forward."""


class Rows:
    """Rows of bytes of a formulation: those of the stages at once, others where they are missed."""

    def __init__(self, formulation: Formulation, limit: int) -> None:
        self.form, self.model, self.limit = formulation, formulation.model, limit
        self.stages = formulation.stages
        self.problem, self.table = self.stages.problem, self.stages.table
        self.known: dict[tuple[str, int, int], Linear] = {}
        self.front_at = {o: p for p, o in enumerate(self.problem.forward)}
        for stage in range(START, len(self.stages.ends)):
            self._stage(stage)
        most = -1
        for p in reversed(range(len(self.problem.forward))):
            forward = self.problem.ops[self.problem.forward[p]].phase is Phase.FORWARD
            if forward and self.table.forward[p] > most:
                most = int(self.table.forward[p])
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
        form, nbytes = self.form, self.table.nbytes
        kept = {v: form.after(v, stage) for v in self.stages.values}
        kept = {v: e for v, e in kept.items() if not e.is_zero}
        row = [e * nbytes[v] for v, e in kept.items()]
        self._add(("fold", stage, 0), total([Linear(later), *row]))
        if stage < 0:
            return
        reads = self.table.reads[self.problem.backward[self.stages.ends[stage]]]
        for v in set(reads).intersection(self.stages.values):
            kept[v] = form.ran(self.problem.producer[v], stage) if self.stages.free[v] else ONE
        row = [e * nbytes[v] for v, e in kept.items()]
        self._add(("stage", stage, 0), total([Linear(at), *row]))

    def _inside(self, op: int, stage: int) -> Linear:
        """Bytes while an op runs in a stage, or between the runs around its place if it doesn't.

        At that moment a value is live if it is there and read by the op or after it.
        """
        table, stages = self.table, self.stages
        runs = self.form.run(op, stage)
        extra = [v for v in table.makes[op] if v not in stages.values]
        own = table.workspace[op] + sum(table.nbytes[v] for v in extra)
        parts = [Linear(table.before[stages.ends[stage]]), runs * own]
        for v in stages.values:
            parts.append(self._live(v, op, stage) * table.nbytes[v])
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
        """Bytes at a place of the forward, whether or not an EITHER op that stands there runs."""
        table, problem, form = self.table, self.problem, self.form
        op = problem.forward[p]
        parts = [Linear(int(table.forward[p]))]
        if problem.ops[op].phase is Phase.EITHER:
            parts.append(form.hoisted(op) * table.workspace[op])
        readers: dict[int, list[Linear]] = {}
        for e in problem.forward[p:]:
            if problem.ops[e].phase is Phase.EITHER:
                for v in (*table.reads[e], *(table.makes[e] if e == op else ())):
                    readers.setdefault(v, []).append(form.hoisted(e))
        matter = set(self.stages.values)
        for v, born in enumerate(table.born):
            if not 0 <= born <= p or problem.values[v].kind is not Kind.COMPUTED:
                continue
            forward = problem.ops[problem.producer[v]].phase is Phase.FORWARD
            if forward and (table.last[v] >= p or problem.values[v].held):
                continue
            saved = form.after(v, START) if v in matter and not self.stages.free[v] else ZERO
            parts.append(self.model.most([saved, *readers.get(v, ())]) * table.nbytes[v])
        return total(parts)
