"""What the exact formulations have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod

from fxremat.solver.exact.milp import ZERO, Floats, Linear, Model, total
from fxremat.solver.exact.stages import Stages

__all__ = ["Formulation"]


class Formulation(ABC):
    """A program whose 0/1 solutions are schedules.

    Args:
        stages: the backward in stages.
    """

    def __init__(self, stages: Stages) -> None:
        self.stages, self.model = stages, Model()
        self.problem, self.flat = stages.problem, stages.flat
        self._when: dict[int, list[int]] = {}  # stages in which each op may run
        self._hoists: dict[int, Linear] = {}

    @abstractmethod
    def run(self, op: int, stage: int) -> Linear:
        """Whether an op runs in a stage."""

    @abstractmethod
    def ran(self, op: int, stage: int) -> Linear:
        """Whether an op has run by the end of a stage."""

    @abstractmethod
    def after(self, value: int, stage: int) -> Linear:
        """Whether a copy that costs bytes is live after a stage, for a later one."""

    def hoisted(self, op: int) -> Linear:
        """Whether a DEFERRABLE op runs in the forward."""
        return self._hoists.get(op, ZERO)

    def schedule(self, x: Floats) -> list[int]:
        """The schedule of a solution."""
        found: list[int] = []
        stage = 0
        for k, op in enumerate(self.problem.backward):
            if stage < len(self.stages.ends) and k == self.stages.ends[stage]:
                ops = self.stages.order[stage]
                found += [o for o in ops if self.run(o, stage).at(x) > 0.5]
                stage += 1
            found.append(op)
        return found

    def _just_in_time(self, op: int) -> list[int]:
        """Let an op run only in stages that use a result; the ops that read one, ascending."""
        outputs = [v for v in self.flat.makes[op] if not self.stages.free[v]]
        direct = {k for v in outputs for k in self.stages.direct[v]}
        users = sorted({w for v in outputs for w in self.stages.users[v]})
        for k in self._when[op]:
            if k not in direct:
                self.model.at_least(total(self.run(w, k) for w in users), self.run(op, k))
        return users

    def _hoist_inputs(self, op: int) -> None:
        """Let the DEFERRABLE ops that an op reads run in the forward if it does."""
        own = self.hoisted(op)
        for v in self.flat.reads[op] if not own.is_zero else ():
            above = self._hoists.get(self.problem.producer[v])
            if above is not None:
                self.model.at_least(above, own)
