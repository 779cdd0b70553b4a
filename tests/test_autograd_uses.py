"""Ways in which a training loop uses autograd: steps of other sizes, several forwards, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo import compiled_autograd
from torch.nn import functional

import fxremat
from tests.odd import D, Made, accumulate, deep, leaf, outcome

pytestmark = [
    pytest.mark.filterwarnings("ignore:no plan found within"),
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated"),
]


@pytest.mark.parametrize("dynamic", [True, None])
def test_sizes_change_from_step_to_step(dynamic: bool | None) -> None:
    """The plan for the sizes seen first is valid for others; where guards fail, it is made anew."""
    w = leaf(6, 6)
    backend = fxremat.backend(0.6, inner="eager", on_infeasible="closest")
    torch.compiler.reset()

    def program(x: Tensor, w: Tensor) -> Tensor:
        return functional.dropout(deep(x, w), 0.2).sum()

    run = torch.compile(program, backend=backend, dynamic=dynamic)
    for rows in (8, 12, 5, 1, 8):
        found: list[list[Tensor]] = []
        for used in (run, program):
            torch.manual_seed(rows)
            x = leaf(rows, 6)
            w.grad = None
            used(x, w).backward()
            assert x.grad is not None
            assert w.grad is not None
            found.append([x.grad, w.grad.clone()])
        torch.testing.assert_close(found[0], found[1])
    assert len(backend.plans) <= 3


def test_gradients_add_up_over_two_forwards_and_evaluation_between() -> None:
    def train(rematerialized: bool) -> list[Tensor]:
        torch.compiler.reset()
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), nn.GELU(), nn.Linear(6, 6)).double()
        backend = fxremat.backend("min", inner="eager")
        run = torch.compile(net, backend=backend) if rematerialized else net
        first = run(torch.randn(4, 6, dtype=D)).sin().sum()
        second = run(torch.randn(4, 6, dtype=D)).cos().sum()
        net.eval()
        with torch.no_grad():
            seen = run(torch.ones(4, 6, dtype=D))
        net.train()
        second.backward()
        first.backward()
        return [seen, *(p.grad for p in net.parameters() if p.grad is not None)]

    torch.testing.assert_close(train(rematerialized=True), train(rematerialized=False))


def test_one_model_compiled_with_two_budgets() -> None:
    torch.compiler.reset()
    net, x = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)), torch.randn(4, 6)
    found: list[list[Any]] = []
    for backend in (fxremat.backend(1.0, inner="eager"), fxremat.backend("min", inner="eager")):
        net.zero_grad()
        torch.compile(net, backend=backend)(x).sin().sum().backward()
        assert len(backend.plans) == 1
        found.append([p.grad for p in net.parameters()])
    torch.testing.assert_close(found[0], found[1])


def test_two_backwards_with_the_graph_retained() -> None:
    def grads(program: Callable[..., Tensor]) -> list[Tensor | None]:
        torch.manual_seed(0)
        x, w = leaf(4, 6), leaf(6, 6)
        loss = program(x, w)
        loss.backward(retain_graph=True)
        loss.backward()
        return [x.grad, w.grad]

    def program(x: Tensor, w: Tensor) -> Tensor:
        return functional.dropout(deep(x, w), 0.4).exp().sum()

    torch.compiler.reset()
    backend = fxremat.backend("min", inner="eager")
    found = grads(torch.compile(program, backend=backend, fullgraph=True))
    torch.testing.assert_close(found, grads(program))


def test_a_gradient_of_a_gradient_is_refused() -> None:
    torch.compiler.reset()
    x, w = leaf(4, 6), leaf(6, 6)
    run = torch.compile(lambda x, w: deep(x, w).sum(), backend=fxremat.backend(0.8, inner="eager"))
    (grad,) = torch.autograd.grad(run(x, w), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        grad.sum().backward()


def test_recomputing_what_happens_once_is_refused() -> None:
    def program(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
        h = (x @ w).exp()
        accumulate(h.detach(), total)
        return (fxremat.recompute(total) * h).sin().sum()

    torch.compiler.reset()
    backend = fxremat.backend(None, inner="eager")
    run = torch.compile(program, backend=backend, fullgraph=True)
    with pytest.raises(Exception, match="raised") as caught:
        run(leaf(4, 6), leaf(6, 6), torch.zeros(6, dtype=D))
    error = caught.value.inner_exception  # type: ignore[attr-defined]
    assert isinstance(error, fxremat.InfeasibleError)
    assert any("fxremat.recompute() says so" in step for step in error.path)


def sizes_by_mask(x: Tensor, w: Tensor) -> Tensor:
    h = deep(x, w)
    return h[h > 0].exp().sin().sum() + torch.masked_select(h, h < 0).cos().sum() + h.sum()


def sizes_by_item(x: Tensor, w: Tensor) -> Tensor:
    h = deep(x, w)
    count = int(h.abs().sum().int().clamp(1, 3).item())
    torch._check(count >= 0)
    torch._check(count <= 3)
    return h[:count].exp().sin().sum()


@pytest.mark.parametrize("program", [sizes_by_mask, sizes_by_item])
def test_sizes_that_depend_on_data(program: Callable[[Tensor, Tensor], Tensor]) -> None:
    """They count with their bounds, so that the prediction is an upper one."""
    settings = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}

    def make() -> Made:
        return program, (leaf(4, 6), leaf(6, 6))

    expected = outcome(make, None)
    for budget in (None, "min"):
        backend = fxremat.backend(budget, inner="eager")
        with torch._dynamo.config.patch(settings):
            found = outcome(make, backend)
        assert len(backend.plans) == 1
        torch.testing.assert_close(found, expected)


class Hooked(nn.Module):
    """Layers between which a hook changes the gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            x = torch.tanh(torch.exp(-layer(x).square()))
            if index == 2:
                x.register_hook(lambda grad: grad * 2)
        return x.square().mean()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("inner", ["eager", "inductor"])
def test_a_tensor_hook_under_compiled_autograd(inner: str) -> None:
    torch.manual_seed(0)
    batch = torch.randn(64, 16)
    net = Hooked()
    net(batch).backward()
    expected = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    backend = fxremat.backend(0.6, inner=inner)
    with compiled_autograd._enable(torch.compile(backend="eager")):
        torch.compile(net, backend=backend)(batch).backward()
    assert backend.plans[0].recomputed
    found = [p.grad for p in net.parameters()]
    torch.testing.assert_close(found, expected, rtol=0.0 if inner == "eager" else 1e-5, atol=1e-9)
