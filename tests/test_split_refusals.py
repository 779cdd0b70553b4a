"""Plans that do not fit the graph that they are to split."""

from __future__ import annotations

import pytest

from passes.analysis.joint import JointGraph
from passes.errors import RewriteError
from passes.split.split import split
from tests.graphs import joint, plain_plan


def edited(name: str, change: str) -> tuple[JointGraph, list[str], list[str]]:
    graph = joint(name)
    schedule, forward = plain_plan(graph)
    if change == "unknown":
        schedule.insert(0, "nowhere")
    elif change == "view":
        schedule.insert(0, "primals_1")
    elif change == "missing":
        schedule.remove("mul")
    elif change == "order":
        schedule[0], schedule[1] = schedule[1], schedule[0]
    elif change == "twice":
        schedule.insert(0, schedule[0])
    elif change == "never made":
        schedule.remove("cos")
    elif change == "forward missing":
        forward.remove("sin")
    elif change == "forward last missing":
        forward.remove("sigmoid")
    elif change == "forward order":
        forward.reverse()
    elif change == "forward early":
        forward.insert(0, "cos")
        forward.insert(0, "cos")
    elif change == "forward backward":
        forward.append("mul")
    return graph, schedule, forward


ORDER = "must run every {} op of the graph once, in the graph's order"


@pytest.mark.parametrize(
    ("change", "node", "message"),
    [
        ("unknown", "nowhere", "this graph has no such op"),
        ("view", "primals_1", "this graph has no such op"),
        ("missing", "mul", ORDER.format("backward")),
        ("order", "sigmoid_backward", ORDER.format("backward")),
        ("twice", "mul", ORDER.format("backward")),
        ("never made", "cos", "before any op has made it"),
        ("forward missing", "sin", ORDER.format("forward")),
        ("forward last missing", "sigmoid", ORDER.format("forward")),
        ("forward order", "sin", ORDER.format("forward")),
        ("forward early", "cos", "once only"),
        ("forward backward", "mul", "needs the tangents"),
    ],
)
def test_plan_that_does_not_fit(change: str, node: str, message: str) -> None:
    with pytest.raises(RewriteError, match=message) as error:
        split(*edited("chain", change))
    assert error.value.node == node


def test_hoisted_before_its_input() -> None:
    graph = joint("diamond")
    schedule, forward = plain_plan(graph)
    with pytest.raises(RewriteError, match="the forward reads it before") as error:
        split(graph, schedule, ["cos", *forward])
    assert error.value.node == "exp"


def test_a_lost_write_is_refused() -> None:
    graph = joint("batch_norm")
    schedule, forward = plain_plan(graph)
    with pytest.raises(RewriteError, match="every forward op") as error:
        split(graph, schedule, forward[:-1])
    assert error.value.node == "copy__1"
