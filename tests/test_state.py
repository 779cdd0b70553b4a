from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fxremat.problem.replay import Timeline, replay
from fxremat.problem.types import Problem
from fxremat.solver.flat import FlatProblem
from fxremat.solver.schedule.removal import SAVED, EditableCopy, Removal
from fxremat.solver.schedule.state import State
from tests import problems
from tests.brute import random_schedule
from tests.strategies import problems as random_problems

RANDOM = st.randoms(use_true_random=False)


def legal(problem: Problem, rng: random.Random) -> list[int]:
    """A legal schedule, or no example."""
    try:
        schedule = random_schedule(problem, rng)
        replay(problem, schedule)
    except (LookupError, ValueError):
        assume(False)
    return schedule


def assert_equal(state: State, line: Timeline) -> None:
    """The state agrees with replay; the forward and seconds only where nothing is hoisted."""
    live = [q for q, op in enumerate(state.ops) if op >= 0]
    assert [int(state.backward[q]) for q in live] == list(line.backward)
    if line.hoisted:
        return
    places = [state.flat.problem.forward.index(op) for op in line.order]
    assert [int(state.forward[p]) for p in places] == list(line.forward)
    assert state.cost == pytest.approx(line.recompute_seconds)
    assert state.peak == line.peak


@settings(max_examples=150)
@given(random_problems(rules=True), RANDOM)
def test_a_state_equals_replay(problem: Problem, rng: random.Random) -> None:
    schedule = legal(problem, rng)
    assert_equal(State(FlatProblem.of(problem), schedule), replay(problem, schedule))


def raised(after: State, before: tuple[list[int], list[int]], limit: int) -> bool:
    """Whether live bytes rose above a limit anywhere."""
    pairs = [(after.backward.tolist(), before[0]), (after.forward.tolist(), before[1])]
    return any(
        new > max(old, limit) for news, olds in pairs for new, old in zip(news, olds, strict=True)
    )


@settings(max_examples=150)
@given(random_problems(rules=True), RANDOM)
def test_removals_equal_a_fresh_state(problem: Problem, rng: random.Random) -> None:
    flat = FlatProblem.of(problem)
    state = State(flat, legal(problem, rng))
    for _ in range(20):
        runs = [q for q, op in enumerate(state.ops) if op >= 0 and not flat.is_backward[op]]
        change = state.removal(rng.choice(runs)) if runs else None
        if change is None:
            continue
        limit = state.peak + rng.choice((0, rng.randint(-30, 30)))
        fits = state.blocked(change, limit) is None
        before = state.backward.tolist(), state.forward.tolist()
        seconds = state.seconds
        state.commit(change)
        assert fits != raised(state, before, limit)
        assert state.seconds == pytest.approx(seconds - change.gain)
        fresh = State(flat, state.schedule())
        live = [q for q, op in enumerate(state.ops) if op >= 0]
        assert state.backward[live].tolist() == fresh.backward.tolist()
        assert state.forward.tolist() == fresh.forward.tolist()
        assert state.seconds == pytest.approx(fresh.seconds)
        assert_equal(state, replay(problem, state.schedule()))


def first_copy(state: State, value: int) -> EditableCopy:
    return next(copy for copy in state.copies() if copy.value == value)


def _removal(state: State, q: int) -> Removal:
    change = state.removal(q)
    assert change is not None
    return change


def test_a_removal_tells_what_dies_with_it() -> None:
    """fa fb c_back fb b_back ..: dropping the only fb takes fa along, which served it alone."""
    problem = problems.chain()
    state = State(FlatProblem.of(problem), [0, 1, 3, 4, 0, 5, 6])
    change = _removal(state, 1)
    assert change.dead == [1, 0]
    assert change.gain == 3  # fb 2, fa 1
    (move,) = change.moves
    assert (problem.values[move[0].value].name, move[1]) == ("b", None)  # b is saved instead
    state.commit(change)
    assert state.schedule() == [3, 4, 0, 5, 6]
    assert first_copy(state, 2).start == SAVED


def test_a_removal_stretches_the_copy_before() -> None:
    """Dropping the second fa lets the first copy of a live on to a_back."""
    state = State(FlatProblem.of(problems.chain()), [0, 1, 3, 4, 0, 5, 6])
    change = _removal(state, 4)
    assert (change.dead, change.gain) == ([4], 1)
    first = first_copy(state, 1)
    assert change.moves[0][1] is first
    # at c_back: t4 b8 c3 d_c4, and now a8; 27 in all
    assert state.blocked(change, 26) is not None
    assert state.blocked(change, 28) is None
    state.commit(change)
    assert first.uses == [1, 5]
    # fa: t4 a8 c3; fb: + b8; c_back: + d_c4; b_back: t4 a8 b8 d_c4 d_b4; the dead run; then as ever
    assert [state.backward.tolist()[q] for q in (0, 1, 2, 3, 5, 6)] == [15, 23, 27, 28, 20, 8]


def test_what_may_not_be_saved_is_not_removed() -> None:
    state = State(FlatProblem.of(problems.unsaveable()), [1, 2, 3])
    assert state.removal(0) is None


def test_overflow_counts_all_positions() -> None:
    # forward 8 16 19, backward 27 28 20 8
    state = State(FlatProblem.of(problems.chain()), [3, 4, 5, 6])
    assert state.peak == 28
    assert [state.overflow(limit) for limit in (28, 27, 20, 18)] == [0, 1, 15, 1 + 9 + 10 + 2]
