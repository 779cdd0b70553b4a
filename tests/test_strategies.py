"""What people do by hand, as schedules of the same problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import fxremat
from fxremat.base.errors import OptionError
from fxremat.planning.strategies import NAMES, blocks, strategy
from fxremat.problem.replay import replay
from fxremat.problem.types import Phase
from tests.steps import blocks as small
from tests.steps import half


def saved(name: str, k: int = 1) -> list[str]:
    """The values that a strategy saves, by the number of elements in their text."""
    context = half().context
    point = strategy(context, name, k)
    line = replay(context.problem, point.schedule)
    return [context.problem.values[v].name for v in line.saved]


def test_blocks_are_the_members_of_the_list_that_works_most() -> None:
    found = blocks(half().context)
    assert set(found.values()) == {0, 1, 2, 3}
    modules = {half().context.origin(half().context.problem.ops[o].name).module for o in found}
    assert {m.split(".")[0] for m in modules} in ({"layers"}, {"mixes"})


def test_nested_lists_give_the_list_with_more_members() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stages = nn.Sequential(
                nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(5)))
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.stages(x).sum()
            return made

    plan = fxremat.plan(Deep(), torch.randn(4, 8), device="h100", inner="eager")
    assert set(blocks(plan.context).values()) == {0, 1, 2, 3, 4}


def test_none_recomputes_nothing() -> None:
    assert strategy(half().context, "none").seconds == 0.0


def test_full_saves_what_goes_into_blocks_only() -> None:
    """Inside a block nothing is kept; what is read outside of it is."""
    inside = blocks(half().context)
    context = half().context
    problem = context.problem
    kept = {context.value_index[name] for name in saved("full")}
    for value in kept:
        block = inside.get(problem.producer[value])
        readers = {
            inside.get(o)
            for o in problem.forward
            if value in problem.ops[o].inputs and problem.ops[o].phase is Phase.FORWARD
        }
        assert block is None or readers - {block}, problem.values[value].name


def test_longer_stretches_save_less_and_every_one_is_full() -> None:
    context = half().context
    sizes = []
    for k in (1, 2, 4):
        line = replay(context.problem, strategy(context, "every", k).schedule)
        sizes.append(sum(context.problem.values[v].nbytes for v in line.saved))
    assert sizes == sorted(sizes, reverse=True)
    assert strategy(context, "every", 1) == strategy(context, "full")
    assert strategy(context, "every", 2) == strategy(context, "sqrt")  # of four blocks


def test_selective_keeps_products_and_recomputes_no_product() -> None:
    context = half().context
    point = strategy(context, "selective")
    again = {
        context.problem.ops[o].name
        for o in point.schedule
        if context.problem.ops[o].phase is Phase.FORWARD
    }
    assert again
    assert not {n for n in again if context.origin(n).op in ("aten.mm", "aten.addmm")}


def test_unknown_names_and_models_without_blocks_are_refused() -> None:
    with pytest.raises(OptionError, match="'half': not one of 'none'"):
        strategy(half().context, "half")
    plan = fxremat.plan(nn.Linear(4, 4), torch.randn(2, 4), device="h100", inner="eager")
    with pytest.raises(OptionError, match="no blocks were found"):
        strategy(plan.context, "full")


@pytest.mark.parametrize("name", [*NAMES, "auto"])
def test_every_strategy_trains_as_eager_does(name: str) -> None:
    model, batch = small()
    model.double()

    def grads(run: Callable[..., Any]) -> list[torch.Tensor]:
        model.zero_grad()
        run(batch.double()).backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    more = {"k": 2} if name == "every" else {}
    backend = fxremat.backend(strategy=name, inner="eager", **more)
    torch.testing.assert_close(
        grads(torch.compile(model, backend=backend)), grads(model), rtol=0, atol=0
    )
    (plan,) = backend.plans
    assert plan.budget is None
    assert bool(plan.recomputed) == (name != "none")


def test_auto_is_the_knee_of_the_frontier() -> None:
    model, batch = small()
    plan = fxremat.plan(model, batch, strategy="auto", device="h100", inner="eager", effort=0)
    assert (
        plan.predicted_peak
        == fxremat.frontier(
            model, batch, device="h100", inner="eager", effort=0
        ).knee.predicted_peak
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0.5, "strategy": "full"}, "budget and strategy were given"),
        ({"strategy": "ful"}, "did you mean 'full'"),
        ({"strategy": "full", "k": 2}, "only strategy='every' takes k"),
        ({"strategy": "every", "k": 0}, "k=0: not a number of blocks"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fxremat.backend(options.pop("budget", None), **options)
