"""The ``torch.compile`` backend.

::

    compiled = torch.compile(model, backend=fxremat.backend("6GiB"))

AOTAutograd traces the joint graph and hands it to our partitioner; the halves go to the inner
compiler. Graphs without a backward are passed straight through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from passes import private

from .budget import format_bytes
from .options import Options
from .plan import Plan
from .planning import Planned, Workspaces, plan_joint

__all__ = ["Backend", "backend", "entry_point"]

log = logging.getLogger("fxremat")

Halves = tuple[fx.GraphModule, fx.GraphModule]


class Backend:
    """A backend for ``torch.compile`` that keeps the peak of a step within a budget.

    Attributes:
        options: what it was made with.
        plans: one :class:`fxremat.plan.Plan` for each training graph compiled so far, in order.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.plans: list[Plan] = []

    def __repr__(self) -> str:
        """The options, and how many graphs have been planned."""
        return f"fxremat.backend({self.options.budget}, plans={len(self.plans)})"

    def __call__(
        self, module: fx.GraphModule, example_inputs: Sequence[Any], **_: Any
    ) -> Callable[..., Any]:
        """Compile one graph, as ``torch.compile`` asks for it."""
        inner = self.options.inner
        if inner == "inductor":
            return private.compile_with_inductor(module, example_inputs, self._inductor_partition)
        compiler = private.run_op_by_op if inner == "eager" else _boxed(inner)
        return private.compile_with_aot(module, example_inputs, compiler, self._partition)

    def _partition(
        self, module: fx.GraphModule, joint_inputs: Sequence[Any], *, num_fwd_outputs: int, **_: Any
    ) -> Halves:
        return self._split(module, num_fwd_outputs, None)

    def _inductor_partition(
        self, module: fx.GraphModule, joint_inputs: Sequence[Any], *, num_fwd_outputs: int, **_: Any
    ) -> Halves:
        return self._split(module, num_fwd_outputs, None)

    def _split(
        self, module: fx.GraphModule, num_fwd_outputs: int, workspaces: Workspaces | None
    ) -> Halves:
        planned = plan_joint(module, num_fwd_outputs, self.options, workspaces)
        self.plans.append(planned.plan)
        _report(planned)
        return planned.split.forward, planned.split.backward


def backend(budget: object = None, **options: object) -> Backend:
    """Make a ``torch.compile`` backend that keeps the peak of a training step within a budget.

    The peak counts the bytes that the compiled region holds above what exists when it is entered:
    activations, temporaries, gradients and workspaces; not parameters or optimizer state.

    Args:
        budget: ``"6GiB"`` or an int (bytes); ``0.4`` or ``"40%"`` (of the peak of the plan that
            recomputes nothing); ``"min"`` (the smallest peak); None (no limit).
        options: see :class:`fxremat.options.Options`: ``inner``, ``cost``, ``device``,
            ``on_infeasible``, ``time_limit``, ``effort``.

    Raises:
        OptionError: if an option is unknown or has the wrong type.
        BudgetError: if the budget makes no sense. One that no plan meets is raised when the
            graph is compiled, wrapped by torch in ``BackendCompilerFailed``.

    Example:
        >>> import fxremat
        >>> fxremat.backend(0.4, inner="eager")
        fxremat.backend(40% of the baseline peak, plans=0)
    """
    return Backend(Options.parse(budget, **options))


def entry_point(
    module: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any
) -> Callable[..., Any]:
    """``torch.compile(model, backend="fxremat", options={"budget": "6GiB"})``."""
    options = Options.from_mapping(kwargs.get("options") or {})
    return Backend(options)(module, example_inputs)


def _boxed(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """Let a user's compiler take its inputs as a list, so that they can be freed when used up."""

    def compile_half(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return private.boxed(compiler(module, inputs))

    return compile_half


def _report(planned: Planned) -> None:
    plan = planned.plan
    log.info(
        "peak %s of %s (budget %s), %+.1f%% time, %d values saved, %d runs recomputed, %.2f s",
        format_bytes(plan.predicted_peak),
        format_bytes(plan.baseline_peak),
        "none" if plan.budget is None else format_bytes(plan.budget),
        100 * plan.overhead,
        len(plan.saved),
        len(plan.recomputed),
        sum(plan.timings.values()),
    )
