"""Seeds of the search: every one is a plan, and the sweep of prices reaches both ends."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from fxremat.problem.replay import replay
from fxremat.problem.types import Problem
from fxremat.solver.flat import FlatProblem
from fxremat.solver.mincut.cutter import Cutter
from fxremat.solver.schedule.state import State
from fxremat.solver.seeds.cuts import baseline, cuts
from fxremat.solver.seeds.mwu import RATES, priced_cuts
from tests import problems as toys
from tests.strategies import problems


def starts(problem: Problem, limit: int) -> tuple[list[list[int]], list[State]]:
    flat, cutter = FlatProblem.of(problem), Cutter(problem)
    start = State(flat, baseline(problem))
    over_time = list(priced_cuts(flat, cutter, start, limit))
    return list(cuts(flat, cutter)), over_time


@settings(max_examples=25)
@given(problems(max_values=8))
def test_every_start_is_a_plan(problem: Problem) -> None:
    peak = replay(problem, baseline(problem)).peak
    swept, over_time = starts(problem, max(peak // 2, 1))
    for schedule in (*swept, *(s.schedule() for s in over_time)):
        replay(problem, schedule)  # raises where it is none
    assert len(over_time) == len(RATES)


def test_the_baseline_recomputes_nothing() -> None:
    for problem in (toys.chain(), toys.residual(), toys.diamond()):
        assert replay(problem, baseline(problem)).recompute_seconds == 0.0


def saved_bytes(problem: Problem, schedule: list[int]) -> int:
    return sum(problem.values[v].nbytes for v in replay(problem, schedule).saved)


def test_the_sweep_goes_from_saving_all_to_recomputing_all_that_may() -> None:
    """x -> a8 -> b8 -> c3 by ops of 1, 2 and 9 seconds: what frees most bytes a second goes first.

    All saved; fa for 8 bytes a second; fb for 4; fc for a third. These are all points of the hull.
    """
    problem = toys.chain()
    swept, _ = starts(problem, 1)
    found = [(replay(problem, s).recompute_seconds, saved_bytes(problem, s)) for s in swept]
    assert found == [(0, 19), (1, 11), (3, 3), (12, 0)]


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e6])
def test_the_sweep_does_not_depend_on_the_unit_of_time(unit: float) -> None:
    problem = toys.chain()
    ops = tuple(replace(op, seconds=op.seconds * unit) for op in problem.ops)
    assert starts(replace(problem, ops=ops), 20)[0] == starts(problem, 20)[0]


def test_prices_rise_where_the_plan_is_above_the_limit() -> None:
    """Under a limit that nothing meets each round saves at most what the one before did."""
    problem = toys.chain()
    assert saved_bytes(problem, baseline(problem)) == 19
    _, over_time = starts(problem, 1)
    saved = [saved_bytes(problem, s.schedule()) for s in over_time]
    assert saved == [11, *[3] * (len(saved) - 1)]


@pytest.mark.parametrize("make", [toys.chain, toys.residual, toys.diamond])
def test_one_problem_gives_one_sequence_of_starts(make: object) -> None:
    assert callable(make)
    first, again = starts(make(), 20), starts(make(), 20)
    assert first[0] == again[0]
    assert [s.schedule() for s in first[1]] == [s.schedule() for s in again[1]]
