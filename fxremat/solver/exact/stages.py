"""The backward in stages, for exact formulations.

A *stage* ends with a backward op that reads tracked values (:class:`~fxremat.solver.flat.Table`)
and begins after the one before. All runs of a stage stand right before its backward op. The
backward ops in between read no tracked value, so the tracked values live there are the same and
only the largest base counts.
"""

from __future__ import annotations

from fxremat.problem.types import Phase, Problem
from fxremat.solver.flat import Table

__all__ = ["START", "Stages"]

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
            forward[v] and not value.unsaveable and (value.is_output or value.nbytes == 0)
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
        if self.problem.ops[op].phase is Phase.DEFERRABLE:
            return op in self.problem.required
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
