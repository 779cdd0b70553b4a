"""Which batch fits, and which is fastest: micro-batches planned one by one on fake tensors.

A larger micro-batch uses a device better (launches and weights are read less often for each
sample), until so much must be recomputed that a smaller one is faster. Both are in the predicted
time of a plan, so every size that divides the work is planned, and the fastest one wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Unpack

from torch import nn

from fxremat.api.offline import plan
from fxremat.base.budget import Budget, BudgetLike
from fxremat.base.errors import BudgetError, OptionError
from fxremat.base.units import format_bytes
from fxremat.costs.devices import DeviceProfile
from fxremat.costs.model_states import Optimizer
from fxremat.options import PlanOptions
from fxremat.plans.plan import Plan

__all__ = ["Advice", "Choice", "advise"]


@dataclass(frozen=True)
class Choice:
    """One micro-batch size.

    Attributes:
        micro_batch: samples in one forward and backward.
        steps: forwards and backwards to one update.
        plan: the plan of one, with the budget that the memory leaves; None if there is none.
        total: most bytes that a step holds, parameters and the rest included.
        seconds: predicted time of all forwards and backwards to one update.
        samples: what is trained in that time.
        why: why there is no plan, or "".
    """

    micro_batch: int
    steps: int
    plan: Plan | None
    total: int
    seconds: float
    samples: int
    why: str = ""

    @property
    def throughput(self) -> float:
        """Predicted samples per second; 0 where nothing fits."""
        return self.samples / self.seconds if self.plan is not None and self.seconds else 0.0


@dataclass(frozen=True)
class Advice:
    """What fits into a memory, the fastest of it, and the alternatives.

    Attributes:
        memory: the limit in bytes.
        choices: the sizes that were planned, ascending.
    """

    memory: int
    choices: tuple[Choice, ...]

    @property
    def best(self) -> Choice:
        """The choice with the highest predicted throughput; of equals, the smallest."""
        return max(self.choices, key=lambda c: c.throughput)

    def __str__(self) -> str:
        """A table, one size a line."""
        head = f"{'micro-batch':>11}  {'steps':>5}  {'total':>10}  {'recomputed':>10}  samples/s"
        lines = [f"within {format_bytes(self.memory)}:", head]
        for one in self.choices:
            start = f"{one.micro_batch:>11}  {one.steps:>5}  "
            if one.plan is None:
                lines.append(f"{start}does not fit: {one.why}")
                continue
            mark = "  <- fastest" if one is self.best else ""
            lines.append(
                f"{start}{format_bytes(one.total):>10}  {one.plan.overhead:>+10.1%}  "
                f"{one.throughput:>9.4g}{mark}"
            )
        return "\n".join(lines)


def advise(
    model: nn.Module,
    make_batch: Callable[[int], Any],
    *,
    memory: BudgetLike,
    target_batch: int | None = None,
    largest: int = 4096,
    device: str | DeviceProfile | None = None,
    optimizer: Optimizer = None,
    **options: Unpack[PlanOptions],
) -> Advice:
    """Find the micro-batch size that trains fastest within a memory, without running anything.

    Sizes are tried in ascending order until one does not fit: the divisors of ``target_batch`` and
    the powers of two up to it. Where an update takes several steps, gradients are kept meanwhile;
    so the whole batch in one step is tried in any case.

    Args:
        model: the module that returns the loss, with real weights or on the "meta" device.
        make_batch: gives the arguments of the model for a number of samples: a tensor, a tuple, or
            a dict of arguments by name; real or "meta" tensors.
        memory: limit on all that a step holds: parameters, gradients, optimizer state, activations.
        target_batch: samples to one update; None takes one step to an update, of any size.
        largest: where ``target_batch`` is None, the largest power of two that is tried.
        device: as for :func:`fxremat.plan`.
        optimizer: as for :func:`fxremat.plan`.
        options: as for :func:`fxremat.plan`.

    Raises:
        OptionError: for a number of samples that makes no sense.
        BudgetError: if not even one sample fits.
        GraphError: if the step cannot be traced as one graph.

    Example:
        >>> import fxremat, torch
        >>> with torch.device("meta"):
        ...     net = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))
        ...     advice = fxremat.advise(
        ...         net, lambda n: torch.randn(n, 512), memory="16MiB", target_batch=512,
        ...         device="h100", optimizer="SGD", inner="eager",
        ...     )
        >>> advice.best.micro_batch, advice.best.steps
        (512, 1)
    """
    limit = Budget.parse(memory).nbytes
    if limit is None:
        raise BudgetError(f"memory={memory!r}: not a number of bytes; write one such as '24GiB'")
    found: list[Choice] = []
    for size in _sizes(target_batch, largest):
        steps = 1 if target_batch is None else -(-target_batch // size)
        if found and found[-1].plan is None and (steps > 1) == (found[-1].steps > 1):
            continue  # larger still, with no less held besides
        args, kwargs = _arguments(make_batch(size))
        try:
            made = plan(
                model,
                args,
                kwargs,
                memory=limit,
                device=device,
                optimizer=optimizer,
                accumulates=steps > 1,
                **options,
            )
        except BudgetError as error:
            found.append(Choice(size, steps, None, 0, 0.0, 0, _short(error)))
            continue
        held = made.context.resident
        assert held is not None  # plan() adds it up
        seconds = steps * (made.step_seconds + made.recompute_seconds)
        samples = target_batch or size
        found.append(Choice(size, steps, made, held.total(made.predicted_peak), seconds, samples))
    if all(one.plan is None for one in found):
        raise BudgetError(
            f"not even a micro-batch of {found[0].micro_batch} fits into {format_bytes(limit)}: "
            f"{found[0].why}. Shard or offload the model, or take a larger device",
            asked=limit,
        )
    return Advice(limit, tuple(found))


def _sizes(target: int | None, largest: int) -> list[int]:
    top = largest if target is None else target
    if not isinstance(top, Integral) or isinstance(top, bool) or top < 1:
        name = "largest" if target is None else "target_batch"
        raise OptionError(f"{name}={top!r}: not a number of samples; write an int, 1 or more")
    powers = {2**k for k in range(int(top).bit_length())}
    divisors = set() if target is None else {n for n in range(1, top + 1) if top % n == 0}
    return sorted(n for n in powers | divisors if n <= top)


def _arguments(batch: Any) -> tuple[Any, Mapping[str, Any] | None]:
    return ((), batch) if isinstance(batch, Mapping) else (batch, None)


def _short(error: BudgetError) -> str:
    if error.least is None:
        return "parameters, optimizer and the rest take more than there is"
    return f"activations take {format_bytes(error.least)} at least"
