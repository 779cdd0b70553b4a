"""The exact solvers against enumeration of their classes, and against all schedules."""

from __future__ import annotations

import math
import os
import threading
from functools import cache

import pytest
from hypothesis import given, settings

from fxremat.problem.replay import replay
from fxremat.problem.types import Kind, Phase, Problem
from fxremat.solver.exact.rows import Rows
from fxremat.solver.exact.several import Several
from fxremat.solver.exact.single import Single
from fxremat.solver.exact.solve import Exact, polish, solve_several, solve_single
from fxremat.solver.exact.stages import Stages
from fxremat.solver.pareto import Point
from fxremat.solver.seeds.cuts import baseline
from tests.brute import cheapest, least_single, random_problem, single_choices
from tests.exact_classes import least, limits, mixed, several_class, single_class
from tests.problems import BEST, Draft, overwritten_input
from tests.strategies import problems

CLOSE = 1e-4  # seconds; a proof holds to a millionth of a step, and costs are whole seconds


def verify(problem: Problem, limit: int, answer: Exact, expected: float | None) -> None:
    """Check an answer against the optimum, and its point against replay."""
    assert answer.proved
    if expected is None:
        assert answer == Exact(None, math.inf, True)
        return
    assert answer.point is not None
    line = replay(problem, answer.point.schedule)
    assert answer.point.peak == line.peak <= limit
    assert answer.point.seconds == line.recompute_seconds
    assert answer.point.seconds == pytest.approx(expected, abs=CLOSE)
    assert answer.bound == pytest.approx(expected, abs=CLOSE)


@pytest.mark.parametrize("seed", range(60))
def test_single_is_the_best_single_choice(seed: int) -> None:
    problem = random_problem(seed, rules=seed % 2 == 1)
    lines = list(single_class(problem))
    for limit in limits(lines) if lines else [10**6]:
        verify(problem, limit, solve_single(problem, limit), least(lines, limit))


@settings(max_examples=60)
@given(problem=problems(max_values=6, rules=True, early=False))
def test_single_on_all_kinds_of_ops(problem: Problem) -> None:
    lines = list(single_class(problem))
    if not lines:
        assert solve_single(problem, 10**6) == Exact(None, math.inf, True)
        return
    for limit in limits(lines)[:3]:
        verify(problem, limit, solve_single(problem, limit), least(lines, limit))


@pytest.mark.parametrize("seed", range(90))
def test_single_on_mixed_problems(seed: int) -> None:
    problem = mixed(seed)
    lines = list(single_class(problem))
    for limit in limits(lines) if lines else [10**6]:
        verify(problem, limit, solve_single(problem, limit), least(lines, limit))


@pytest.mark.parametrize("seed", range(90))
def test_several_on_mixed_problems(seed: int) -> None:
    problem = mixed(seed)
    if sum(len(order) for order in Stages(problem).order) > 9:
        pytest.skip("too many choices to enumerate")
    lines = list(several_class(problem))
    for limit in limits(lines) if lines else [10**6]:
        verify(problem, limit, solve_several(problem, limit), least(lines, limit))


def test_several_lies_between_all_schedules_and_single() -> None:
    equal = total = 0
    for seed in range(24):
        problem = random_problem(seed, most=5, rules=seed % 3 == 1)
        lines = [replay(problem, s) for s in single_choices(problem)]
        for limit in limits(lines)[:3] if lines else ():
            below = cheapest(problem, limit)
            several, single = solve_several(problem, limit), solve_single(problem, limit)
            assert several.proved
            assert several.bound <= single.bound + CLOSE
            assert several.bound >= (math.inf if below is None else below) - CLOSE
            total += 1
            equal += several.bound == pytest.approx(math.inf if below is None else below)
    assert equal >= 0.95 * total > 50


@pytest.mark.parametrize("seed", range(0, 40, 2))
def test_single_is_infeasible_right_below_the_least_peak(seed: int) -> None:
    problem = random_problem(seed)
    lowest = least_single(problem)
    assert solve_single(problem, lowest).point is not None
    assert solve_single(problem, lowest - 1) == Exact(None, math.inf, True)


@pytest.mark.parametrize("build", [b for b, *_ in BEST if b is not overwritten_input])
@pytest.mark.parametrize("kind", [solve_single, solve_several])
def test_ample_memory_costs_nothing_more_than_the_baseline(build, kind) -> None:  # type: ignore[no-untyped-def]
    problem = build()
    answer = kind(problem, 10**6)
    assert answer.proved
    assert answer.point.seconds == replay(problem, baseline(problem)).recompute_seconds


def test_a_value_counts_from_its_run_on() -> None:
    """fa runs before fb in one stage, and needs 92 bytes beside a while b is not there yet."""
    draft = Draft().value("x", 0, kind=Kind.INPUT).value("a", 8).value("b", 40)
    draft.value("y", 4).op("a = fa x", 1.0, workspace=92).op("b = fb x", 1.0).op("y = fy a b", 1.0)
    draft.value("t", 0, kind=Kind.TANGENT).value("g", 0).value("d", 0).value("w", 104)
    draft.op("g w = one t", 1.0, Phase.BACKWARD)
    draft.op("d = two g a b", 1.0, Phase.BACKWARD)
    problem = draft.op("= output d b", 0.0, Phase.BACKWARD).done()
    for kind in (solve_single, solve_several):
        verify(problem, 104 + 8, kind(problem, 104 + 8), 1.0)
        verify(problem, 104, kind(problem, 104), 2.0)
        verify(problem, 103, kind(problem, 103), None)


@cache
def layers(count: int) -> Problem:
    """A chain of layers, each a slow op and a fast one of which the backward reads both."""
    draft = Draft().value("x0", 0, kind=Kind.INPUT)
    for i in range(count):
        draft.value(f"h{i}", 64).value(f"x{i + 1}", 64)
        draft.op(f"h{i} = slow{i} x{i}", 4.0).op(f"x{i + 1} = fast{i} h{i}", 1.0)
    draft.value("t", 64, kind=Kind.TANGENT)
    last = "t"
    for i in reversed(range(count)):
        draft.value(f"g{i}", 64).value(f"d{i}", 64)
        draft.op(f"g{i} = slope{i} {last} h{i}", 1.0, Phase.BACKWARD)
        draft.op(f"d{i} = back{i} g{i} x{i}", 8.0, Phase.BACKWARD)
        last = f"d{i}"
    return draft.op(f"= output {last}", 0.0, Phase.BACKWARD).done()


def test_several_goes_where_single_cannot() -> None:
    problem = layers(6)
    lowest = 0
    for limit in range(64 * 5, 64 * 12, 64):
        single, several = solve_single(problem, limit), solve_several(problem, limit)
        assert single.proved
        assert several.proved
        assert several.bound <= single.bound + CLOSE
        lowest += single.point is None and several.point is not None
    assert lowest >= 1


@pytest.mark.parametrize("program", [Single, Several])
@pytest.mark.parametrize("limit", [64 * 9, 64 * 11, 64 * 13])
def test_the_objective_is_the_recompute_time(
    program: type[Single] | type[Several], limit: int
) -> None:
    problem = layers(6)
    form = program(Stages(problem), 1.0)
    rows = Rows(form, limit)
    while True:
        solved = form.model.solve(60.0, 0.0, math.inf)
        assert solved.x is not None
        schedule = form.schedule(solved.x)
        line = replay(problem, schedule)
        assert solved.bound == pytest.approx(line.recompute_seconds)
        if line.peak <= limit:
            break
        rows.missed(schedule, solved.x)


@pytest.mark.parametrize("kind", [solve_single, solve_several])
def test_a_start_is_improved_or_returned(kind) -> None:  # type: ignore[no-untyped-def]
    problem = layers(6)
    limit = 64 * 11
    best = kind(problem, limit)
    poor = kind(problem, limit - 128).point
    assert poor.seconds > best.point.seconds
    better = kind(problem, limit, start=poor.schedule)
    assert better.proved
    assert better.point.seconds == best.point.seconds
    again = kind(problem, limit, start=best.point.schedule)
    assert again.proved
    assert again.point == best.point
    assert again.bound == pytest.approx(best.point.seconds)


def test_a_start_above_the_limit_is_refused() -> None:
    problem = layers(3)
    with pytest.raises(ValueError, match="exceeds the limit of 64 bytes"):
        solve_single(problem, 64, start=baseline(problem))


@pytest.mark.parametrize("kind", [solve_single, solve_several])
def test_out_of_time_proves_nothing_and_bounds_from_below(kind) -> None:  # type: ignore[no-untyped-def]
    problem = layers(10)
    limit = 64 * 15
    start = kind(problem, limit - 192).point
    assert kind(problem, limit, time_limit=0.0, start=start.schedule) == Exact(start, 0.0, False)
    assert kind(problem, limit, time_limit=0.0) == Exact(None, 0.0, False)
    full = kind(problem, limit, start=start.schedule)
    assert full.proved
    assert full.point.seconds < start.seconds
    for seconds in (0.01, 0.05, 0.2):
        short = kind(problem, limit, time_limit=seconds, start=start.schedule)
        assert 0.0 <= short.bound <= full.bound + CLOSE
        assert full.point.seconds - CLOSE <= short.point.seconds <= start.seconds


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """HiGHS logs past Python, straight to file descriptor 1."""
    assert solve_single(layers(4), 64 * 8).point is not None
    assert solve_single(layers(4), 64).proved
    assert capfd.readouterr() == ("", "")


def test_other_output_is_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """What another thread writes while HiGHS runs is not lost."""
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            os.write(1, b".")
            written.append(1)

    written: list[int] = []
    thread = threading.Thread(target=write)
    thread.start()
    solve_single(layers(4), 64 * 8)
    done.set()
    thread.join()
    assert capfd.readouterr().out == "." * len(written) != ""


def test_polishing_takes_no_start_above_the_limit() -> None:
    problem = Draft().value("x", 8, kind=Kind.INPUT).value("a", 4).value("b", 4)
    problem.op("a = fa x", 1).op("b = fb a", 1).value("g", 1).value("h", 1)
    done = problem.op("g = gb b", 1, Phase.BACKWARD).op("h = ga a g", 1, Phase.BACKWARD).done()
    start = baseline(done)
    peak = Point.of(done, start).peak
    found = polish(done, peak - 1, start)
    assert found == solve_single(done, peak - 1).point
    assert found is not None
    assert found.peak < peak
