from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from fxremat.problem.replay import copies, replay
from fxremat.problem.types import Kind, Phase, Problem
from fxremat.solver.flat import FlatProblem
from fxremat.solver.schedule.moves import insert, normalise, rebuild
from fxremat.solver.schedule.removal import SAVED
from fxremat.solver.schedule.state import State
from fxremat.solver.search.evict import evict
from fxremat.solver.search.restore import by_area, by_bytes, restore
from tests import problems
from tests.strategies import problems as random_problems
from tests.test_state import RANDOM, first_copy, legal

TENTHS = st.integers(0, 11)


def by_name(problem: Problem, text: str) -> list[int]:
    index = {op.name: i for i, op in enumerate(problem.ops)}
    return [index[name] for name in text.split()]


@settings(max_examples=150)
@given(random_problems(rules=True), RANDOM, TENTHS)
def test_evict_lowers_the_overflow_within_the_rules(
    problem: Problem, rng: random.Random, tenths: int
) -> None:
    schedule = legal(problem, rng)
    state = State(FlatProblem.of(problem), schedule)
    limit = state.peak * tenths // 10
    before = state.overflow(limit)
    batch = rng.choice((0.0, 0.2, 1.0))
    evicted = evict(state, limit, batch)
    assert state.schedule() == schedule
    assert evicted is state or evicted.overflow(limit) < before
    replay(problem, evicted.schedule())  # saves nothing unsaveable, reruns nothing fixed


@settings(max_examples=150)
@given(random_problems(rules=True), RANDOM, TENTHS)
def test_restore_keeps_the_limit_and_costs_nothing(
    problem: Problem, rng: random.Random, tenths: int
) -> None:
    state = State(FlatProblem.of(problem), legal(problem, rng))
    limit = state.peak * tenths // 10
    before = state.backward.tolist(), state.forward.tolist()
    seconds = state.seconds
    restore(state, limit, rng.choice((by_bytes, by_area)))
    assert state.seconds <= seconds
    for now, then in zip((state.backward, state.forward), before, strict=True):
        assert all(n <= max(t, limit) for n, t in zip(now.tolist(), then, strict=True))
    replay(problem, state.schedule())


@settings(max_examples=150)
@given(random_problems(rules=True), RANDOM)
def test_normalise_keeps_the_runs_that_are_used(problem: Problem, rng: random.Random) -> None:
    schedule = legal(problem, rng)
    tidy = normalise(State(FlatProblem.of(problem), schedule)).schedule()
    replay(problem, tidy)
    assert Counter(tidy) == used_runs(problem, schedule)


def used_runs(problem: Problem, schedule: list[int]) -> Counter[int]:
    """How often each op runs whose results reach a backward op."""
    makers: dict[int, set[int]] = {q: set() for q in range(len(schedule))}
    for copy in copies(problem, schedule):
        for q in copy.uses:
            if copy.start >= 0:
                makers[q].add(copy.start)
    wanted = {q for q, o in enumerate(schedule) if problem.ops[o].phase is Phase.BACKWARD}
    stack = list(wanted)
    while stack:
        fresh = makers[stack.pop()] - wanted
        wanted |= fresh
        stack += fresh
    return Counter(schedule[q] for q in wanted)


def test_evict_reaches_the_limit_of_the_chain() -> None:
    """With all saved the peak is 28, at b_back, where a (8) lies idle; so a is rebuilt after it.

    Then c_back has t4 b8 c3 d_c4, b_back t4 b8 d_c4 d_b4: 20, and a_back the same with a.
    """
    problem = problems.chain()
    start = State(FlatProblem.of(problem), by_name(problem, "c_back b_back a_back output"))
    evicted = evict(start, 20)
    assert evicted.peak == 20
    assert evicted.schedule() == by_name(problem, "c_back b_back fa a_back output")


def test_evict_leaves_what_it_cannot_lower() -> None:
    problem = problems.random_op()  # y 9, t 4, d_y 4 live at y_back in any plan
    start = State(FlatProblem.of(problem), by_name(problem, "y_back output"))
    assert evict(start, 16).peak == 17


def test_restore_drops_all_runs_without_a_limit() -> None:
    problem = problems.chain()
    text = "fa fb fc c_back fa fb b_back fa a_back output"
    state = State(FlatProblem.of(problem), by_name(problem, text))
    restore(state, 28)
    assert state.schedule() == by_name(problem, "c_back b_back a_back output")


def test_normalise_moves_runs_to_their_first_use() -> None:
    problem = problems.chain()
    state = State(FlatProblem.of(problem), by_name(problem, "fa fb c_back fc b_back a_back output"))
    expected = by_name(problem, "c_back fa fb b_back a_back output")
    assert normalise(state).schedule() == expected


def test_rebuild_trades_a_saved_value_for_a_run() -> None:
    problem = problems.chain()
    state = State(FlatProblem.of(problem), by_name(problem, "c_back b_back a_back output"))
    fresh = rebuild(state, [2], 28)
    assert fresh is not None
    assert fresh.schedule() == by_name(problem, "c_back fb b_back a_back output")
    assert first_copy(fresh, 2).start != SAVED


def test_insert_refuses_to_save_what_may_not_be() -> None:
    """fu needs s, which may not be saved and is not there yet."""
    problem = problems.unsaveable()
    state = State(FlatProblem.of(problem), by_name(problem, "fs s_back output"))
    assert insert(state, [(0, by_name(problem, "fs"))]) is not None
    draft = problems.Draft().value("x", 8, kind=Kind.INPUT)
    draft.value("s", 1, unsaveable="symbolic float").value("u", 4)
    draft.op("s = fs x", 1).op("u = fu s", 1)
    draft.value("t", 4, kind=Kind.TANGENT).value("d", 4)
    draft.op("d = back t u", 1, Phase.BACKWARD).op("= output d", 0.0, Phase.BACKWARD)
    problem = draft.done()
    state = State(FlatProblem.of(problem), by_name(problem, "back output"))
    assert insert(state, [(0, by_name(problem, "fu"))]) is None
    assert insert(state, [(0, by_name(problem, "fs fu"))]) is not None
