from __future__ import annotations

import random

from hypothesis import given, settings

from fxremat.problem.replay import replay
from fxremat.problem.types import Problem
from fxremat.solver.bounds.peak import floor
from tests import problems
from tests.brute import random_problem, single_choices
from tests.strategies import problems as random_problems
from tests.test_state import RANDOM, legal


@settings(max_examples=200)
@given(random_problems(rules=True), RANDOM)
def test_no_schedule_goes_below(problem: Problem, rng: random.Random) -> None:
    schedule = legal(problem, rng)
    assert floor(problem) <= replay(problem, schedule).peak


def test_no_single_choice_goes_below() -> None:
    for seed in range(40):
        problem = random_problem(seed, most=6)
        assert all(floor(problem) <= replay(problem, s).peak for s in single_choices(problem))


def test_by_hand() -> None:
    # b_back: t4 d_c4 d_b4 b8, and a_back the same with a; the forward needs a8 b8 at fb
    assert floor(problems.chain()) == 20
    # z_back: t4 y9 z5 d_z4 = 22
    assert floor(problems.held()) == 22
    # y_back: t4 e8 d_y4 = 16
    assert floor(problems.either()) == 16
    # y_back: t4 y8, which the caller holds, d_y4
    assert floor(problems.nothing_needed()) == 16
