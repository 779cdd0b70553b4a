from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxremat.base.errors import InfeasibleError, OptionError
from fxremat.problem.types import Kind, Phase, Problem
from fxremat.solver.mincut.cutter import Cut, Cutter, certify, minimum_cut
from fxremat.solver.mincut.network import Prices
from tests import problems
from tests.strategies import prices_for
from tests.strategies import problems as random_problems


@pytest.mark.parametrize("solver", ["scipy", "networkx"])
@pytest.mark.parametrize(("case", "saved", "recomputed", "value"), problems.BEST)
def test_best_cut(
    case: Callable[[], Problem], saved: set[str], recomputed: set[str], value: float, solver: str
) -> None:
    problem = case()
    cut = minimum_cut(problem, problems.flat_prices(problem), solver=solver)
    assert problems.names(problem, cut.saved) == saved
    assert problems.op_names(problem, cut.recomputed) == recomputed
    assert cut.value == value


@pytest.mark.parametrize("solver", ["scipy", "networkx"])
def test_ties_recompute_least(solver: str) -> None:
    problem = problems.chain()
    # c: 12 either way (save 12 or 1 + 2 + 9 with a and b); a and b are recomputed for 3 or saved
    # for 3. Everything ties, so everything is saved.
    prices = Prices((1.0, 2.0, 9.0, *(0.0,) * 4), (0.0, 1.0, 2.0, 9.0, 0.0, 0.0, 0.0, 0.0))
    cut = minimum_cut(problem, prices, solver=solver)
    assert problems.names(problem, cut.saved) == {"a", "b", "c"}
    assert cut.recomputed == frozenset()
    assert cut.value == 12.0


def test_free_choices_save() -> None:
    problem = problems.chain()
    nothing = Prices((0.0,) * len(problem.ops), (0.0,) * len(problem.values))
    cut = minimum_cut(problem, nothing)
    assert problems.names(problem, cut.saved) == {"a", "b", "c"}
    assert cut == Cut(cut.saved, frozenset(), 0.0, 0.0)


def test_conflict_is_told_step_by_step() -> None:
    problem = problems.conflict()
    path = (
        "s_back: reads s in the backward",
        "s: may not be saved (symbolic float)",
        "fs: reads m when recomputed",
        "m: may not be saved (opaque)",
        "drop: may not be recomputed (random)",
    )
    message = (
        "the backward needs s, but the rules leave no way to keep or rebuild it: "
        f"{'; '.join(path)}. Relax a rule or a pin on this path"
    )
    with pytest.raises(InfeasibleError, match=f"^{re.escape(message)}$") as caught:
        Cutter(problem)
    assert caught.value.path == path


def test_conflict_over_an_input() -> None:
    draft = problems.Draft().value("x", 8, kind=Kind.INPUT, unsaveable="overwritten")
    draft.value("d", 8).op("d = back x", 1, Phase.BACKWARD)
    with pytest.raises(InfeasibleError) as caught:
        Cutter(draft.done())
    assert caught.value.path == (
        "back: reads x in the backward",
        "x: may not be saved (overwritten)",
    )


def test_unknown_solver() -> None:
    problem = problems.chain()
    message = "there is no solver 'scip'; take one of scipy, networkx"
    with pytest.raises(OptionError, match=message):
        minimum_cut(problem, problems.flat_prices(problem), solver="scip")


def test_value_is_not_rounded() -> None:
    problem = problems.chain()
    third = 1 / 3
    prices = Prices((third,) * 7, (0.0, 0.1, 0.2, 7.0, 0.0, 0.0, 0.0, 0.0))
    cut = minimum_cut(problem, prices)
    assert cut.value == math.fsum((0.1, 0.2, third))


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-9, 2.0**-20, 1.0, 1e9, 1e300])
def test_any_unit_of_time(scale: float) -> None:
    problem = problems.diamond()
    flat = problems.flat_prices(problem)
    prices = Prices(tuple(p * scale for p in flat.recompute), tuple(p * scale for p in flat.save))
    cut = minimum_cut(problem, prices)
    assert problems.names(problem, cut.saved) == {"a"}
    assert problems.op_names(problem, cut.recomputed) == {"fl", "fr"}


def test_resolution_is_as_documented() -> None:
    # The sum lies between 2**29 and 2**30, so a single unit counts: b is rebuilt for 1.
    problem = problems.chain()
    prices = Prices((2.0**28, 1.0, 2.0**28, *(0.0,) * 4), (0.0, 3.0, 2.0, 2.0**27, *(0.0,) * 4))
    cut = minimum_cut(problem, prices)
    assert problems.names(problem, cut.saved) == {"a", "c"}
    assert problems.op_names(problem, cut.recomputed) == {"fb"}


def test_price_far_outside_the_network_does_no_harm() -> None:
    problem = problems.diamond()  # s is not reached, so its price must not spoil the resolution
    flat = problems.flat_prices(problem)
    save = [1e-9 * price for price in flat.save]
    save[[v.name for v in problem.values].index("s")] = 1e308
    cut = minimum_cut(problem, Prices(tuple(1e-9 * p for p in flat.recompute), tuple(save)))
    assert problems.names(problem, cut.saved) == {"a"}


def _subsets(values: list[int]) -> Iterator[frozenset[int]]:
    sizes = range(len(values) + 1)
    return map(frozenset, chain.from_iterable(combinations(values, n) for n in sizes))


def _cost(problem: Problem, prices: Prices, saved: frozenset[int]) -> float | None:
    """What a save set costs, or None if the rules forbid it. Written apart from the network."""
    wanted = [v for o in problem.backward for v in problem.ops[o].inputs]
    total, rerun = sum(0.0 if problem.values[v].is_output else prices.save[v] for v in saved), set()
    while wanted:
        index = wanted.pop()
        value, op = problem.values[index], problem.producer[index]
        if index in saved or value.kind is Kind.TANGENT or op in rerun:
            continue
        if value.kind is Kind.INPUT:
            if value.unsaveable:
                return None
        elif problem.ops[op].phase is not Phase.BACKWARD:
            if problem.ops[op].fixed:
                return None
            rerun.add(op)
            total += prices.recompute[op]
            wanted += (*problem.ops[op].inputs, *problem.ops[op].replay_inputs)
    return total


def _brute_force(problem: Problem, prices: Prices) -> float | None:
    forward = {v for o in problem.forward for v in problem.ops[o].outputs}
    may = [v for v in sorted(forward) if not problem.values[v].unsaveable]
    costs = [c for s in _subsets(may) if (c := _cost(problem, prices, s)) is not None]
    return min(costs, default=None)


@settings(max_examples=150)
@given(st.data(), st.booleans())
def test_cut_equals_brute_force(data: st.DataObject, rules: bool) -> None:
    problem = data.draw(random_problems(max_values=8, rules=rules))
    prices = data.draw(prices_for(problem))
    best = _brute_force(problem, prices)
    if best is None:
        with pytest.raises(InfeasibleError) as caught:
            minimum_cut(problem, prices)
        assert caught.value.path
        return
    cut = minimum_cut(problem, prices)
    assert cut.value == best
    assert _cost(problem, prices, cut.saved) == best, "the save set alone must explain the cost"
    assert cut == minimum_cut(problem, prices, solver="networkx")


@settings(max_examples=60)
@given(st.data())
def test_ten_values_with_uneven_prices(data: st.DataObject) -> None:
    problem = data.draw(random_problems(max_values=10))
    prices = data.draw(prices_for(problem, whole=False))
    best = _brute_force(problem, prices)
    cut = minimum_cut(problem, prices)
    assert best is not None
    # The documented resolution, for at most as many paid prices as there are.
    paid = len(problem.ops) + len(problem.values)
    slack = paid * math.fsum(prices.recompute + prices.save) / 2**29
    assert best * (1 - 1e-12) <= cut.value <= best * (1 + 1e-12) + slack


@settings(max_examples=60)
@given(st.data())
def test_least_recompute_among_equals(data: st.DataObject) -> None:
    problem = data.draw(random_problems(max_values=6))
    prices = data.draw(prices_for(problem))
    cutter = Cutter(problem)
    cut = cutter.cut(prices)
    # A little more for every recompute leaves the choice as it is, if it was the least already.
    dearer = tuple(p + 2.0**-10 for p in prices.recompute)
    assert cutter.cut(Prices(dearer, prices.save)).recomputed == cut.recomputed


@settings(max_examples=30)
@given(st.data())
def test_a_cutter_keeps_no_state(data: st.DataObject) -> None:
    problem = data.draw(random_problems())
    first, second = data.draw(prices_for(problem)), data.draw(prices_for(problem))
    cutter = Cutter(problem)
    cuts = [cutter.cut(p) for p in (first, second, first)]
    assert cuts == [minimum_cut(problem, p) for p in (first, second, first)]


# source 0, sink 1, node 2: 0 -> 2 (3), 2 -> 1 (5)
TAILS, HEADS, CAPACITY = np.array([0, 2]), np.array([2, 1]), np.array([3, 5])


def test_certify_accepts_a_proof() -> None:
    certify(TAILS, HEADS, CAPACITY, np.array([3, 3]), np.array([False, True, True]))


@pytest.mark.parametrize(
    ("flow", "sink_side", "message"),
    [
        ([3, 3], [False, True, False], "flow 3 and cut 5 differ"),
        ([2, 2], [False, True, True], "flow 2 and cut 3 differ"),
        ([3, 2], [False, True, True], "not conserved"),
        ([4, 4], [False, True, True], "exceeds its capacity"),
        ([-1, -1], [False, True, True], "is negative"),
        ([3, 3], [True, True, True], "does not separate"),
        ([3, 3], [False, False, False], "does not separate"),
    ],
)
def test_certify_refuses(flow: list[int], sink_side: list[bool], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        certify(TAILS, HEADS, CAPACITY, np.array(flow), np.array(sink_side))
