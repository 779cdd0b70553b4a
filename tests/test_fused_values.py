"""Values that take no memory are computed from what is there, on problems drawn by hand."""

from __future__ import annotations

import pytest

from fxremat.problem.fused_values import recompute_fused_values
from fxremat.problem.replay import replay
from fxremat.problem.types import Kind, Op, Phase, Problem, Value

VALUES = (
    Value("given", 0, Kind.INPUT),
    Value("x", 8),
    Value("half", 0, unsaveable="fused", fused=True),
    Value("exp", 0, unsaveable="fused", fused=True),
    Value("y", 8),
    Value("g1", 8),
    Value("g2", 8),
)
OPS = (
    Op("x", (0,), (1,), 4.0),
    Op("half", (1,), (2,), 1.0),
    Op("exp", (2, 1), (3,), 1.0),  # of half, and so of x
    Op("y", (3, 1), (4,), 2.0),
    Op("g1", (4,), (5,), 1.0, phase=Phase.BACKWARD),
    Op("g2", (4, 5), (6,), 1.0, phase=Phase.BACKWARD),
    Op("output", (6,), (), 0.0, phase=Phase.BACKWARD),
)
PROBLEM = Problem(VALUES, OPS, forward=(0, 1, 2, 3), backward=(4, 5, 6))


def refreshed(schedule: str, problem: Problem = PROBLEM) -> str:
    index = {op.name: i for i, op in enumerate(problem.ops)}
    return " ".join(
        problem.ops[o].name
        for o in recompute_fused_values(problem, [index[n] for n in schedule.split()])
    )


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        ("g1 g2 output", "g1 g2 output"),
        ("half exp y g1 g2 output", "half exp y g1 g2 output"),
        ("x half exp y g1 x y g2 output", "x half exp y g1 x half exp y g2 output"),
        ("x half exp y g1 y g2 output", "x half exp y g1 y g2 output"),  # x is still the same
        ("half exp x y g1 g2 output", "half exp x half exp y g1 g2 output"),
    ],
)
def test_what_is_stale_runs_again(schedule: str, wanted: str) -> None:
    assert refreshed(schedule) == wanted


def test_further_runs_take_no_memory() -> None:
    names = {op.name: i for i, op in enumerate(OPS)}
    before = [names[n] for n in ["x", "half", "exp", "y", "g1", "x", "y", "g2", "output"]]
    after = recompute_fused_values(PROBLEM, before)
    assert replay(PROBLEM, after).peak == replay(PROBLEM, before).peak
    assert replay(PROBLEM, after).recompute_seconds == replay(PROBLEM, before).recompute_seconds + 2


def test_an_op_of_the_backward_runs_once() -> None:
    """Though what its result was computed from has been made again before that is read."""
    values = (
        Value("given", 0, Kind.INPUT),
        Value("x", 8),
        Value("g1", 0, unsaveable="fused", fused=True),
    )
    ops = (
        Op("x", (0,), (1,), 4.0),
        Op("g1", (1,), (2,), 1.0, phase=Phase.BACKWARD),
        Op("output", (2, 1), (), 0.0, phase=Phase.BACKWARD),
    )
    problem = Problem(values, ops, forward=(0,), backward=(1, 2))
    assert refreshed("x g1 x output", problem) == "x g1 x output"


def test_a_problem_without_fused_values_keeps_its_schedule() -> None:
    values = tuple(Value(v.name, 8, v.kind) for v in VALUES)
    plain = Problem(values, OPS, PROBLEM.forward, PROBLEM.backward)
    text = "x half exp y g1 x y g2 output"
    assert refreshed(text, plain) == text


def test_a_long_chain_of_fused_values_runs_again() -> None:
    """Each is computed from the one before, and from ``x``, which is made twice."""
    length = 3_000
    values = [Value("given", 0, Kind.INPUT), Value("x", 8)]
    values += [Value(f"f{n}", 0, unsaveable="fused", fused=True) for n in range(length)]
    ops = [Op("x", (0,), (1,), 1.0), Op("f0", (1,), (2,), 1.0)]
    ops += [Op(f"f{n}", (n + 1, 1), (n + 2,), 1.0) for n in range(1, length)]
    ops += [Op(f"g{n}", (length + 1, 1), (), 1.0, phase=Phase.BACKWARD) for n in range(2)]
    forward, last = tuple(range(length + 1)), (length + 1, length + 2)
    problem = Problem(tuple(values), tuple(ops), forward, last)
    schedule = (*forward, last[0], 0, last[1])
    assert recompute_fused_values(problem, schedule) == (*forward, last[0], *forward, last[1])
