"""Writes, functions, ops and graphs of the user's own; see :mod:`tests.odd`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.odd import D, Made, Wrapped, accumulate, check, deep, leaf

pytestmark = [
    pytest.mark.filterwarnings("ignore:no plan found within"),
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated"),
]


# Mutation.


class Average(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros(6, dtype=D))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        h = (x @ w).exp() * self.mean.cos()
        self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        self.count += 1
        return (h - self.mean).tanh() * self.mean.exp() / self.count


def running_average() -> Made:
    return Average(), (leaf(4, 6), leaf(6, 6))


def two_batch_norms_in_one() -> Made:
    norm = nn.BatchNorm1d(6, dtype=D)
    return Wrapped(lambda x, w: norm(norm(x @ w).exp()).sin(), norm=norm), (leaf(8, 6), leaf(6, 6))


def views_of_one_tensor_overwritten() -> Made:
    base = torch.rand(10, 6, dtype=D)

    def run(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        h = (a.sin().exp() @ w).sin()
        b.mul_(0.5)
        g = ((a + 1).sin() @ w).exp()
        a.add_(g.detach())
        return (h * g).sin() + b.sum()

    return run, (base[:6], base[4:], leaf(6, 6))


def an_overwritten_argument_returned() -> Made:
    def run(x: Tensor, w: Tensor, scale: Tensor) -> Any:
        h = deep(x, w) * scale.exp()
        scale.sub_(0.5)
        return h, scale

    return run, (leaf(4, 6), leaf(6, 6), torch.rand(6, dtype=D))


def a_list_filled_by_mask() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        h = deep(x, w)
        out = torch.zeros_like(h)
        out[h > 0] = h[h > 0].exp()
        out[:, 1] = h[:, 0].sin()
        return out.cumsum(0)

    return run, (leaf(4, 6), leaf(6, 6))


# Functions, ops and graphs of the user's own.


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: float) -> tuple[Tensor, Tensor]:
        kept = x.abs() < limit
        ctx.mark_non_differentiable(kept)
        ctx.save_for_backward(x, kept)
        ctx.limit = limit
        return x.clamp(-limit, limit), kept

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, None]:
        x, kept = ctx.saved_tensors
        return grad * kept + 0.01 * x.sign(), None


def function_of_ones_own() -> Made:
    def run(x: Tensor, w: Tensor) -> Any:
        a, kept = Clipped.apply((x @ w).exp(), 1.5)  # type: ignore[no-untyped-call]
        b, _ = Clipped.apply(a * 2, 1.0)  # type: ignore[no-untyped-call]
        return b.sin() @ w, kept

    return run, (leaf(4, 6), leaf(6, 6))


@torch.library.custom_op("fxremat_tests::split", mutates_args=())
def split(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[:, :3].sin(), x[:, 3:].cos()


@split.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0], 3), x.new_empty(x.shape[0], x.shape[1] - 3)


def _split_backward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return torch.cat([a * x[:, :3].cos(), -b * x[:, 3:].sin()], 1)


split.register_autograd(
    _split_backward,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


def ops_of_ones_own() -> Made:
    def run(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
        a, b = split((x @ w).exp())
        accumulate(x.detach(), total)
        return torch.cat([b, a], 1).tanh() * total.cos()

    return run, (leaf(4, 6), leaf(6, 6), torch.zeros(6, dtype=D))


def branches() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        h = deep(x, w)
        y: Tensor = torch.cond(
            h.sum() > 0, lambda a, b: (a @ b).sin(), lambda a, b: (a * 2) @ b.cos(), (h, w)
        )
        return y.exp()

    return run, (leaf(4, 6), leaf(6, 6))


@torch.compiler.nested_compile_region
def gate(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sigmoid() * x


def nested_regions() -> Made:
    return lambda x, w: gate(gate(gate(x, w).exp(), w), w), (leaf(4, 6), leaf(6, 6))


def nested_checkpoints() -> Made:
    def inner(h: Tensor, w: Tensor) -> Tensor:
        return functional.dropout((h @ w).exp(), 0.3).sin()

    def outer(h: Tensor, w: Tensor) -> Tensor:
        kept: Tensor = checkpoint(inner, h, w, use_reentrant=False)
        return kept.tanh() @ w

    def run(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(2):
            x = checkpoint(outer, x, w, use_reentrant=False)
        return x

    return run, (leaf(4, 6), leaf(6, 6))


def recurrent() -> Made:
    cell = nn.GRUCell(6, 6, dtype=D)

    def run(x: Tensor, w: Tensor) -> Tensor:
        h = torch.zeros(4, 6, dtype=D)
        for _ in range(4):
            h = cell(x @ w, h)
        return h

    return Wrapped(run, cell=cell), (leaf(4, 6), leaf(6, 6))


def attention() -> Made:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True, dtype=D)
    return Wrapped(lambda x: layer(layer(x)), layer=layer), (leaf(2, 5, 8),)


def gradients_inside() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        slope = torch.func.grad(lambda a: (a @ w).tanh().sum())(x)
        made: Tensor = (torch.func.vmap(lambda row: (row @ w).exp())(x) * slope).sin()
        return made

    return run, (leaf(4, 6), leaf(6, 6))


def without_gradients_inside() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        with torch.no_grad():
            scale = deep(x, w).abs().mean()
        return deep(x, w) / scale + x.detach().exp()

    return run, (leaf(4, 6), leaf(6, 6))


def linear_algebra() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        gram = w @ w.t() + 3 * torch.eye(6, dtype=D)
        factor = torch.linalg.cholesky(gram)
        made: Tensor = torch.linalg.solve_triangular(factor, x.t(), upper=False) @ x
        return made + torch.logdet(gram)

    return run, (leaf(4, 6), leaf(6, 6))


def losses() -> Made:
    def run(x: Tensor, w: Tensor, at: Tensor) -> Tensor:
        h = deep(x, w)
        a = functional.cross_entropy(h, at, ignore_index=2, label_smoothing=0.1)
        return (
            a
            + functional.huber_loss(h, x)
            + functional.kl_div(h.log_softmax(1), x.softmax(1), reduction="batchmean")
        )

    return run, (leaf(4, 6), leaf(6, 6), torch.tensor([1, 2, 0, 5]))


PROGRAMS = (
    *(running_average, two_batch_norms_in_one, views_of_one_tensor_overwritten),
    *(an_overwritten_argument_returned, a_list_filled_by_mask, function_of_ones_own),
    *(ops_of_ones_own, branches, nested_regions, nested_checkpoints, recurrent, attention),
    *(
        gradients_inside,
        without_gradients_inside,
        linear_algebra,
        losses,
    ),
)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda m: m.__name__)
def test_a_step_is_that_of_eager(make: Callable[[], Made]) -> None:
    check(make)
