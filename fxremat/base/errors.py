"""Every error fxremat raises on purpose.

::

    RematError
    ├── OptionError      an option that is unknown or of the wrong type   (also a ValueError)
    ├── BudgetError      a budget that makes no sense, or that no plan meets (also a ValueError)
    ├── GraphError       a graph the pass cannot take
    ├── CostError        an op whose cost cannot be told
    ├── InfeasibleError  rules that leave no cut: a value neither saved nor recomputed
    ├── RankError        processes that train one model and don't compile the same graphs
    └── RewriteError     a plan that does not fit the graph it is applied to

An error raised while ``torch.compile`` runs a backend reaches the caller as
``torch._dynamo.exc.BackendCompilerFailed``; ours is its ``inner_exception``.
"""

from __future__ import annotations

from passes.errors import GraphError, RematError, RewriteError

__all__ = [
    "BudgetError",
    "CostError",
    "GraphError",
    "InfeasibleError",
    "OptionError",
    "RankError",
    "RematError",
    "RewriteError",
]


class OptionError(RematError, ValueError):
    """An option is unknown or has the wrong type."""


class BudgetError(RematError, ValueError):
    """A budget makes no sense, or no plan meets it.

    Attributes:
        asked: the budget in bytes, or None where it could not be read.
        least: the lowest peak in bytes that a plan reaches, or None.
    """

    def __init__(self, message: str, *, asked: int | None = None, least: int | None = None) -> None:
        super().__init__(message)
        self.asked = asked
        self.least = least


class CostError(RematError):
    """The cost of an op cannot be told, for instance for a tensor without a storage."""


class RankError(RematError):
    """Ranks do not compile the same graph, or one did not come to compile it at all."""


class InfeasibleError(RematError):
    """The rules leave a value that may be neither saved nor recomputed.

    Attributes:
        path: the forced choices, in order, each as "name: reason".
    """

    def __init__(self, message: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.path = path
