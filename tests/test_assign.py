"""One budget shared by the graphs of a step."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

import fxremat
from fxremat.base.errors import BudgetError
from fxremat.planning.assign import Call, Share, assign
from fxremat.planning.planner import Planner
from fxremat.problem.context import Context
from tests.problems import chain
from tests.test_pending_backwards import KIB, Broken

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:the step exceeds")

STEPS = """
import json, sys, torch, fxremat
from fxremat.base.measure import peak_bytes
from tests.test_pending_backwards import Broken, Repeated
kind, inner, budget = sys.argv[1:]
torch.manual_seed(0)
net, x = {"broken": Broken, "repeated": Repeated}[kind](depth=8), torch.randn(256, 32)
net(x).backward()
expected = [p.grad.clone() for p in net.parameters()]
backend = fxremat.backend(json.loads(budget), inner=inner)
run = net.compiled(backend)
def step():
    net.zero_grad()
    run(x).backward()
step()
step()
net.zero_grad()
measured = peak_bytes(lambda: run(x).backward())
near = [torch.allclose(p.grad, g, rtol=1e-3) for p, g in zip(net.parameters(), expected)]
same = all(torch.equal(p.grad, g) for p, g in zip(net.parameters(), expected))
print(json.dumps([measured, same, all(near), sum(len(p.recomputed) for p in backend.plans)]))
"""


def steps(kind: str, inner: str, budget: Any) -> list[Any]:
    """The measured peak of the third step, and whether gradients are eager's, or near them."""
    command = [sys.executable, "-W", "ignore", "-c", STEPS, kind, inner, json.dumps(budget)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("kind", "inner", "budget"),
    [
        ("broken", "eager", 330 * KIB),
        ("broken", "eager", 250 * KIB),
        ("broken", "inductor", 330 * KIB),
        ("repeated", "eager", 330 * KIB),
    ],
)
def test_the_third_step_keeps_the_budget(kind: str, inner: str, budget: int) -> None:
    measured, same, near, recomputed = steps(kind, inner, budget)
    assert measured <= budget
    assert recomputed
    assert same if inner == "eager" else near


def test_a_fraction_is_one_of_the_step() -> None:
    whole, *_ = steps("broken", "eager", None)
    measured, same, _, _ = steps("broken", "eager", 0.5)
    assert measured <= 0.5 * whole
    assert measured > 0.4 * whole  # the first graph is not held to half of its own baseline
    assert same


def wider() -> Broken:
    """The second graph takes more than the first, and no more than a budget that both share."""
    net = Broken(depth=4)
    net.second = nn.Sequential(nn.Linear(32, 128), *Broken._stack(6, 128))
    return net


def trained(backend: Any, net: nn.Module) -> Any:
    """The compiled module, after a step."""
    torch.compiler.reset()
    run = torch.compile(net, backend=backend)
    run(torch.randn(256, 32)).backward()
    return run


def test_what_cannot_be_is_an_error_that_says_what_would_do() -> None:
    torch.compiler.reset()
    free = fxremat.backend("min", inner="eager")
    trained(free, wider())
    budget = max(p.predicted_peak for p in free.plans) + KIB
    backend = fxremat.backend(budget, inner="eager")
    run = trained(backend, wider())
    with pytest.raises(BudgetError, match="the 2 graphs of the step") as caught:
        run(torch.randn(256, 32)).backward()
    assert caught.value.asked == budget
    assert caught.value.least is not None
    run = trained(fxremat.backend(caught.value.least, inner="eager"), wider())
    run(torch.randn(256, 32)).backward()  # the step is planned again, and no error is raised


def test_by_hand() -> None:
    """Two chains: what the first saves is room that the second lacks."""
    planner = Planner(Context(chain(), {}), "toy")
    free = planner.solver.baseline.peak
    calls = [Call(0, 0), Call(1, 0)]
    most = sum(planner.plan(planner.solver.baseline, None).saved[i].nbytes for i in range(1))
    assert most > 0
    shares, _ = assign(calls, [planner.context] * 2, 10 * free)
    assert shares is not None
    assert shares[1] == Share(10 * free - (shares[0].saved or 0), None)
    none, needed = assign(calls, [planner.context] * 2, 1)
    assert none is None
    again, _ = assign(calls, [planner.context] * 2, needed)
    assert again is not None
