"""Random ops replayed and overwritten inputs copied, so that what reads them can run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fxremat
from fxremat.plans.plan import Plan

pytestmark = pytest.mark.filterwarnings("ignore:no plan found within")

Program = Callable[..., Tensor]
WIDTH = 32


@torch.library.custom_op("fxremat_tests::shake", mutates_args=())
def shake(x: Tensor) -> Tensor:
    """A custom op that draws random numbers and does not say so."""
    return x + torch.rand_like(x)


@shake.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


shake.register_autograd(lambda ctx, grad: grad)


def attention(h: Tensor) -> Tensor:
    q = h.view(1, 4, -1, WIDTH)
    return functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5).view_as(h)


RANDOM: dict[str, Program] = {
    "dropout": lambda h: functional.dropout(h, 0.4),
    "rand_like": lambda h: h * torch.rand_like(h),
    "randn": lambda h: h * torch.randn(h.shape, dtype=h.dtype),
    "bernoulli": lambda h: h * torch.bernoulli(h.sigmoid()),
    "in_place": lambda h: h * torch.empty_like(h).uniform_(0.5, 1.5),
    "rrelu": lambda h: functional.rrelu(h, training=True),
    "alpha_dropout": lambda h: functional.alpha_dropout(h, 0.3),
    "randperm": lambda h: h[torch.randperm(h.shape[0])],
    "randint": lambda h: h * torch.randint(1, 5, (1, WIDTH)),
    "attention": attention,
    "undeclared": lambda h: shake(h).sin(),
}


REPLAYED = {"dropout", "rand_like", "bernoulli", "attention", "undeclared"}


def repeated(draw: Program) -> Program:
    """Three layers with a random op each."""

    def program(x: Tensor, w: Tensor) -> Tensor:
        h = x
        for _ in range(3):
            h = draw((h @ w).tanh()).exp()
        return h.sum()

    return program


def step(program: Program, args: list[Tensor]) -> list[Tensor]:
    """Loss, gradients, arguments and the next random number."""
    torch.manual_seed(3)
    loss = program(*args)
    loss.backward()
    grads = [a.grad for a in args if a.grad is not None]
    return [loss.detach(), *grads, *(a.detach() for a in args), torch.rand(3)]


def compiled(
    program: Program, args: list[Tensor], budget: object, **options: Any
) -> tuple[list[Tensor], Plan]:
    """The same of the compiled program, and its plan."""
    torch.compiler.reset()
    backend = fxremat.backend(budget, inner="eager", on_infeasible="closest", **options)
    found = step(torch.compile(program, backend=backend, fullgraph=True), args)
    (plan,) = backend.plans
    return found, plan


def leaf(*shape: int) -> Tensor:
    return (0.3 * torch.randn(shape, dtype=torch.float64)).requires_grad_()


@pytest.mark.parametrize("name", RANDOM)
def test_a_random_op_draws_the_same_again(name: str) -> None:
    """At the least peak random ops run again; loss, gradients and the stream stay eager's."""

    def args() -> list[Tensor]:
        torch.manual_seed(0)
        return [leaf(256, WIDTH), leaf(WIDTH, WIDTH)]

    program = repeated(RANDOM[name])
    expected = step(program, args())
    replayed = False
    for budget in (0.5, "min"):
        found, plan = compiled(program, args(), budget)
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
        states = [s.name for s in plan.saved if s.name.endswith("_rng")]
        assert {s.removesuffix("_rng") for s in states} <= set(plan.recomputed)
        replayed = replayed or bool(states)
    assert replayed or name not in REPLAYED


@torch.library.custom_op("fxremat_tests::noise", mutates_args=())
def noise(rows: int) -> Tensor:
    """Takes no tensor, so that it cannot be told which generator it draws from."""
    return torch.rand(rows, WIDTH, dtype=torch.float64)


@noise.register_fake
def _(rows: int) -> Tensor:
    return torch.empty(rows, WIDTH, dtype=torch.float64)


def test_a_custom_op_whose_draw_cannot_be_replayed_runs_once() -> None:
    def args() -> list[Tensor]:
        torch.manual_seed(0)
        return [leaf(256, WIDTH), leaf(WIDTH, WIDTH)]

    program = repeated(lambda h: (h * noise(h.shape[0])).sin())
    found, plan = compiled(program, args(), "min")
    assert not [n for n in plan.recomputed if n.startswith("noise")]
    torch.testing.assert_close(found, step(program, args()))
    found, plan = compiled(program, args(), "min", policy={"fxremat_tests.noise": "recompute"})
    assert [n for n in plan.recomputed if n.startswith("noise")]  # at the user's own risk


class Kept(torch.autograd.Function):
    """The forward draws what only the backward reads."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x, torch.rand_like(x))
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, drawn = ctx.saved_tensors
        made: Tensor = grad * drawn * x.cos()
        return made


class Shaken(torch.autograd.Function):
    """The backward draws random numbers that do not depend on the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        made: Tensor = grad * torch.rand_like(x) * torch.bernoulli(x.sigmoid()) * x.cos()
        return made


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
@pytest.mark.parametrize("kind", [Shaken, Kept])
def test_a_draw_of_the_backward_or_for_it_happens_where_eager_has_it(kind: Any) -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(3):
            x = functional.dropout(kind.apply(x @ w), 0.2)
        return x.sum()

    def run(used: Program) -> list[Tensor]:
        torch.manual_seed(0)
        x, w = leaf(64, WIDTH), leaf(WIDTH, WIDTH)
        loss = used(x, w)
        between = torch.rand(3)
        loss.backward()
        assert x.grad is not None
        assert w.grad is not None
        return [loss.detach(), between, x.grad, w.grad, torch.rand(3)]

    expected = run(program)
    for budget in (1.0, "min"):
        torch.compiler.reset()
        backend = fxremat.backend(budget, inner="eager")
        found = run(torch.compile(program, backend=backend, fullgraph=True))
        torch.testing.assert_close(found, expected)


def test_a_draw_from_a_generator_of_its_own_is_saved() -> None:
    own = torch.Generator()

    def program(x: Tensor, w: Tensor) -> Tensor:
        h = x
        for _ in range(3):
            h = ((h @ w).tanh() * torch.rand(h.shape, generator=own, dtype=h.dtype)).exp()
        return h.sum()

    def run(rematerialized: bool) -> list[Tensor]:
        torch.compiler.reset()
        torch.manual_seed(0)
        own.manual_seed(7)
        x, w = leaf(256, WIDTH), leaf(WIDTH, WIDTH)
        backend = fxremat.backend("min", inner="eager")
        used = torch.compile(program, backend=backend) if rematerialized else program
        used(x, w).backward()
        assert x.grad is not None
        assert w.grad is not None
        return [x.grad, w.grad, torch.rand(2, generator=own)]

    for mine, theirs in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(mine, theirs)


def widened(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    """What is made of a small buffer is large; then the buffer is overwritten."""
    h = x
    for _ in range(3):
        h = (h @ w) * (scale + x.detach()).sin()
        h = h.tanh()
    scale.mul_(0.5)
    return (h * scale).sum()


def through_a_view(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    h = (x @ w) * (scale.view(2, -1).t().reshape(1, -1) + x.detach()).exp().cos()
    scale.view(2, -1)[0].zero_()
    return h.tanh().sum()


class Scaled(torch.autograd.Function):
    """The backward reads an argument itself, which eager keeps as a clone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(scale.clone())
        return x * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (scale,) = ctx.saved_tensors
        return grad * scale, None


def read_by_the_backward(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    h: Tensor = Scaled.apply(x @ w, scale)  # type: ignore[no-untyped-call]
    scale.add_(1)
    return h.tanh().sum()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
@pytest.mark.parametrize("program", [widened, through_a_view, read_by_the_backward])
def test_an_overwritten_input_is_read_as_it_was(program: Program) -> None:
    def args() -> list[Tensor]:
        torch.manual_seed(0)
        scale = torch.rand(WIDTH, dtype=torch.float64)
        return [leaf(256, WIDTH), leaf(WIDTH, WIDTH), scale]

    expected = step(program, args())
    for budget in (1.0, 0.5, "min"):
        found, _ = compiled(program, args(), budget)
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_a_small_input_is_copied_rather_than_what_is_made_of_it_saved() -> None:
    torch.manual_seed(0)
    scale = torch.rand(WIDTH, dtype=torch.float64)
    _, plan = compiled(widened, [leaf(256, WIDTH), leaf(WIDTH, WIDTH), scale], "min")
    (kept,) = (s for s in plan.saved if s.name.endswith("_kept"))
    assert kept.nbytes == scale.nbytes
    assert any(name.startswith("sin") for name in plan.recomputed)


def test_nothing_is_taken_early_where_nothing_runs_again() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 8))
    torch.compiler.reset()
    backend = fxremat.backend(None, inner="eager")
    torch.compile(net, backend=backend)(torch.randn(4, 8)).sum().backward()
    (plan,) = backend.plans
    assert not [n for n in plan.forward if n.endswith(("_rng", "_kept"))]
