"""What planning asks of other processes that compile the same graph.

:mod:`fxremat.distributed` answers for several ranks, :class:`SingleProcess` for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fxremat.frontend.analyze import Prepared
from fxremat.plans.plan import Plan

__all__ = ["MakePlan", "Peers", "SingleProcess"]

MakePlan = Callable[[], Plan]


class Peers(Protocol):
    """What a rank and the others agree on about one graph."""

    def again(self) -> None:
        """Plan and compile the graph once more, since its code was above the budget."""

    def agree(self, ready: Prepared, make: MakePlan, reserved: int = 0) -> Plan:
        """The plan of this attempt: what ``make`` gives on one rank, the same plan on others.

        Args:
            ready: the graph.
            make: plans it.
            reserved: bytes that other graphs of the step hold meanwhile on this rank.

        Raises:
            RankError: if the plan of the rank that decides does not come or does not fit.
            BudgetError: if no plan meets the budget there, or that rank's plan breaks it here.
        """

    def confirms(self, plan: Plan) -> bool:
        """Whether code that a cache gave back has the plan that the ranks agree on."""


class SingleProcess:
    """A process that asks nobody."""

    def again(self) -> None:
        """Nobody needs to know."""

    def agree(self, ready: Prepared, make: MakePlan, reserved: int = 0) -> Plan:
        """What ``make`` gives."""
        return make()

    def confirms(self, plan: Plan) -> bool:
        """Always."""
        return True
