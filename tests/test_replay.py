from __future__ import annotations

from collections.abc import Callable

import pytest

from fxremat.problem.replay import Copy, Timeline, copies, replay
from fxremat.problem.types import Kind, Phase, Problem
from tests import problems
from tests.problems import Draft


def run(problem: Problem, text: str) -> Timeline:
    index = {op.name: i for i, op in enumerate(problem.ops)}
    return replay(problem, [index[name] for name in text.split()])


def tangents() -> Problem:
    """Two tangents (4 and 6), an op with a workspace (5) and one output that nothing reads (q)."""
    draft = Draft().value("x", 100, kind=Kind.INPUT).value("p", 7).value("q", 9)
    draft.value("s", 4, kind=Kind.TANGENT).value("t", 6, kind=Kind.TANGENT)
    draft.value("d1", 2).value("d2", 3)
    draft.op("p q = pair x", 8, workspace=5, flops=11)
    draft.op("d1 = back1 s p", 1, Phase.BACKWARD, workspace=20)
    draft.op("d2 = back2 t x", 1, Phase.BACKWARD)
    return draft.op("= output d1 d2", 0.0, Phase.BACKWARD).done()


# problem, schedule, bytes at each position of the forward and of the backward, saved, seconds
CASES: list[tuple[Callable[[], Problem], str, list[int], list[int], str, float]] = [
    # Forward: a; a b; a b c, all saved. Backward, above the tangent's 4: a8 b8 c3 d_c4;
    # a8 b8 d_c4 d_b4; a8 d_b4 d_a4; d_a4.
    (
        problems.chain,
        "c_back b_back a_back output",
        [8, 16, 19],
        [4 + 23, 4 + 24, 4 + 16, 4 + 4],
        "a b c",
        0,
    ),
    # b is rebuilt: forward a; a b; a b c. Backward: a8 c3 d_c4; fb: a8 b8 d_c4; as above from here.
    (
        problems.chain,
        "c_back fb b_back a_back output",
        [8, 16, 19],
        [4 + 15, 4 + 20, 4 + 24, 4 + 16, 4 + 4],
        "a c",
        2,
    ),
    # Nothing is saved and a is made three times, b twice. Forward: a; a b; b c. Backward:
    # a; a b; b c; c d_c; a d_c; a b d_c; b d_c d_b; a d_b; a d_b d_a; d_a.
    (
        problems.chain,
        "fa fb fc c_back fa fb b_back fa a_back output",
        [8, 16, 11],
        [4 + b for b in (8, 16, 11, 7, 12, 20, 16, 12, 16, 4)],
        "",
        (1 + 2 + 9) + (1 + 2) + 1,
    ),
    # A run whose result nothing reads is live while it runs: a8 b8 c3, then as the first case.
    # fc at the front makes c anew; b is saved and c is not.
    (
        problems.chain,
        "fc c_back b_back a_back output",
        [8, 16, 19],
        [4 + 19, 4 + 23, 4 + 24, 4 + 16, 4 + 4],
        "a b",
        9,
    ),
    # y (9) is returned: its 9 bytes stay, and reading it costs nothing more. With the tangent 13.
    (problems.held, "z_back output", [9, 14], [13 + 9, 13 + 4], "z", 0),
    (problems.held, "fz z_back output", [9, 14], [13 + 5, 13 + 9, 13 + 4], "", 2),
    # A further copy of y costs 9 beside the one that the caller holds.
    (
        problems.held,
        "fy fz z_back output",
        [9, 14],
        [13 + 9, 13 + 14, 13 + 18, 13 + 4],
        "",
        3,
    ),
    # slope runs in the backward: y3 e8; e8 d_y4; d_y4, above the tangent's 4. No extra seconds.
    (problems.either, "slope y_back output", [8, 11], [4 + 11, 4 + 12, 4 + 4], "y", 0),
    # Hoisted, since its result is saved: forward h; h y; y e. No extra seconds either.
    (problems.either, "y_back output", [8, 11, 11], [4 + 12, 4 + 4], "e", 0),
    # Its second run is a recompute.
    (
        problems.either,
        "slope slope y_back output",
        [8, 11],
        [4 + 11, 4 + 11, 4 + 12, 4 + 4],
        "y",
        2,
    ),
    # h is saved, tanh runs again: h8 y3; y3 e8; e8 d_y4.
    (
        problems.either,
        "tanh slope y_back output",
        [8, 11],
        [4 + 11, 4 + 11, 4 + 12, 4 + 4],
        "h",
        1,
    ),
    # Tangents 10; inputs cost nothing. Forward: p7 q9 and workspace 5.
    # Backward: p7 d1 2 and workspace 20; d1 2 d2 3; d1 2 d2 3.
    (tangents, "back1 back2 output", [21], [10 + 29, 10 + 5, 10 + 5], "p", 0),
    # The pair is made again, q and the workspace live only meanwhile: 7 + 9 + 5.
    (tangents, "pair back1 back2 output", [21], [10 + 21, 10 + 29, 15, 15], "", 8),
]


@pytest.mark.parametrize(("make", "text", "forward", "backward", "saved", "seconds"), CASES)
def test_bytes_at_every_position(
    make: Callable[[], Problem],
    text: str,
    forward: list[int],
    backward: list[int],
    saved: str,
    seconds: float,
) -> None:
    problem = make()
    line = run(problem, text)
    assert list(line.forward) == forward
    assert list(line.backward) == backward
    assert [problem.values[v].name for v in line.saved] == saved.split()
    assert line.recompute_seconds == seconds
    assert line.peak == max(*forward, *backward)


def test_hoisted_ops_are_told_and_ordered() -> None:
    problem = problems.either()
    assert (run(problem, "y_back output").hoisted, run(problem, "y_back output").order) == (
        (2,),
        (0, 1, 2),
    )
    line = run(problem, "slope y_back output")
    assert (line.hoisted, line.order) == ((), (0, 1))


def test_hoisting_takes_the_ops_before_it_along() -> None:
    """e1 = 1 - y and e2 = e1 * y are both DEFERRABLE ops; saving e2 hoists both."""
    draft = Draft().value("x", 8, kind=Kind.INPUT).value("y", 5).value("e1", 6).value("e2", 7)
    draft.value("t", 4, kind=Kind.TANGENT).value("d", 3)
    draft.op("y = fy x", 10).op("e1 = one y", 2, Phase.DEFERRABLE)
    draft.op("e2 = two e1 y", 3, Phase.DEFERRABLE)
    draft.op("d = back t e2", 1, Phase.BACKWARD)
    problem = draft.op("= output d", 0.0, Phase.BACKWARD).done()
    line = run(problem, "back output")
    assert line.hoisted == (1, 2)
    assert line.forward == (5, 5 + 6, 5 + 6 + 7)
    assert line.backward == (4 + 7 + 3, 4 + 3)
    assert line.recompute_seconds == 0
    assert run(problem, "one two back output").recompute_seconds == 0
    # e1 saved alone: one runs in the forward, and again for nothing in the backward
    assert run(problem, "two one back output").recompute_seconds == 2


def test_flops_of_further_runs_are_counted() -> None:
    assert run(tangents(), "pair pair back1 back2 output").recompute_flops == 22
    assert run(tangents(), "back1 back2 output").recompute_flops == 0


def test_copies_live_from_making_to_last_use_before_the_next() -> None:
    problem = problems.chain()
    x, a, b, c = 0, 1, 2, 3
    found = [k for k in copies(problem, [3, 0, 1, 0, 4, 5, 6]) if k.value in (x, a, b, c)]
    assert found == [
        Copy(x, -1, 5, (1, 3, 5)),
        Copy(c, -1, 0, (0,)),
        Copy(a, 1, 2, (2,)),
        Copy(b, 2, 4, (4,)),
        Copy(a, 3, 5, (5,)),
    ]


def test_a_copy_that_nothing_reads_ends_where_it_starts() -> None:
    found = copies(problems.chain(), [1, 3, 4, 5, 6])
    assert Copy(1, -1, 3, (0, 3)) in found
    assert Copy(2, 0, 2, (2,)) in found
    assert Copy(2, 0, 0, ()) in copies(problems.chain(), [1, 1, 3, 4, 5, 6])


@pytest.mark.parametrize(
    "text",
    [
        "c_back b_back a_back",  # one is missing
        "c_back c_back b_back a_back output",  # one is repeated
        "b_back c_back a_back output",  # two are out of order
        "",
    ],
)
def test_every_backward_op_runs_once_in_order(text: str) -> None:
    with pytest.raises(ValueError, match="must run every backward op once, in the problem's order"):
        run(problems.chain(), text)


def test_a_fixed_op_does_not_run_again() -> None:
    with pytest.raises(ValueError, match="drop may not run again: random"):
        run(problems.random_op(), "drop fy y_back output")


def test_a_fixed_either_op_runs_once() -> None:
    draft = Draft().value("x", 8, kind=Kind.INPUT).value("y", 5).value("e", 6)
    draft.value("t", 4, kind=Kind.TANGENT).value("d1", 3).value("d2", 3)
    draft.op("y = fy x", 1).op("e = pick y", 2, Phase.DEFERRABLE, fixed="discrete")
    draft.op("d1 = back1 t e", 1, Phase.BACKWARD).op("d2 = back2 d1 e", 1, Phase.BACKWARD)
    problem = draft.op("= output d2", 0.0, Phase.BACKWARD).done()
    assert run(problem, "pick back1 back2 output").recompute_seconds == 0
    assert run(problem, "back1 back2 output").hoisted == (1,)
    for again in ("pick back1 pick back2 output", "back1 pick back2 output"):
        with pytest.raises(ValueError, match="pick may not run again: discrete"):
            run(problem, again)


def test_an_unsaveable_value_is_not_read_from_the_forward() -> None:
    with pytest.raises(ValueError, match="s may not be saved: symbolic float"):
        run(problems.unsaveable(), "s_back output")
    assert run(problems.unsaveable(), "fs s_back output").saved == (1,)
