from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings

from fxremat.problem.types import Kind, Op, Phase, Problem, Value
from tests import problems
from tests.strategies import problems as random_problems

X = Value("x", 8, Kind.INPUT)
A, B, D = Value("a", 8), Value("b", 8), Value("d", 8)


def _small(**changes: object) -> Problem:
    fields: dict[str, object] = {
        "values": (X, A, D),
        "ops": (Op("fa", (0,), (1,), 1.0), Op("back", (1,), (2,), 1.0, phase=Phase.BACKWARD)),
        "forward": (0,),
        "backward": (1,),
    }
    return Problem(**{**fields, **changes})  # type: ignore[arg-type]


@settings(max_examples=50)
@given(random_problems(rules=True))
def test_json_round_trip(problem: Problem) -> None:
    text = problem.to_json()
    again = Problem.from_json(text)
    assert again == problem
    assert again.to_json() == text


def test_json_keeps_kinds() -> None:
    again = Problem.from_json(problems.either().to_json())
    assert isinstance(again.values[0].kind, Kind)
    assert isinstance(again.ops[2].phase, Phase)


OLD = """{"format": 1,
 "values": [{"name": "x", "nbytes": 8, "kind": "input"}, {"name": "e", "nbytes": 8, "held": true,
             "unsaveable": "it is computed within the kernels that read it"},
            {"name": "d", "nbytes": 8}],
 "ops": [{"name": "fe", "inputs": [0], "outputs": [1], "seconds": 1.0, "phase": "either"},
         {"name": "back", "inputs": [1], "outputs": [2], "seconds": 1.0, "phase": "backward",
          "again": [0], "again_workspace": 3}],
 "forward": [0], "backward": [1]}"""


@pytest.mark.parametrize("number", [1, 2])
def test_files_of_older_formats_are_read(number: int) -> None:
    text = OLD if number == 1 else OLD.replace("held", "is_output").replace("either", "deferrable")
    problem = Problem.from_json(text.replace('"format": 1', f'"format": {number}'))
    assert problem.values[1].is_output
    assert [v.fused for v in problem.values] == [False, True, False]
    assert problem.ops[0].phase is Phase.DEFERRABLE
    assert (problem.ops[1].replay_inputs, problem.ops[1].replay_workspace) == ((0,), 3)


@pytest.mark.parametrize("text", ["{}", "[]", '{"format": 999}'])
def test_json_of_another_format(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a problem of format 3; write it again"):
        Problem.from_json(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"forward": (7,)}, "the order names op 7, but there are 2 ops"),
        ({"forward": (-1,)}, "the order names op -1, but there are 2 ops"),
        ({"forward": (1, 0), "backward": ()}, "back: a backward op may not stand in this order"),
        ({"forward": (), "backward": (0, 1)}, "fa: a forward op may not stand in this order"),
        ({"values": (X, A)}, "back: there is no value 2, only 2 values"),
        ({"values": (A, A, D)}, "fa reads a before any op has made it"),
        ({"values": (X, replace(A, kind=Kind.INPUT), D)}, r"a is made twice \(fa\)"),
        ({"backward": ()}, "every op must stand exactly once"),
    ],
)
def test_what_is_not_a_problem(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _small(**changes)


def test_forward_may_not_read_a_tangent() -> None:
    values = (replace(X, name="t", kind=Kind.TANGENT), A, D)
    with pytest.raises(ValueError, match="fa reads t before any op has made it"):
        _small(values=values)


def test_an_op_may_not_run_twice() -> None:
    with pytest.raises(ValueError, match=r"a is made twice \(fa\)"):
        _small(forward=(0, 0))


def test_producer() -> None:
    assert _small().producer == (-1, 0, 1)
    pair = problems.two_outputs()
    assert [pair.producer[i] for i in range(4)] == [-1, 0, 0, 1]


def _either_chain(*, read: str) -> Problem:
    """e = fe(x), g = fg(e), u = fu(x), all DEFERRABLE; the backward reads one of them."""
    draft = problems.Draft().value("x", 8, kind=Kind.INPUT)
    draft.value("e", 8).value("g", 8).value("u", 8).value("d", 8)
    draft.op("e = fe x", 1, Phase.DEFERRABLE).op("g = fg e", 2, Phase.DEFERRABLE)
    draft.op("u = fu x", 4, Phase.DEFERRABLE).op(f"d = back {read}", 8, Phase.BACKWARD)
    return draft.done()


@pytest.mark.parametrize(
    ("read", "needed", "seconds"),
    [("e", {"fe"}, 9.0), ("g", {"fe", "fg"}, 11.0), ("u", {"fu"}, 12.0), ("x", set(), 8.0)],
)
def test_needed_either_ops(read: str, needed: set[str], seconds: float) -> None:
    problem = _either_chain(read=read)
    assert problems.op_names(problem, problem.required) == needed
    assert problem.step_seconds == seconds


@pytest.mark.parametrize("case", [problems.chain, problems.two_outputs, problems.either])
def test_step_seconds(case: Callable[[], Problem]) -> None:
    problem = case()
    assert problem.step_seconds == sum(op.seconds for op in problem.ops)
