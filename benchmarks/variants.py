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
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo import lookup_backend
from torch._functorch import config as functorch_config

import fxremat
from benchmarks import byhand, harness, hugging_face
from benchmarks.harness import Row, Step
from fxremat.base import measure
from fxremat.base.errors import BudgetError
from fxremat.base.units import error_line

__all__ = ["measured", "run_case"]

HAND = ("every", "selective", "flag")
MOST = 60  # pairs of steps, at most
Run = Callable[..., Tensor]


def measured(zoo: Path | None, model: str, inner: str, run: str, pairs: int, **more: Any) -> Row:
    """The row of one variant; its ``status`` says how it went.

    Args:
        zoo: a file of models, or None for ``benchmarks.zoo``.
        model: one of them.
        inner: the inner compiler.
        run: the variant.
        pairs: of timed steps, at least; 0 leaves times out.
        more: ``reference``, another model whose plain step is the reference; ``spent``, seconds of
            its steps that are timed where they are so short that ``pairs`` take less.
    """
    named = {"model": model, "inner": inner, "run": run}
    path = None if zoo is None else str(zoo.resolve())
    return named | harness.run_forked(run_case, {"zoo": path, "pairs": pairs, **named, **more})


def run_case(case: Row) -> Row:
    """Measure one variant in this process, which must not have profiled memory before.

    Returns:
        ``status``: "done", "not possible" (for what is done by hand) or "infeasible" (no plan
        within the budget), the latter two with ``error``. If done: ``peak`` in bytes, ``time`` over
        the reference, ``loss`` and ``gradients``: largest difference from eager's over the largest
        value; for fxremat ``predicted``, ``limit``, ``planned``.
    """
    try:
        module, args = _build(case)
    except ImportError as error:
        return {"status": "not possible", "error": str(error)}
    eager = harness.step_of(module, module, args)
    wanted, right = float(eager().detach()), _gradients(module)
    kind, _, amount = case["run"].partition(" ")
    changed = module
    if kind in HAND:
        changed, _ = _build(case)
        if not _by_hand(changed, kind, amount):
            return {"status": "not possible", "error": "no blocks, or fewer than asked for"}
    backend = fxremat.backend(amount, inner=case["inner"]) if kind == "fxremat" else None
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
    return found | (_timed(case, step, module, args) if case["pairs"] else {})


def _build(case: Row, key: str = "model") -> harness.Case:
    return harness.build(case["zoo"] and Path(case["zoo"]), case[key])


def _timed(case: Row, step: Step, module: nn.Module, args: tuple[Tensor, ...]) -> Row:
    """The time of a step over the reference's."""
    if "reference" in case:
        module, args = _build(case, "reference")
    run: Run = torch.compile(module) if case["inner"] == "inductor" else module
    reference = harness.step_of(module, run, args)
    reference()
    begin = perf_counter()
    reference()
    enough = int(case.get("spent", 0) / (perf_counter() - begin))
    return {"time": measure.time_ratio(step, reference, max(case["pairs"], min(enough, MOST)))}


def _by_hand(module: nn.Module, kind: str, amount: str) -> bool:
    if kind == "flag":
        module.train()
        return hugging_face.flagged(module)
    return byhand.checkpointed(module, int(amount or 1), kind == "selective")


def _run_of(case: Row, module: nn.Module, backend: fxremat.Backend | None) -> Run:
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


def _said(error: Exception, kind: str) -> Row:
    """The row of a variant whose first step failed."""
    for cause in _causes(error):
        if isinstance(cause, BudgetError):
            return {"status": "infeasible", "error": str(cause), "least": cause.least}
    return {"status": "not possible" if kind in HAND else "failed", "error": error_line(error)}


def _causes(error: BaseException) -> list[BaseException]:
    """An error and all that led to it, those that ``torch.compile`` wrapped included."""
    found: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is not None and one not in found:
            found.append(one)
            todo += [one.__context__, one.__cause__, getattr(one, "inner_exception", None)]
    return found


def _promised(backend: fxremat.Backend) -> Row:
    """What the plan says of the step; nothing of peaks where there are several graphs."""
    plans = backend.plans
    recompute = sum(p.recompute_seconds for p in plans)
    found: Row = {"graphs": len(plans)}
    found["planned"] = 1 + recompute / sum(p.step_seconds for p in plans)
    if len(plans) == 1:
        found |= {"predicted": plans[0].predicted_peak, "limit": plans[0].budget}
        found |= {"baseline": plans[0].baseline_peak, "floor": plans[0].floor}
    return found


def _gradients(module: nn.Module) -> list[Tensor]:
    return [p.grad.detach().clone() for p in module.parameters() if p.grad is not None]
