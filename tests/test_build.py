"""Problems of small graphs, worked out by hand."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import Tensor, fx

from fxremat.frontend.build import Sizing, formulate
from fxremat.problem.types import Kind, Phase, Problem, Value
from passes.analysis.joint import JointGraph
from tests.graphs import CASES, Sketch, joint

aten = torch.ops.aten

# Bytes as they are, a second a run, a FLOP a letter of the name, workspace for matrix products.
SIZING = Sizing(
    seconds=lambda node: 1.0,
    flops=lambda node: len(node.name),
    storage=lambda tensor: int(tensor.untyped_storage().nbytes()),
    workspace=lambda node: 1000 if node.target is aten.mm.default else 0,
)


def problem_of(name: str) -> Problem:
    return formulate(joint(name), SIZING)


def names(problem: Problem, order: tuple[int, ...]) -> list[str]:
    return [problem.ops[o].name for o in order]


def flow(problem: Problem) -> dict[str, str]:
    """Each op as "outputs = inputs", by name of the values."""
    value = [v.name for v in problem.values]
    return {
        op.name: f"{' '.join(value[v] for v in op.outputs)} = "
        f"{' '.join(value[v] for v in op.inputs)}".strip()
        for op in problem.ops
    }


def by_name(problem: Problem) -> dict[str, Value]:
    return {v.name: v for v in problem.values}


def test_shared_view() -> None:
    problem = problem_of("shared_view")
    assert problem.values == (
        Value("primals_1", 0, Kind.INPUT),
        Value("primals_2", 0, Kind.INPUT),
        Value("tangents_1", 32, Kind.TANGENT),
        Value("mm", 64),
        Value("exp", 64),
        Value("sum_1", 32),
        Value("sin", 32),
        Value("mul", 32, is_output=True),
        Value("mul_1", 32),
        Value("mul_2", 32),
        Value("cos", 32),
        Value("mul_3", 32),
        Value("select_backward", 64),
        Value("mul_4", 64),
        Value("add", 64),
        Value("mm_1", 64),
        Value("mm_2", 64),
    )
    assert flow(problem) == {
        "mm": "mm = primals_1 primals_2",
        "exp": "exp = mm",
        "sum_1": "sum_1 = exp",
        "sin": "sin = mm",
        "mul": "mul = sum_1 sin",
        "mul_1": "mul_1 = tangents_1 sum_1",
        "mul_2": "mul_2 = tangents_1 sin",
        "cos": "cos = mm",
        "mul_3": "mul_3 = mul_1 cos",
        "select_backward": "select_backward = mul_3",
        "mul_4": "mul_4 = mul_2 exp",
        "add": "add = select_backward mul_4",
        "mm_1": "mm_1 = primals_1 add",
        "mm_2": "mm_2 = add primals_2",
        "output": "= mm_2 mm_1",
    }
    # The derivative of sin stands right after mm, the last (and only) thing that it reads.
    assert names(problem, problem.forward) == ["mm", "cos", "exp", "sum_1", "sin", "mul"]
    assert names(problem, problem.backward) == [
        *("mul_1", "mul_2", "mul_3", "select_backward", "mul_4", "add", "mm_1", "mm_2", "output"),
    ]


def test_costs_and_phases() -> None:
    problem = problem_of("shared_view")
    ops = {op.name: op for op in problem.ops}
    assert ops["mm"].workspace == 1000
    assert ops["exp"].workspace == 0
    assert (ops["sum_1"].seconds, ops["sum_1"].flops) == (1.0, 5)
    assert ops["mm"].phase is Phase.FORWARD
    assert ops["cos"].phase is Phase.DEFERRABLE
    assert ops["mm_1"].phase is Phase.BACKWARD
    assert all(op.fixed == "" for op in problem.ops)


def test_exit_op() -> None:
    problem = problem_of("shared_view")
    last = problem.ops[problem.backward[-1]]
    assert (last.name, last.phase, last.outputs) == ("output", Phase.BACKWARD, ())
    assert (last.seconds, last.flops, last.workspace) == (0.0, 0, 0)
    assert last.fixed == ""


def test_fixed_ops_and_held_outputs() -> None:
    problem = problem_of("dropout")
    ops = {op.name: op for op in problem.ops}
    assert "random" in ops["native_dropout"].fixed
    assert flow(problem)["native_dropout"] == "getitem getitem_1 = exp"
    assert [v.name for v in problem.values if v.is_output] == ["exp_1"]
    assert by_name(problem)["getitem_1"].nbytes == 16  # a mask of booleans


def test_output_that_is_a_view_of_an_input_costs_nothing() -> None:
    problem = problem_of("alias_of_input")
    held = [v.name for v in problem.values if v.is_output]
    assert held == ["exp"]
    assert by_name(problem)["primals_1"] == Value("primals_1", 0, Kind.INPUT)


def test_returned_view_holds_its_base() -> None:
    draw = Sketch(primals_1=torch.rand(4, 4), tangents_1=torch.rand(4))
    draw.call("sin", aten.sin.default, draw["primals_1"])
    draw.call("row", aten.select.int, draw["sin"], 0, 0)
    problem = formulate(draw.done([draw["row"]], [draw["tangents_1"]]), SIZING)
    assert by_name(problem)["sin"] == Value("sin", 64, is_output=True)
    assert "row" not in by_name(problem)


def test_write_makes_nothing() -> None:
    problem = problem_of("mutation")
    assert flow(problem)["copy_"] == "= primals_2 mul_1"
    assert {op.name for op in problem.ops if op.fixed} == {"exp", "mul_1", "copy_"}


def test_result_that_nobody_takes_is_workspace() -> None:
    ops = {op.name: op for op in problem_of("spare_pool").ops}
    assert ops["max_1"].workspace == 4 * 8  # four indices
    assert flow(problem_of("spare_pool"))["max_1"] == "getitem = primals_1"


def test_must_recompute_is_unsaveable() -> None:
    from torch.utils.checkpoint import CheckpointPolicy

    draw = Sketch(primals_1=torch.rand(4), tangents_1=torch.rand(4))
    tag = {"recompute": CheckpointPolicy.MUST_RECOMPUTE, "ac_graph_id": 1}
    draw.call("sin", aten.sin.default, draw["primals_1"], **tag)
    draw.call("exp", aten.exp.default, draw["sin"], **tag)
    draw.call("mul", aten.mul.Tensor, draw["tangents_1"], draw["sin"])
    problem = formulate(draw.done([draw["exp"]], [draw["mul"]]), SIZING)
    assert "MUST_RECOMPUTE" in by_name(problem)["sin"].unsaveable
    assert by_name(problem)["exp"].unsaveable == ""


# --- the end of the step -----------------------------------------------------------------------


def returning(*makers: str) -> Problem:
    """A backward that returns gradients of several layouts."""
    draw = Sketch(primals_1=torch.rand(4, 8), tangents_1=torch.rand(4, 8))
    made: dict[str, fx.Node] = {"none": None}  # type: ignore[dict-item]
    made["neg"] = draw.call("neg", aten.neg.default, draw["tangents_1"])
    made["sin"] = draw.call("sin", aten.sin.default, draw["tangents_1"])
    made["turned"] = draw.call("turned", aten.t.default, made["neg"])
    made["wide"] = draw.call(
        "wide", aten.expand.default, draw.call("total", aten.sum.default, made["neg"]), [16]
    )
    made["row"] = draw.call("row", aten.select.int, made["neg"], 0, 0)
    made["tangent"] = draw["tangents_1"]
    return formulate(draw.done([draw["primals_1"]], [made[m] for m in makers]), SIZING)


@pytest.mark.parametrize(
    ("makers", "read", "workspace"),
    [
        (["neg"], "neg", 0),
        (["neg", "none"], "neg", 0),
        (["neg", "neg"], "neg", 0),
        (["neg", "row"], "neg", 0),
        (["turned"], "neg", 128),
        (["sin", "turned"], "sin neg", 128),
        (["wide"], "total", 64),
        (["wide", "sin"], "total sin", 64),
        (["tangent"], "tangents_1", 0),
        ([], "", 0),
    ],
)
def test_exit_reads_what_is_returned(makers: list[str], read: str, workspace: int) -> None:
    problem = returning(*makers)
    last = problem.ops[problem.backward[-1]]
    assert flow(problem)["output"] == f"= {read}".strip()
    assert last.workspace == workspace


def test_one_copy_at_a_time_is_made_at_the_exit() -> None:
    problem = returning("wide", "turned")
    assert problem.ops[problem.backward[-1]].workspace == 128
    assert flow(problem)["output"] == "= total neg"


# --- places of DEFERRABLE ops ------------------------------------------------------------------


def placed(*calls: str, forward: str) -> list[str]:
    """Forward order of ops written "name input input"."""
    draw = Sketch(primals_1=torch.rand(4), tangents_1=torch.rand(4))
    draw.nodes["x"] = draw["primals_1"]
    draw.nodes["g"] = draw["tangents_1"]
    for call in calls:
        name, *inputs = call.split()
        target = aten.sin.default if len(inputs) == 1 else aten.add.Tensor
        draw.call(name, target, *(draw[i] for i in inputs))
    last = draw.nodes[calls[-1].split()[0]]
    problem = formulate(draw.done([draw[forward]], [last]), SIZING)
    return names(problem, problem.forward)


@pytest.mark.parametrize(
    ("calls", "order"),
    [
        (["a x", "b a", "e a", "m g e"], ["a", "e", "b"]),
        (["a x", "b a", "e a b", "m g e"], ["a", "b", "e"]),
        (["a x", "b a", "e a", "f e", "m g f"], ["a", "e", "f", "b"]),
        (["a x", "b a", "e a", "f e b", "m g f"], ["a", "e", "b", "f"]),
        (["a x", "b a", "e x", "m g e"], ["a", "b", "e"]),
        (["a x", "b a", "e x", "f e a", "m g f"], ["a", "b", "e", "f"]),
    ],
    ids=["first", "last", "chain", "both", "inputs alone", "inputs, then another"],
)
def test_deferrable_ops_stand_after_their_last_input(calls: list[str], order: list[str]) -> None:
    assert placed(*calls, forward="b") == order


def test_deferrable_ops_without_a_forward() -> None:
    assert placed("e x", "m g e", forward="x") == ["e"]


# --- round trip --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if not c.dynamic])
def test_json_round_trip(name: str) -> None:
    problem = problem_of(name)
    assert Problem.from_json(problem.to_json()) == problem
    assert formulate(joint(name), SIZING).to_json() == problem.to_json()


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if not c.dynamic])
def test_bytes_of_the_problem_are_those_of_the_graph(name: str) -> None:
    graph: JointGraph = joint(name)
    own = {n.name: n for n in graph.nodes if graph.storages.get(n.name) == n.name}
    problem = problem_of(name)
    assert [v.name for v in problem.values] == list(own)
    for value in problem.values:
        held = own[value.name].meta["val"]
        assert isinstance(held, Tensor)
        assert value.nbytes in (0, held.untyped_storage().nbytes())
        assert (value.nbytes == 0) == (value.kind is Kind.INPUT)


def test_items_of_nested_tuples() -> None:
    draw = Sketch(primals_1=torch.rand(4), tangents_1=torch.rand(4))
    x = draw["primals_1"]
    a, b, c = torch.rand(4), torch.rand(2), torch.rand(8)
    draw.call("op", torch.ops.higher_order.cond, x, val=(a, (b, c)))
    draw.call("pair", operator.getitem, draw["op"], 1)
    draw.call("last", operator.getitem, draw["pair"], 1)
    problem = formulate(draw.done([draw["last"]], [draw["tangents_1"]]), SIZING)
    assert flow(problem)["op"] == "last = primals_1"
    assert problem.ops[0].workspace == 16 + 8
