from __future__ import annotations

import random

import pytest
from hypothesis import given, settings

from fxremat.problem.types import Problem
from fxremat.solver.pareto import Point, Pool
from tests import problems
from tests.strategies import problems as random_problems
from tests.test_state import RANDOM, legal

# of the chain: peak and seconds by replay (tests/test_replay.py)
SAVE_ALL = [3, 4, 5, 6]  # 28, 0
NO_GAIN = [3, 1, 4, 5, 6]  # 28, 2
THRICE = [0, 1, 2, 3, 0, 1, 4, 0, 5, 6]  # 24, 16


def test_dominated_plans_are_not_kept() -> None:
    pool = Pool(problems.chain())
    worse = pool.add(NO_GAIN)
    assert pool.points == [worse] == [Point(28, 2, tuple(NO_GAIN))]
    better = pool.add(SAVE_ALL)
    assert pool.points == [better] == [Point(28, 0, tuple(SAVE_ALL))]
    assert pool.add(NO_GAIN) == worse
    assert pool.points == [better]


def test_the_cheapest_that_fits_is_the_answer() -> None:
    pool = Pool(problems.chain())
    for schedule in (THRICE, NO_GAIN, SAVE_ALL):
        pool.add(schedule)
    assert [(p.peak, p.seconds) for p in pool.points] == [(24, 16), (28, 0)]
    low = pool.points[0]
    assert pool.least == low
    assert pool.best(low.peak - 1) is None
    assert pool.best(27) == low
    assert pool.best(28) == pool.points[-1]


def test_the_referee_judges() -> None:
    with pytest.raises(ValueError, match="must run every backward op once"):
        Pool(problems.chain()).add([3, 4, 5])


@settings(max_examples=100)
@given(random_problems(), RANDOM)
def test_peaks_rise_and_times_fall(problem: Problem, rng: random.Random) -> None:
    pool = Pool(problem)
    added = [pool.add(legal(problem, rng)) for _ in range(12)]
    peaks = [p.peak for p in pool.points]
    times = [p.seconds for p in pool.points]
    assert peaks == sorted(set(peaks))
    assert times == sorted(set(times), reverse=True)
    for limit in {p.peak for p in added} | {0}:
        fitting = [p.seconds for p in added if p.peak <= limit]
        best = pool.best(limit)
        assert (best.seconds if best else None) == min(fitting, default=None)
    assert pool.least.peak == min(p.peak for p in added)
