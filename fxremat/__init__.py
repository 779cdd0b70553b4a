"""fxremat: train within a memory budget.

``torch.compile(model, backend=fxremat.backend("6GiB"))`` saves or recomputes each activation so
that the peak of the training step stays within the budget, for the least extra time.
"""

from .advising import Advice, advise
from .backends import Backend, backend
from .budget import Budget
from .errors import (
    BudgetError,
    CostError,
    GraphError,
    InfeasibleError,
    OptionError,
    RankError,
    RematError,
    RewriteError,
)
from .frontiers import Frontier
from .offline import frontier, plan
from .pins import recompute, region, save
from .plans import Plan

__version__ = "0.1.0"

__all__ = [
    "Advice",
    "Backend",
    "Budget",
    "BudgetError",
    "CostError",
    "Frontier",
    "GraphError",
    "InfeasibleError",
    "OptionError",
    "Plan",
    "RankError",
    "RematError",
    "RewriteError",
    "advise",
    "backend",
    "frontier",
    "plan",
    "recompute",
    "region",
    "save",
]
