from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings

from fxremat.base.errors import InfeasibleError
from fxremat.problem.replay import replay
from fxremat.problem.types import Kind, Phase, Problem
from fxremat.solver.bounds.closure import BOUNDARY, moment
from fxremat.solver.bounds.time import TimeBound
from fxremat.solver.flat import FlatProblem
from fxremat.solver.schedule.state import State
from fxremat.solver.seeds.cuts import baseline
from tests import problems
from tests.brute import cheapest, random_problem, random_schedule
from tests.problems import Draft
from tests.strategies import problems as random_problems
from tests.test_state import RANDOM, legal


def bounds(problem: Problem) -> TimeBound:
    """Bounds as the solver takes them."""
    flat = FlatProblem.of(problem)
    return TimeBound(flat, State(flat, baseline(problem)).at_backward())


def every_moment(problem: Problem) -> TimeBound:
    """Bounds that look at all moments of the step."""
    flat = FlatProblem.of(problem)
    made = TimeBound(flat, flat.op_floor)
    made._moments = [BOUNDARY, *range(len(problem.backward))]
    return made


@settings(max_examples=150)
@given(random_problems(rules=True), RANDOM)
def test_no_schedule_recomputes_less(problem: Problem, rng: random.Random) -> None:
    """DEFERRABLE ops, held and unsaveable values, fixed ops and several outputs among them."""
    line = replay(problem, legal(problem, rng))
    bound = every_moment(problem)
    for limit in (line.peak, line.peak + 3):
        assert bound.at(limit).seconds <= line.recompute_seconds * (1 + 1e-9)


def test_no_seeded_schedule_recomputes_less() -> None:
    """800 random schedules of problems with longer backwards than hypothesis draws."""
    checked = 0
    for seed in range(100):
        problem = random_problem(seed, most=10, rules=bool(seed % 2))
        rng = random.Random(seed)
        try:
            bound = every_moment(problem)
        except InfeasibleError:
            bound = None
        for _ in range(8):
            try:
                line = replay(problem, random_schedule(problem, rng))
            except (LookupError, ValueError):
                continue
            checked += 1
            assert bound is not None, "there is a schedule, so the rules leave a cut"
            assert bound.at(line.peak).seconds <= line.recompute_seconds * (1 + 1e-9)
    assert checked > 600


def test_never_above_the_best_of_all_schedules() -> None:
    """Against a search over all schedules, repeats included; and it is of use: often tight."""
    tight = compared = 0
    for seed in range(60):
        problem = random_problem(seed, most=5)
        bound = bounds(problem)
        peak = replay(problem, baseline(problem)).peak
        for tenths in (6, 8, 9):
            limit = peak * tenths // 10
            best = cheapest(problem, limit)
            found = bound.at(limit).seconds
            if not best:
                assert best is None or found == 0.0
                continue
            compared += 1
            assert found <= best + 1e-9
            tight += found > 0.5 * best
    assert compared > 40
    assert tight >= 0.5 * compared


@pytest.mark.slow
def test_never_above_the_best_of_thousands() -> None:
    for seed in range(1000, 2500):
        problem = random_problem(seed, most=5)
        limit = replay(problem, baseline(problem)).peak * (5 + seed % 5) // 10
        best = cheapest(problem, limit)
        if best is not None:
            assert bounds(problem).at(limit).seconds <= best + 1e-9


def test_by_hand() -> None:
    """At b_back t4 b8 d_c4 d_b4 are live in any plan; a8 is needed later, or fa runs for 1.

    With room for 27 - 20 = 7 of its 8 bytes the cheapest mixture runs an eighth of fa.
    """
    bound = bounds(problems.chain())
    assert bound.at(28).seconds == 0
    assert bound.at(27).seconds == pytest.approx(1 / 8)
    assert bound.at(20).seconds == pytest.approx(1)
    assert bound.at(19).seconds == math.inf


def test_what_may_not_be_recomputed_must_fit() -> None:
    """y2 can only be kept: beside t4 z6 d1 at the first backward op that is too much for 25."""
    draft = Draft().value("x", 8, kind=Kind.INPUT).value("y2", 12).value("z", 6)
    draft.value("t", 4, kind=Kind.TANGENT).value("d1", 4).value("d2", 4)
    draft.op("y2 = drop x", 1, fixed="random").op("z = f y2", 1)
    draft.op("d1 = back1 t z", 1, Phase.BACKWARD).op("d2 = back2 d1 y2", 1, Phase.BACKWARD)
    problem = draft.op("= output d2", 0.0, Phase.BACKWARD).done()
    assert bounds(problem).at(26).seconds == 0
    assert bounds(problem).at(25).seconds == math.inf


def test_a_moment_counts_what_is_read_there_among_its_base() -> None:
    problem = problems.chain()
    flat = FlatProblem.of(problem)
    names = [v.name for v in problem.values]
    at = moment(flat, 1)
    assert at.base == 4 + 8 + 4 + 4
    assert at.nbytes[names.index("a")] == 8
    assert at.nbytes[names.index("b")] == 0
