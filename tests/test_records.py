"""Warm starts under Inductor: torch's caches give back the code, and the plan comes with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

import fxremat
from fxremat.backends import plan_cache
from fxremat.options import Options
from fxremat.planning.assign import ALONE, Room
from fxremat.plans.plan import Plan

INFINITE = '{"plan": "{}", "margin": Infinity}'
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with fresh_cache():
        yield tmp_path / "fxremat"


def fresh() -> nn.Module:
    """The same network each time, with nothing compiled."""
    torch.compiler.reset()
    torch.manual_seed(0)
    return nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(32, 32), nn.GELU())))


def step(budget: object) -> tuple[list[Tensor], Plan, dict[str, int]]:
    """Gradients of a step, its plan, and how often torch's caches were hit."""
    net = fresh()
    backend = fxremat.backend(budget)
    counters.clear()
    torch.compile(net, backend=backend)(torch.randn(256, 32)).square().sum().backward()
    (plan,) = backend.plans
    hits = {k: n for part in counters.values() for k, n in part.items() if k.endswith("_hit")}
    return [p.grad for p in net.parameters() if p.grad is not None], plan, hits


def test_a_warm_start_brings_the_plan_and_another_budget_is_none(folder: Path) -> None:
    grads, plan, hits = step(0.7)
    assert hits.get("autograd_cache_hit", 0) == 0
    assert plan.recomputed
    again, same, hits = step(0.7)
    assert hits["autograd_cache_hit"] == 1
    assert same == plan
    torch.testing.assert_close(again, grads)
    other, all_saved, hits = step(1.0)
    assert hits.get("autograd_cache_hit", 0) == 0
    assert not all_saved.recomputed
    torch.testing.assert_close(other, grads)
    for path in folder.glob("plan-*"):
        path.unlink()
    found, anew, hits = step(0.7)  # code without a record is compiled once more
    assert anew == plan
    torch.testing.assert_close(found, grads)
    assert step(0.7)[2]["autograd_cache_hit"] == 1


def test_a_warm_start_with_a_budget_in_bytes_is_watched_as_a_cold_one() -> None:
    _, plan, _ = step("4 MiB")
    _, same, hits = step("4 MiB")
    assert hits["autograd_cache_hit"] == 1
    assert same == plan
    net = fresh()
    backend = fxremat.backend("4 MiB")
    loss = torch.compile(net, backend=backend)(torch.randn(256, 32)).square().sum()
    assert backend._pending.reserved() >= plan.saved_bytes > 0
    loss.backward()
    assert backend._pending.reserved() == 0


def test_a_key_holds_all_that_a_plan_depends_on() -> None:
    def captured(width: int, module: str = "") -> fx.GraphModule:
        graph = fx.Graph()
        node = graph.call_function(torch.narrow, (graph.placeholder("x"), 0, 0, width))
        node.meta["nn_module_stack"] = {"m": (f"L['self'].{module}", nn.Module)}
        graph.output(node)
        return fx.GraphModule({}, graph)

    x = torch.ones(4, requires_grad=True)
    plain = Options.parse(0.5)
    keys = [
        plan_cache.key_of(captured(2), (x,), plain, ALONE),
        plan_cache.key_of(captured(3), (x,), plain, ALONE),
        plan_cache.key_of(captured(2), (torch.ones(4),), plain, ALONE),
        plan_cache.key_of(captured(2), (x.double(),), plain, ALONE),
        plan_cache.key_of(captured(2), (x,), Options.parse(0.4), ALONE),
        plan_cache.key_of(captured(2), (x,), Options.parse(0.5, policy={"aten.mm": "save"}), ALONE),
        plan_cache.key_of(captured(2), (x,), Options.parse(0.5, device="a100"), ALONE),
        plan_cache.key_of(captured(2), (x,), Options.parse("1 MiB"), ALONE),
        plan_cache.key_of(captured(2), (x,), Options.parse("1 MiB"), Room(7)),
        plan_cache.key_of(captured(2, module="a"), (x,), plain, ALONE),
        plan_cache.key_of(captured(2, module="b"), (x,), plain, ALONE),
    ]
    with torch.no_grad():
        keys.append(plan_cache.key_of(captured(2), (x,), plain, ALONE))
    assert len(set(keys)) == len(keys)
    assert (
        plan_cache.key_of(captured(2), (x,), plain, Room(5)) == keys[0]
    )  # a fraction is of one graph
    assert (
        plan_cache.key_of(captured(2), (x,), Options.parse(0.5, policy=lambda n: None), ALONE)
        is None
    )


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"plan": 3, "margin": 0}', '{"plan": "{}"}', INFINITE]
)
def test_a_record_that_cannot_be_read_counts_as_none(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "plan-abc.json").write_text(text)
    assert plan_cache.load("abc") is None


def test_a_graph_without_a_backward_has_no_plan_though_a_record_is_there() -> None:
    step(0.7)
    net = fresh()
    backend = fxremat.backend(0.7)
    with torch.no_grad():
        torch.compile(net, backend=backend)(torch.randn(256, 32))
    assert backend.plans == []


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return -grad


def test_a_forward_without_any_op() -> None:
    torch.compiler.reset()
    x = torch.ones(4, requires_grad=True)
    torch.compile(Reversed.apply, backend=fxremat.backend())(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [-1.0] * 4
