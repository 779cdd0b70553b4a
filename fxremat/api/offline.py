"""Planning without running: what a step will take, on this machine or on one that is not here.

The step is traced on fake tensors, so nothing of the model's size is allocated. For this machine
(``device=None``) ops are measured as the backend measures them: each distinct op is run once, by
itself. For a named device nothing runs at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import nn

from fxremat.base.budget import Budget, BudgetLike, resolve
from fxremat.base.errors import BudgetError, OptionError
from fxremat.base.units import format_bytes
from fxremat.costs import devices, workspace
from fxremat.costs.model_states import Optimizer, resident
from fxremat.frontend.analyze import Prepared, estimated_workspaces, external_workspaces, prepare
from fxremat.frontend.trace import trace_joint
from fxremat.options import Options, PlanOptions
from fxremat.planning.planner import Planner, planner_of
from fxremat.planning.select import decide
from fxremat.plans.frontier import Frontier
from fxremat.plans.plan import Plan
from fxremat.problem.context import Context

__all__ = ["frontier", "plan"]


def plan(
    model: nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    budget: BudgetLike = None,
    memory: BudgetLike = None,
    device: str | devices.DeviceProfile | None = None,
    optimizer: Optimizer = None,
    accumulates: bool = False,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Plan a training step without running it.

    With ``inner="inductor"`` the plan is for ops as Inductor is likely to fuse them. What its code
    holds is known only once it has been compiled, and the backend then plans again if need be.

    Args:
        model: the module that returns the loss, with real weights or on the "meta" device.
        args: what it is called with: a tensor, or a sequence; real, "meta" or fake tensors.
        kwargs: the same, by name.
        budget: limit on the peak, as for :func:`fxremat.backend`.
        memory: limit on all that the step holds, in bytes ("80GiB"); the budget is what is left
            beside parameters, optimizer state and the like. Give this or ``budget``.
        device: name of a device profile such as "h100", a profile, or None for this machine.
        optimizer: its class, its name in ``torch.optim``, or a callable that takes the list of
            parameters and returns one; see :class:`fxremat.problem.context.Resident`.
        accumulates: gradients of earlier steps are there while the step runs.
        options: the others of :class:`fxremat.options.Options`.

    Returns:
        The plan; ``plan.context.resident`` has what the step holds besides.

    Raises:
        OptionError: for an unknown option, device or optimizer.
        BudgetError: if the budget makes no sense, or no plan meets it.
        GraphError: if the step cannot be traced as one graph.

    Example:
        >>> import fxremat, torch
        >>> with torch.device("meta"):
        ...     model, batch = torch.nn.Linear(4096, 4096), torch.randn(8, 4096)
        >>> found = fxremat.plan(model, batch, device="h100", optimizer="SGD", inner="eager")
        >>> found.predicted_peak, found.context.resident.parameters
        (67387392, 67125248)
    """
    if budget is not None and memory is not None:
        raise OptionError("budget and memory were both given; memory says what budget there is")
    chosen = Options.parse(budget, **{**options, "device": device})
    ready = _ready(model, args, kwargs, chosen, optimizer, accumulates)
    if memory is not None:
        budget = Budget(nbytes=_left(memory, ready.context))
        ready = replace(ready, options=replace(chosen, budget=budget))
    return decide(ready)


def frontier(
    model: nn.Module | Plan,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    device: str | devices.DeviceProfile | None = None,
    optimizer: Optimizer = None,
    accumulates: bool = False,
    **options: Unpack[PlanOptions],
) -> Frontier:
    """The trade-off of peak against time of a training step, without running it.

    Args:
        model: as for :func:`plan`, and so are the others; or a plan with its context, alone, for
            the curve of its graph.
        args: see there.
        kwargs: see there.
        device: see there.
        optimizer: see there.
        accumulates: see there.
        options: see there.

    Returns:
        Plans by falling peak and rising time, and beside them what people do by hand.

    Raises:
        OptionError: for an unknown option, device or optimizer, or a plan without its context.
        GraphError: if the step cannot be traced as one graph.
    """
    if isinstance(model, Plan):
        alone = isinstance(args, (tuple, list)) and not args and kwargs is None and device is None
        if not alone or optimizer is not None or accumulates or options:
            raise OptionError(
                "a plan was given: its graph and costs are its own; give nothing beside it"
            )
        return Planner.of(model).frontier()
    chosen = Options.parse(None, **{**options, "device": device})
    ready = _ready(model, args, kwargs, chosen, optimizer, accumulates)
    return planner_of(ready).frontier()


def _ready(
    model: nn.Module,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    options: Options,
    optimizer: Optimizer,
    accumulates: bool,
) -> Prepared:
    if not isinstance(model, nn.Module):
        raise OptionError(
            f"model: a {type(model).__name__} is no nn.Module; wrap model and loss in one"
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise OptionError(
            f"kwargs={kwargs!r}: not the model's arguments by name; a budget is given as "
            f"budget={kwargs!r}"
        )
    given = args if isinstance(args, (tuple, list)) else (args,)
    named, here = options.device, torch.device("cpu")
    profile = None if named is None else devices.profile(named, here)
    held = resident(
        model,
        (given, kwargs),
        optimizer,
        rounding=1 if profile is None else profile.rounding,
        foreach=profile is not None and profile.rounding > 1,
        accumulates=accumulates,
    )
    fused = options.inner == "inductor"
    joint, outputs = trace_joint(model, given, kwargs, decompositions=fused, joint_passes=fused)
    run = external_workspaces if fused else workspace.measure
    ready = prepare(joint, outputs, options, run if profile is None else estimated_workspaces)
    return replace(ready, context=replace(ready.context, resident=held))


def _left(memory: object, context: Context) -> int | None:
    """What a limit on all memory leaves for the peak of the plan."""
    held = context.resident
    assert held is not None
    try:
        asked = Budget.parse(memory)
    except BudgetError:
        asked = Budget()
    if asked.nbytes is None:
        raise BudgetError(f"memory={memory!r}: not a number of bytes; write one such as '80GiB'")
    if held.total(0) >= asked.nbytes:
        raise BudgetError(
            f"memory={memory!r}: {asked.nbytes} bytes; parameters, optimizer and the rest take "
            f"{held.total(0)} bytes ({format_bytes(held.total(0))}) alone: {held}. Shard or "
            "offload them, or take a larger device",
            asked=asked.nbytes,
        )
    return resolve(asked, 0, reserved=held.during).nbytes
