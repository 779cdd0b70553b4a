"""Run a step for real: peaks and times at several budgets, beside uncompiled eager.

Each run has a process of its own, since peaks can be measured only once in a process (see
:mod:`fxremat.base.measure`).

    python -m fxremat.cli.bench '{"target": "model.py:make", "budget": "0.5", ...}'
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fxremat.backends.backend import backend
from fxremat.base import measure
from fxremat.base.errors import OptionError, RematError
from fxremat.cli.targets import Target, importable, load
from fxremat.options import InnerName

__all__ = ["Row", "bench"]

EAGER = "eager"


@dataclass(frozen=True, slots=True)
class Row:
    """One run.

    Attributes:
        run: "eager", or the budget.
        limit: allowed peak in bytes, or None for no limit.
        predicted: predicted peak in bytes, or None for eager.
        measured: peak in bytes, or None where the run failed.
        time: time of a step over that of eager, or None where it was not measured.
        planned: the same, predicted.
        gradients: largest difference of a gradient from eager's, over the largest gradient.
        error: why the run failed, or "".
    """

    run: str
    limit: int | None = None
    predicted: int | None = None
    measured: int | None = None
    time: float | None = None
    planned: float | None = None
    gradients: float | None = None
    error: str = ""


def bench(target: str, budgets: Sequence[str], inner: str, pairs: int) -> Iterator[Row]:
    """Measure a target at several budgets, and uncompiled.

    Args:
        target: see :mod:`fxremat.cli.targets`.
        budgets: as for :func:`fxremat.backend`.
        inner: "inductor" or "eager".
        pairs: how often step and eager are timed in turn; 0 leaves times out.

    Raises:
        OptionError: if the target cannot be made, or has no data.
    """
    for run in (EAGER, *budgets):
        case = {"target": target, "run": run, "inner": inner, "pairs": pairs}
        command = [sys.executable, "-m", "fxremat.cli.bench", json.dumps(case)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        if done.returncode or not lines:
            said = done.stderr.strip().splitlines()
            raise OptionError(
                f"bench of {target} at {run} failed: {said[-1] if said else 'no word'}"
            )
        yield Row(**json.loads(lines[-1]))


def _case(target: str, run: str, inner: InnerName, pairs: int) -> dict[str, Any]:
    step = load(target)
    if not step.is_real:
        raise OptionError(f"target {target!r} holds tensors without data; return real ones to run")
    eager = _step(step, step.model)
    if run == EAGER:
        eager()
        return {"run": run, "measured": measure.peak_bytes(eager, step.device), "time": 1.0}
    made = backend(run, inner=inner)
    compiled = _step(step, torch.compile(step.model, backend=made))
    try:
        compiled()
    except Exception as error:
        cause = getattr(error, "inner_exception", error)
        if not isinstance(cause, RematError):
            raise
        return {"run": run, "error": str(cause)}
    measured = measure.peak_bytes(compiled, step.device)
    plans = made.plans
    return {
        "run": run,
        "limit": plans[0].budget if len(plans) == 1 else None,
        "predicted": max((p.predicted_peak for p in plans), default=None),
        "measured": measured,
        "gradients": _difference(step, eager, compiled),
        "time": measure.time_ratio(compiled, eager, pairs, step.device) if pairs else None,
        "planned": 1 + sum(p.recompute_seconds for p in plans) / sum(p.step_seconds for p in plans),
    }


def _step(target: Target, run: Callable[..., Any]) -> Callable[[], Tensor]:
    def step() -> Tensor:
        target.model.zero_grad(set_to_none=True)
        made = run(*target.args, **target.kwargs)  # held by the caller, as plans have it
        loss = _loss(made)
        loss.backward()
        del made
        return loss

    return step


def _loss(made: Any) -> Tensor:
    """The scalar to go backward from: the result, or its ``loss``, or its first tensor's sum."""
    if getattr(made, "loss", None) is not None:
        made = made.loss
    tensors = [t for t in pytree.tree_leaves(made) if isinstance(t, Tensor) and t.requires_grad]
    if not tensors:
        raise OptionError("the model returns nothing that needs a gradient; return the loss")
    return tensors[0] if tensors[0].ndim == 0 else tensors[0].sum()


def _difference(target: Target, eager: Callable[[], Any], ours: Callable[[], Any]) -> float:
    """Largest difference of a gradient, over the largest gradient; both from one seed."""
    found = []
    state = [b.detach().clone() for b in target.model.buffers()]
    for run in (eager, ours):
        for buffer, kept in zip(target.model.buffers(), state, strict=True):
            buffer.data.copy_(kept)
        torch.manual_seed(0)
        run()
        grads = [p.grad for p in target.model.parameters() if p.grad is not None]
        found.append([g.detach().clone() for g in grads])
    return measure.largest_difference(*found)


if __name__ == "__main__":
    case = json.loads(sys.argv[1])
    try:
        with importable(case["target"]):
            print(json.dumps(_case(**case)))
    except RematError as error:
        sys.exit(str(error))
