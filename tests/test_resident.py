"""What a step holds besides: compared with real optimizers, whose tensors are counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from fxremat.base.errors import OptionError
from fxremat.costs.model_states import resident
from fxremat.problem.context import Resident

OPTIMIZERS: dict[str, Any] = {
    "SGD": {},
    "momentum": {"momentum": 0.9},
    "Adam": {},
    "AdamW": {"amsgrad": True},
    "Adagrad": {},
    "Adafactor": {},
    "RMSprop": {"centered": True, "momentum": 0.9},
}


def module() -> nn.Module:
    net = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.Linear(64, 8))
    net[2].weight.requires_grad_(False)
    return net


def maker(name: str) -> Any:
    kind = torch.optim.SGD if name == "momentum" else getattr(torch.optim, name)
    return lambda parameters: kind(parameters, lr=0.1, **OPTIMIZERS[name])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_is_that_of_the_optimizer(name: str) -> None:
    net = module()
    real = maker(name)([p for p in net.parameters() if p.requires_grad])
    net(torch.randn(4, 32)).sum().backward()
    real.step()
    state = [t for t in pytree.tree_leaves(list(real.state.values())) if torch.is_tensor(t)]
    found = resident(net, torch.randn(4, 32), maker(name))
    assert found.optimizer == sum(t.untyped_storage().nbytes() for t in state)
    assert found.gradients == sum(p.grad.nbytes for p in net.parameters() if p.grad is not None)
    assert found.parameters == sum(p.nbytes for p in net.parameters())
    assert found.buffers == sum(b.nbytes for b in net.buffers())
    assert found.inputs == 4 * 32 * 4
    assert found.optimizer_name == type(real).__name__


def test_names_classes_and_callables() -> None:
    by_name = resident(module(), (), "adamw")
    assert by_name == resident(module(), (), torch.optim.AdamW)
    assert by_name == resident(module(), (), lambda p: torch.optim.AdamW(p))
    assert resident(module(), ()).optimizer == 0


def test_all_at_once_takes_more_than_one_by_one() -> None:
    """``foreach`` has temporaries of all parameters, the loop those of one."""
    net = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(8)))
    loop = resident(net, (), "AdamW").optimizer_peak
    together = resident(net, (), "AdamW", foreach=True).optimizer_peak
    one = 64 * 64 * 4
    assert one <= loop <= 4 * one
    assert together >= 8 * one


def test_shared_storages_count_once_and_rounding_counts() -> None:
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    net[1].weight = net[0].weight
    assert resident(net, ()).parameters == 36
    assert resident(net, (), rounding=512).parameters == 512


def test_totals() -> None:
    held = Resident(100, 10, 1, 100, optimizer=200, optimizer_peak=50, optimizer_name="X")
    assert held.during == 311
    assert held.total(0) == 100 + 10 + 1 + 200 + 100 + 50  # the update holds most
    assert held.total(1000) == 1311
    kept = Resident(100, 10, 1, 100, accumulates=True)
    assert kept.during == 211
    assert "parameters 100 B" in str(held)
    assert "X 200 B" in str(held)


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ("Adamm", "did you mean 'Adam'"),
        (3, "a int is none"),
        (lambda parameters: 1 / 0, "cannot be tried out .*division by zero"),
    ],
)
def test_what_is_no_optimizer(optimizer: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        resident(module(), (), optimizer)


def test_nothing_to_train() -> None:
    with pytest.raises(OptionError, match="no parameters to train"):
        resident(nn.Tanh(), (), "SGD")
