"""Intervals of live values: they add up to the replay, and say whose bytes these are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fxremat.base.errors import InfeasibleError
from fxremat.problem.liveness import Holding, Occupancy, occupancy
from fxremat.problem.replay import replay
from fxremat.problem.types import Problem
from fxremat.solver.peak_solver import PeakSolver
from tests.problems import chain, either, held
from tests.strategies import problems


def levels(line: Occupancy) -> list[int]:
    """Bytes at each position, added up from the intervals."""
    found = list(line.workspace)
    for one in line.intervals:
        for position in range(one.start, one.end + 1):
            found[position] += one.nbytes
    return found


@given(problems(rules=True), st.integers(0, 10))
def test_intervals_add_up_to_the_replay(problem: Problem, tenths: int) -> None:
    try:
        solver = PeakSolver(problem, effort=0)
    except InfeasibleError:
        return
    limit = solver.floor + (solver.baseline.peak - solver.floor) * tenths // 10
    point = solver.solve(limit) or solver.least()
    line = occupancy(problem, point.schedule)
    timeline = replay(problem, point.schedule)
    assert levels(line) == list(line.levels) == [*timeline.forward, *timeline.backward]
    assert line.levels[line.peak_position] == point.peak
    saved = {i.value for i in line.intervals if i.holding is Holding.SAVED}
    assert saved == set(timeline.saved)


def test_a_chain_by_hand() -> None:
    """fa fb fc | c saved; fa, fb again: a is made before b and lives until its own gradient."""
    problem = chain()
    ops = {op.name: i for i, op in enumerate(problem.ops)}
    gradients = [o for o in problem.backward]
    schedule = [gradients[0], ops["fa"], ops["fb"], *gradients[1:]]
    line = occupancy(problem, schedule)
    names = [v.name for v in problem.values]
    found = {(names[i.value], i.start, i.end, i.holding.value) for i in line.intervals}
    assert {("c", 2, 3, "saved"), ("a", 0, 1, "temporary"), ("b", 1, 2, "temporary")} <= found
    assert {("a", 4, 7, "recomputed"), ("b", 5, 6, "recomputed")} <= found
    assert line.boundary == 3


def test_what_is_held_lives_to_the_end_and_either_ops_make_temporaries() -> None:
    problem = held()
    line = occupancy(problem, PeakSolver(problem).baseline.schedule)
    (y,) = [i for i in line.intervals if i.holding is Holding.OUTPUT]
    assert (problem.values[y.value].name, y.end) == ("y", len(line.ops) - 1)
    problem = either()
    line = occupancy(problem, PeakSolver(problem).baseline.schedule)
    (e,) = [i for i in line.intervals if problem.values[i.value].name == "e"]
    assert e.holding is Holding.TEMPORARY
    assert e.start >= line.boundary


def test_the_largest_come_first() -> None:
    problem = chain()
    line = occupancy(problem, PeakSolver(problem).baseline.schedule)
    sizes = [i.nbytes for i in line.at(line.peak_position)]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) + line.workspace[line.peak_position] == line.levels[line.peak_position]
