"""Odd shapes, dtypes, layouts, arguments and outputs; see :mod:`tests.odd`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxremat
from tests.odd import D, Made, Pair, Wrapped, check, deep, leaf

pytestmark = [
    pytest.mark.filterwarnings("ignore:no plan found within"),
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated"),
]


# Shapes, dtypes and layouts.


def zero_rows() -> Made:
    return lambda x, w: (deep(x, w), deep(x[:0], w).sum()), (leaf(4, 6), leaf(6, 6))


def scalars() -> Made:
    return lambda x, s: ((x * s.exp()).sin() * s).sum() * s.tanh(), (leaf(4, 6), leaf())


def not_contiguous() -> Made:
    return lambda x, w: deep(x.t(), w).t(), (leaf(6, 4), leaf(6, 6).t().detach().requires_grad_())


def expanded() -> Made:
    return lambda x, w: deep(x.expand(5, 6), w) + x, (leaf(1, 6), leaf(6, 6))


def complex_numbers() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        z = torch.complex(x @ w, (x @ w).sin())
        z = (z * z.conj()).exp() * torch.fft.fft(z)
        made: Tensor = z.abs().log1p()
        return made

    return run, (leaf(4, 6), leaf(6, 6))


def half_precisions() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        h = (x.bfloat16() @ w.bfloat16()).tanh().half().exp().float()
        return (h.to(torch.float8_e4m3fn).to(torch.float32) + h).sin()

    return run, (leaf(4, 6, dtype=torch.float32), leaf(6, 6, dtype=torch.float32))


def autocast() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = (x @ w).relu() @ w
        return h.float().sin()

    return run, (leaf(4, 6, dtype=torch.float32), leaf(6, 6, dtype=torch.float32))


# Outputs and arguments.


def aliased_outputs() -> Made:
    def run(x: Tensor, w: Tensor) -> Any:
        h = deep(x, w)
        return h, h.view(-1), h.t()[1:], x, {"none": None, "w": w.t()}

    return run, (leaf(4, 6), leaf(6, 6))


def integers_out() -> Made:
    def run(x: Tensor, w: Tensor) -> Any:
        h = deep(x, w)
        return h.argmax(1), h.topk(2), h.detach(), (h > 0).sum()

    return run, (leaf(4, 6), leaf(6, 6))


def one_argument_twice() -> Made:
    x = leaf(6, 6)
    return lambda a, b: deep(a, b) * b.cos(), (x, x)


def an_argument_without_use() -> Made:
    return lambda x, w, unused: deep(x, w), (leaf(4, 6), leaf(6, 6), leaf(3))


def dataclass_out() -> Made:
    return lambda x, w: Pair(deep(x, w), x.exp()), (leaf(4, 6), leaf(6, 6))


def tied_weights() -> Made:
    table = nn.Embedding(8, 6, dtype=D)

    def run(at: Tensor, w: Tensor) -> Tensor:
        return deep(table(at), w) @ table.weight.t()

    return Wrapped(run, table=table), (torch.arange(5), leaf(6, 6))


PROGRAMS = (
    *(zero_rows, scalars, not_contiguous, expanded, complex_numbers, half_precisions),
    *(aliased_outputs, integers_out, one_argument_twice, an_argument_without_use),
    *(
        dataclass_out,
        tied_weights,
    ),
)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda m: m.__name__)
def test_a_step_is_that_of_eager(make: Callable[[], Made]) -> None:
    check(make)


def test_autocast_is_near_eager() -> None:
    """AOTAutograd casts in other places than eager does."""
    check(autocast, 3e-2, 3e-2)


def test_outputs_that_alias_in_eager_alias_compiled() -> None:
    run, args = aliased_outputs()
    backend = fxremat.backend("min", inner="eager")
    h, flat, *_ = torch.compile(run, backend=backend, fullgraph=True)(*args)
    assert flat.data_ptr() == h.data_ptr()
    with torch.no_grad():
        h.zero_()
        assert float(flat.abs().sum()) == 0
