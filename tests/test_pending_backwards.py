"""A budget in bytes holds for the step: what graphs hold that await their backward counts."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxremat
from fxremat.base.errors import BudgetError

# Dynamo looks at the gradient of what goes from one graph to the next.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")

KIB = 1024


class Broken(nn.Module):
    """Two stacks of layers with a graph break between them."""

    def __init__(self, depth: int = 4, width: int = 32) -> None:
        super().__init__()
        self.first = self._stack(depth, width)
        self.second = self._stack(depth, width)

    @staticmethod
    def _stack(depth: int, width: int) -> nn.Sequential:
        layers = (nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth))
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        torch._dynamo.graph_break()
        y: Tensor = self.second(h)
        return y.square().sum()

    def compiled(self, backend: Any) -> Any:
        """The step as a callable."""
        return torch.compile(self, backend=backend)


class Repeated(nn.Module):
    """One block of layers, compiled by itself and called again and again."""

    def __init__(self, depth: int = 8, width: int = 32) -> None:
        super().__init__()
        self.block: Any = Broken._stack(2, width)
        self.depth = depth // 2

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.depth):
            x = self.block(x)
        return x.square().sum()

    def compiled(self, backend: Any) -> Any:
        """The step as a callable; only the block is compiled."""
        self.block = torch.compile(self.block, backend=backend)
        return self


def grads(budget: object, inner: str = "eager", **options: Any) -> tuple[list[Tensor], Any]:
    torch.compiler.reset()
    torch.manual_seed(0)
    net, x = Broken(), torch.randn(256, 32)
    backend = fxremat.backend(budget, inner=inner, **options)
    run = net if budget == "none" else torch.compile(net, backend=backend)
    run(x).backward()
    return [p.grad for p in net.parameters() if p.grad is not None], backend


def test_what_the_first_graph_holds_is_taken_off_the_budget_of_the_second() -> None:
    """The first graph saves four results of 32 KiB, the last of which is its output."""
    torch.compiler.reset()
    _, free = grads(None)
    first, second = free.plans
    assert (first.reserved, second.reserved) == (0, 0)  # no budget in bytes, nothing is counted
    budget = 400 * KIB
    found, backend = grads(budget)
    first, second = backend.plans
    assert first.reserved == 0
    assert first.budget == budget
    assert second.reserved == 4 * 32 * KIB
    assert second.budget == budget - second.reserved
    assert second.predicted_peak <= second.budget
    expected, _ = grads(None)
    torch.testing.assert_close(found, expected)


def test_after_the_backward_nothing_is_held() -> None:
    _, backend = grads(400 * KIB)
    gc.collect()
    assert backend._pending.reserved() == 0


def test_a_step_that_cannot_keep_its_budget_says_by_how_much() -> None:
    """The first graph was planned when nobody knew of the second."""
    _, free = grads(None)
    peak = free.plans[0].predicted_peak
    with pytest.warns(UserWarning, match="graph 2 of the step needs"):
        grads(peak)


def test_a_graph_that_cannot_keep_the_budget_alone_is_an_error() -> None:
    with pytest.raises(Exception, match="no plan found within") as caught:
        grads(40 * KIB)
    assert isinstance(caught.value.inner_exception, BudgetError)  # type: ignore[attr-defined]


@pytest.mark.parametrize("inner", ["eager", "inductor"])
@pytest.mark.filterwarnings("default", "ignore:The .grad attribute")
def test_a_second_forward_before_the_backward_is_warned_of_once(inner: str) -> None:
    torch.compiler.reset()
    net = Broken._stack(4, 32)
    plain = fxremat.backend(None, inner=inner)
    torch.compile(net, backend=plain)(torch.randn(256, 32)).sum().backward()
    torch.compiler.reset()
    backend = fxremat.backend(plain.plans[0].predicted_peak + KIB, inner=inner)
    run = torch.compile(net, backend=backend)
    x = torch.randn(256, 32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(x).sum().backward()
        run(x).sum().backward()
    assert not [w for w in caught if "the step exceeds" in str(w.message)]
    with pytest.warns(UserWarning, match="the step exceeds its budget by"):
        both = run(x), run(x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        both = run(x), run(x)
    assert not [w for w in caught if "the step exceeds" in str(w.message)]
    (both[0] + both[1]).sum().backward()


def test_results_that_the_user_keeps_do_not_count_once_the_backward_has_run() -> None:
    torch.compiler.reset()
    backend = fxremat.backend("1 MiB", inner="eager")

    def program(w: Tensor) -> tuple[Tensor, Tensor]:
        h = w.sin().tanh()
        return (h * h).sum(), h

    run = torch.compile(program, backend=backend)
    kept = []
    for _ in range(3):
        loss, h = run(torch.randn(64, 64, requires_grad=True))
        assert backend._pending.reserved() > 0
        loss.backward()
        kept.append(h.detach())
        assert backend._pending.reserved() == 0
    assert len(kept) == 3


def test_one_backend_in_several_threads() -> None:
    torch.compiler.reset()
    run = torch.compile(
        lambda w: sum((w * i).sin().cos().square().sum() for i in range(8)),
        backend=fxremat.backend("1 GiB", inner="eager"),
    )
    run(torch.randn(4, 4, requires_grad=True)).backward()
    failed: list[BaseException] = []

    def work() -> None:
        x = torch.randn(4, 4, requires_grad=True)
        try:
            for _ in range(40):
                for loss in [run(x) for _ in range(4)]:
                    loss.backward()
        except BaseException as error:
            failed.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failed == []


def test_hooks_that_move_saved_tensors_are_left_alone() -> None:
    """What they have put elsewhere is not held here, and asking for it would bring it back."""
    torch.compiler.reset()
    backend = fxremat.backend("1 MiB", inner="eager")
    run = torch.compile(lambda w: w.sin().tanh().square().sum(), backend=backend)
    w, unpacked = torch.randn(64, 64, requires_grad=True), []

    def unpack(x: Tensor) -> Tensor:
        unpacked.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), unpack):
        loss = run(w)
    assert backend._pending.reserved() == 0
    assert unpacked == []
    loss.backward()
    assert unpacked
