"""One way to run a training step, measured in a process of its own.

    eager           uncompiled
    compiled        torch.compile without rematerialization (Inductor's default)
    torch B         torch's own partitioner with activation_memory_budget=B
    every K         torch.utils.checkpoint (non-reentrant) around every K blocks
    selective       the same for each block, with products and convolutions saved
    flag            the checkpointing flag of transformers and diffusers
    fxremat B       fxremat with the budget B: a fraction, bytes, or "min"

With the inner compiler "inductor" what people do by hand is compiled as well. Times are ratios to
a reference that runs in turn with the variant: uncompiled eager, or under "inductor" compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo import lookup_backend
from torch._functorch import config as functorch_config

import fxremat
from benchmarks import byhand, forks, harness, pretrained
from fxremat.base import measure
from fxremat.base.errors import BudgetError
from fxremat.base.units import error_line

__all__ = ["HAND", "measured", "run_case"]

HAND = ("every", "selective", "flag")
Run = Callable[..., Tensor]


def measured(zoo: Path, model: str, inner: str, run: str, pairs: int) -> dict[str, Any]:
    """The row of one variant; its ``status`` says how it went."""
    named = {"model": model, "inner": inner, "run": run}
    case = {"zoo": str(zoo.resolve()), "pairs": pairs, **named}
    return {**named, **forks.run_forked(run_case, case)}


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    """Measure one variant in this process, which must not have profiled memory before.

    Returns:
        ``status``: "done", "not possible" (for what is done by hand) or "infeasible" (no plan
        within the budget), the latter two with ``error``. If done: ``peak`` in bytes, ``time`` over
        the reference, ``seconds`` of the first step, ``loss`` and ``gradients``: largest difference
        from eager's over the largest value; for fxremat ``predicted``, ``limit``, ``planned``.
    """
    try:
        module, args = harness.build(Path(case["zoo"]), case["model"])
    except ImportError as error:
        return {"status": "not possible", "error": str(error)}
    eager = harness.step_of(module, module, args)
    wanted, right = float(eager().detach()), _gradients(module)
    backend: fxremat.Backend | None = None
    changed, kind = module, case["run"].partition(" ")[0]
    if kind in HAND:
        changed, _ = harness.build(Path(case["zoo"]), case["model"])
        if not _by_hand(changed, case["run"]):
            return {"status": "not possible", "error": "no blocks, or fewer than asked for"}
    if kind == "fxremat":
        backend = fxremat.backend(case["run"].partition(" ")[2], inner=case["inner"])
    step = harness.step_of(changed, _run_of(case, changed, backend), args)
    try:
        loss = float(step().detach())
    except Exception as error:
        return _said(error, kind)
    found = {
        "status": "done",
        "loss": abs(loss - wanted) / max(1.0, abs(wanted)),
        "gradients": measure.largest_difference(right, _gradients(changed)),
    }
    del right
    changed.zero_grad(set_to_none=True)
    module.zero_grad(set_to_none=True)
    found["peak"] = measure.peak_bytes(step)
    if backend is not None:
        found |= _promised(backend)
    if case["pairs"]:
        reference = _reference(module, case["inner"], args)
        found["time"] = measure.time_ratio(step, reference, case["pairs"])
    return found


def _reference(module: nn.Module, inner: str, args: tuple[Tensor, ...]) -> harness.Step:
    run: Run = torch.compile(module) if inner == "inductor" else module
    step = harness.step_of(module, run, args)
    step()
    return step


def _by_hand(module: nn.Module, run: str) -> bool:
    kind, _, amount = run.partition(" ")
    if kind == "flag":
        module.train()
        return pretrained.flagged(module)
    return byhand.checkpointed(module, int(amount or 1), kind == "selective")


def _run_of(case: dict[str, Any], module: nn.Module, backend: fxremat.Backend | None) -> Run:
    kind, _, amount = case["run"].partition(" ")
    with_inductor = case["inner"] == "inductor"
    run: Run = module
    if backend is not None:
        run = torch.compile(module, backend=backend)
    elif kind == "torch":
        plain = "inductor" if with_inductor else "aot_eager_decomp_partition"
        run = torch.compile(module, backend=_bounded(plain, float(amount)))
    elif kind == "compiled" or (kind in HAND and with_inductor):
        run = torch.compile(module)
    return run


def _bounded(name: str, budget: float) -> Callable[..., Any]:
    """A backend of torch with its own budget; one of its own, as Dynamo shares code by backend."""

    def compiler(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        with functorch_config.patch(activation_memory_budget=budget):
            return lookup_backend(name)(graph, inputs)

    return compiler


def _said(error: Exception, kind: str) -> dict[str, Any]:
    """The row of a variant whose first step failed."""
    said = error_line(error)
    budgets = [e for e in harness.causes(error) if isinstance(e, BudgetError)]
    if budgets:
        return {"status": "infeasible", "error": str(budgets[0]), "least": budgets[0].least}
    if kind in HAND:
        return {"status": "not possible", "error": said}
    return {"status": "failed", "error": said}


def _promised(backend: fxremat.Backend) -> dict[str, Any]:
    """What the plan says of the step; nothing of peaks where there are several graphs."""
    plans = backend.plans
    recompute = sum(p.recompute_seconds for p in plans)
    found: dict[str, Any] = {"graphs": len(plans)}
    found["planned"] = 1 + recompute / sum(p.step_seconds for p in plans)
    if len(plans) == 1:
        found |= {"predicted": plans[0].predicted_peak, "limit": plans[0].budget}
        found |= {"baseline": plans[0].baseline_peak, "floor": plans[0].floor}
    return found


def _gradients(module: nn.Module) -> list[Tensor]:
    return [p.grad.detach().clone() for p in module.parameters() if p.grad is not None]
