"""Which micro-batch fits, and which is fastest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fxremat
from fxremat.api.batch_size import Advice
from fxremat.base.errors import BudgetError, OptionError
from tests.steps import blocks


def asked(memory: object = "1MiB", target: int | None = 96, **more: Any) -> Advice:
    model, _ = blocks(device="meta")
    options: dict[str, Any] = {"device": "h100", "optimizer": "AdamW", "inner": "eager", **more}
    make = options.pop("make", lambda n: torch.empty(n, 16, device="meta"))
    return fxremat.advise(model, make, memory=memory, target_batch=target, effort=0, **options)


def test_all_divisors_and_powers_are_planned_until_one_does_not_fit() -> None:
    advice = asked()
    sizes = [c.micro_batch for c in advice.choices]
    assert sizes == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96]
    assert [c.steps for c in advice.choices] == [96, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 2, 1]
    tight = asked("225KiB")
    fits = [c.plan is not None for c in tight.choices]
    first = fits.index(False)
    assert not any(fits[first:])
    # The first that does not fit, and the whole batch, which needs no gradients of earlier steps.
    assert [c.micro_batch for c in tight.choices[first:]] == [sizes[first], 96]
    assert "does not fit: activations take" in str(tight)


def test_the_whole_batch_may_fit_where_a_half_does_not() -> None:
    """One step keeps no gradients of earlier ones, here 40 KiB."""
    advice = asked("248KiB")
    assert [c.plan is not None for c in advice.choices][-2:] == [False, True]


def test_what_fits_is_within_the_memory_and_the_best_is_the_fastest() -> None:
    advice = asked("500KiB")
    fitting = [c for c in advice.choices if c.plan is not None]
    assert fitting
    for choice in fitting:
        assert 0 < choice.total <= advice.memory == 500 * 1024
        assert choice.plan is not None
        held = choice.plan.context.resident
        assert held is not None
        assert held.accumulates == (choice.steps > 1)
        assert choice.total == held.total(choice.plan.predicted_peak)
        step = choice.plan.step_seconds + choice.plan.recompute_seconds
        assert choice.seconds == pytest.approx(choice.steps * step)
    best = advice.best
    assert best.throughput == max(c.throughput for c in fitting)
    assert f"{best.micro_batch:>11}  {best.steps:>5}" in str(advice)


def test_a_gpu_likes_large_batches_until_too_much_is_recomputed() -> None:
    """Launches dominate small steps, so the largest that fits without recomputing wins."""
    advice = asked("64MiB")
    assert advice.best.micro_batch == 96


def test_without_a_target_there_is_one_step() -> None:
    advice = asked(target=None, largest=64)
    assert [c.micro_batch for c in advice.choices] == [1, 2, 4, 8, 16, 32, 64]
    assert {c.steps for c in advice.choices} == {1}


@pytest.mark.parametrize(
    "make",
    [
        lambda n: (torch.empty(n, 16, device="meta"),),
        lambda n: {"x": torch.empty(n, 16, device="meta")},
    ],
)
def test_batches_are_tuples_or_dicts(make: Callable[[int], Any]) -> None:
    assert asked(target=4, make=make).choices == asked(target=4).choices


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"memory": "100KiB"}, BudgetError, "not even a micro-batch of 1 fits into 100.0 KiB"),
        ({"memory": 0.5}, BudgetError, "not a number of bytes"),
        ({"target": 0}, OptionError, "target_batch=0: not a number of samples"),
        ({"target": None, "largest": 0}, OptionError, "largest=0: not a number of samples"),
    ],
)
def test_bad_input(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        asked(**given)
