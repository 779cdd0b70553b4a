"""Schedules of a chain of stages: legal on any problem, the optimum on a plain chain."""

from __future__ import annotations

from fxremat.problem.replay import replay
from fxremat.problem.types import Kind, Phase, Problem
from fxremat.solver.exact.solve import solve_several, solve_single
from fxremat.solver.flat import FlatProblem
from fxremat.solver.peak_solver import PeakSolver
from fxremat.solver.schedule.moves import legal, prune
from fxremat.solver.schedule.state import State
from fxremat.solver.seeds.cuts import baseline
from fxremat.solver.seeds.rotor import Rotor
from tests.brute import random_problem
from tests.problems import Draft


def chain(layers: int) -> Problem:
    """Layers u = f(x), y = h(u); the backward of a layer reads x alone. All values have 10 bytes.

    Gradients have one byte each, so that what counts are the values of the forward.
    """
    draft = Draft().value("x0", 10, kind=Kind.INPUT)
    draft.value("t", 1, kind=Kind.TANGENT)
    for i in range(1, layers + 1):
        draft.value(f"u{i}", 10).value(f"x{i}", 10).value(f"g{i}", 1)
        draft.op(f"u{i} = f{i} x{i - 1}", 1.0).op(f"x{i} = h{i} u{i}", 1.0)
    before = "t"
    for i in range(layers, 0, -1):
        draft.op(f"g{i} = b{i} {before} x{i - 1}", 2.0, Phase.BACKWARD)
        before = f"g{i}"
    return draft.op(f"= output {before}", 0.0, Phase.BACKWARD).done()


def made(problem: Problem, limit: int) -> State | None:
    """What the dynamic program makes of a limit, without runs that nothing reads."""
    flat = FlatProblem.of(problem)
    first = State(flat, baseline(problem))
    schedule = Rotor(flat, first.peak).schedule(limit)
    if schedule is None:
        return None
    state = State(flat, schedule)
    prune(state)
    return State(flat, state.schedule())


def test_a_plain_chain_is_run_as_well_as_can_be() -> None:
    """Eight layers of two seconds each.

    Within 84 bytes the forward ends with six of x1 to x7 (60), u8 and x8: one layer runs again, and
    one more for every ten bytes less. From 40 on layers must run more than once.
    """
    problem = chain(8)
    for limit, seconds in ((84, 2.0), (74, 4.0), (64, 6.0), (54, 8.0), (44, 10.0), (40, 14.0)):
        state = made(problem, limit)
        assert state is not None
        assert legal(state)
        assert (state.peak <= limit, state.cost) == (True, seconds)
        best = solve_several(problem, limit).point
        assert best is not None
        assert best.seconds == seconds
    assert solve_single(problem, 40).point is None


def test_nothing_is_made_of_a_limit_that_no_stage_fits_in() -> None:
    assert made(chain(8), 12) is None


def test_a_problem_too_short_for_two_stages_has_no_schedule() -> None:
    assert made(chain(1), 1000) is None


def test_schedules_of_random_problems_are_plans() -> None:
    found = 0
    for seed in range(90):
        problem = random_problem(seed, most=9)
        peak = replay(problem, baseline(problem)).peak
        for limit in (peak, peak * 2 // 3, peak // 2):
            state = made(problem, limit)
            if state is None:
                continue
            found += 1
            assert legal(state)
            line = replay(problem, state.schedule())  # raises where it is none
            assert line.peak == state.peak
            assert abs(line.recompute_seconds - state.cost) < 1e-9
    assert found >= 60


def test_stages_may_make_more_than_any_limit_holds() -> None:
    """Every two ops are a stage that makes 200,000 bytes; one value is there at a time: 100,008."""
    draft = Draft().value("x", 0, kind=Kind.INPUT).value("t", 4, kind=Kind.TANGENT)
    for i in range(8):
        draft.value(f"v{i}", 100_000, unsaveable="opaque").op(f"v{i} = f{i} x", 1.0)
    last = "t"
    for i in reversed(range(8)):
        draft.value(f"g{i}", 4).op(f"g{i} = b{i} {last} v{i}", 1.0, Phase.BACKWARD)
        last = f"g{i}"
    problem = draft.op(f"= output {last}", 0.0, Phase.BACKWARD).done()
    assert replay(problem, baseline(problem)).peak == 100_008 + 4
    point = PeakSolver(problem).solve(100_012)
    assert point is not None
    assert made(problem, 100_012) is None
