"""fxremat: train within a memory budget.

``torch.compile(model, backend=fxremat.backend("6GiB"))`` saves or recomputes each activation so
that the peak of the training step stays within the budget, for the least extra time.
"""

from fxremat.api.batch_size import Advice, advise
from fxremat.api.offline import frontier, plan
from fxremat.backends.backend import Backend, backend
from fxremat.base.budget import Budget
from fxremat.base.errors import (
    BudgetError,
    CostError,
    GraphError,
    InfeasibleError,
    OptionError,
    RankError,
    RematError,
    RewriteError,
)
from fxremat.constraints.user import recompute, region, save
from fxremat.inspect.drawings import to_dot
from fxremat.inspect.explain import explain
from fxremat.inspect.reports import write_report
from fxremat.plans.diff import Diff, diff
from fxremat.plans.frontier import Frontier
from fxremat.plans.plan import Plan

__version__ = "0.1.0"

__all__ = [
    "Advice",
    "Backend",
    "Budget",
    "BudgetError",
    "CostError",
    "Diff",
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
    "diff",
    "explain",
    "frontier",
    "plan",
    "recompute",
    "region",
    "save",
    "to_dot",
    "write_report",
]
