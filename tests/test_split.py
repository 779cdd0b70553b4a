"""Splits of hand-made plans: their text, what they compute, and in what order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import fx

from passes.analysis.joint import JointGraph, Role
from passes.cleanup.clean import clean
from passes.phases import Phase
from passes.printer import render
from passes.split.split import Split, split
from passes.split.verify import verify
from tests.graphs import CASES, assert_same, compiled, joint, plain_plan, step

GOLDEN = sorted((Path(__file__).parent / "golden" / "split").glob("*.txt"))


@dataclass(frozen=True)
class Golden:
    """A hand-made plan for a named graph; its file holds the text of both halves as well."""

    case: str
    forward: list[str]
    backward: list[str]
    head: str
    text: str

    @classmethod
    def read(cls, path: Path) -> Golden:
        whole = path.read_text()
        head, _, text = whole.partition("\n--- forward\n")
        fields = dict(line.split(": ", 1) for line in head.splitlines() if not line.startswith("#"))
        return cls(
            fields["case"], fields["forward"].split(), fields["backward"].split(), head, text
        )

    def graph(self) -> JointGraph:
        return joint(self.case)


def text_of(halves: Split) -> str:
    text = f"{render(halves.forward)}--- backward\n{render(halves.backward)}"
    again = " ".join(f"{new}={old}" for new, old in halves.recomputed.items())
    return f"{text}--- recomputed\n{again}\n"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_text(path: Path, request: pytest.FixtureRequest) -> None:
    golden = Golden.read(path)
    got = text_of(split(golden.graph(), golden.backward, golden.forward))
    if request.config.getoption("--golden-update"):
        path.write_text(f"{golden.head.rstrip()}\n--- forward\n{got}")
    else:
        assert got == golden.text


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_runs_like_eager_in_the_order_of_the_schedule(path: Path) -> None:
    golden, log = Golden.read(path), []  # type: tuple[Golden, list[str]]
    recomputed: dict[str, str] = {}

    def partition(
        module: fx.GraphModule, inputs: object, *, num_fwd_outputs: int, **_: object
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        graph = JointGraph.from_module(clean(module), num_fwd_outputs)
        halves = split(graph, golden.backward, golden.forward)
        verify(graph, halves)
        recomputed.update(halves.recomputed)
        return halves.forward, halves.backward

    case, graph = CASES[golden.case], golden.graph()
    got = step(case, compiled(case, partition, log))
    assert_same(got, step(case))
    ran = [recomputed.get(name, name) for name in log]
    ran = [name for name in ran if graph.roles.get(name) is Role.OP]
    assert ran == [*golden.forward, *golden.backward[:-1]]


@pytest.mark.parametrize("name", CASES)
def test_plan_that_recomputes_nothing_runs_like_eager(name: str) -> None:
    case = CASES[name]

    def partition(
        module: fx.GraphModule, inputs: object, *, num_fwd_outputs: int, **_: object
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        graph = JointGraph.from_module(clean(module), num_fwd_outputs)
        halves = split(graph, *plain_plan(graph))
        verify(graph, halves)
        assert halves.recomputed == {}
        return halves.forward, halves.backward

    assert_same(step(case, compiled(case, partition)), step(case))


def test_a_run_again_carries_what_a_single_extraction_drops() -> None:
    graph = joint("mutation")
    schedule, forward = plain_plan(graph)
    assert "primals_1" not in split(graph, schedule, forward).saved
    again = split(graph, [schedule[0], "mul", *schedule[1:]], forward)
    assert again.saved == ("mul_1", "primals_1", "exp")


def test_a_run_that_nothing_reads_leaves_no_trace() -> None:
    graph = joint("chain")
    schedule, forward = plain_plan(graph)
    halves = split(graph, [*schedule[:-1], "sin", "exp", "output"], forward)
    assert halves.recomputed == {}
    assert halves.saved == split(graph, schedule, forward).saved


def test_use_reads_the_latest_copy() -> None:
    halves = split(
        joint("deep"),
        Golden.read(next(p for p in GOLDEN if p.stem == "deep_all")).backward,
        plain_plan(joint("deep"))[1],
    )
    nodes = {n.name: n for n in halves.backward.graph.nodes}
    assert [a.name for a in nodes["cos_1"].all_input_nodes] == ["tanh_1_again_1"]
    assert [a.name for a in nodes["tanh_backward_2"].all_input_nodes] == ["mul_3", "tanh_again_2"]


def test_checkpoint_tags_do_not_reach_the_halves() -> None:
    graph = joint("chain")
    for node in graph.nodes:
        node.meta["recompute"] = "whatever"
    try:
        halves = split(graph, *plain_plan(graph))
    finally:
        for node in graph.nodes:
            node.meta.pop("recompute")
    calls = [n for n in halves.forward.graph.nodes if n.op == "call_function"]
    assert all("recompute" not in n.meta for n in calls)


def test_joint_graph_is_left_as_it_was() -> None:
    graph = joint("residual")
    before = render(graph.module), {n.name: set(n.meta) for n in graph.nodes}
    split(graph, *plain_plan(graph))
    assert (render(graph.module), {n.name: set(n.meta) for n in graph.nodes}) == before


# --- sizes -------------------------------------------------------------------------------------


def test_sizes_are_saved_as_sizes() -> None:
    halves = split(joint("dynamic_view"), *plain_plan(joint("dynamic_view")))
    taken = halves.backward.graph.find_nodes(op="placeholder")
    kinds = [isinstance(n.meta["val"], torch.SymInt) for n in taken]
    assert any(kinds)
    assert kinds == sorted(kinds, reverse=True)


def test_size_is_read_before_its_tensor_may_be_freed() -> None:
    halves = split(joint("dynamic_view"), *plain_plan(joint("dynamic_view")))
    names = [n.name for n in halves.forward.graph.nodes]
    assert names.index("sym_size_int") < names.index("sum_1")


def drawn_with_size(side: Phase) -> tuple[JointGraph, list[str], list[str]]:
    """The backward expands its tangent to a size read off ``cos``, which only it may run."""
    graph = fx.Graph()
    found = {n.name: n for n in joint("dynamic").nodes}
    x, tangent = graph.placeholder("primals_1"), graph.placeholder("tangents_1")
    x.meta["val"], tangent.meta["val"] = (found[n].meta["val"] for n in ("primals_1", "mul"))

    def call(target: object, *args: object, val: object) -> fx.Node:
        node = graph.call_function(target, args)  # type: ignore[arg-type]
        node.meta["val"] = val
        return node

    aten = torch.ops.aten
    value = x.meta["val"]
    sin = call(aten.sin.default, x, val=torch.sin(value))
    source = x if side is Phase.DEFERRABLE else tangent
    cos = call(aten.cos.default, source, val=torch.cos(value))
    size = call(aten.sym_size.int, cos, 0, val=value.shape[0])
    total = call(aten.sum.dim_IntList, tangent, [0], val=value.sum(0))
    wide = call(aten.expand.default, total, [size, 4], val=value.sum(0).expand(value.shape))
    graph.output([sin, call(aten.neg.default, wide, val=torch.neg(value))])
    made = JointGraph.from_module(fx.GraphModule({}, graph), 1)
    return (made, *plain_plan(made))


@pytest.mark.parametrize("side", [Phase.DEFERRABLE, Phase.BACKWARD])
def test_size_of_what_only_the_backward_runs_is_read_there_at_once(side: Phase) -> None:
    made, schedule, forward = drawn_with_size(side)
    assert made.phases["sym_size_int"] is side
    halves = split(made, schedule, forward)
    verify(made, halves)
    names = [n.name for n in halves.backward.graph.nodes]
    assert names.index("sym_size_int") == names.index("cos_default") + 1
    x = torch.rand(3, 4)
    _, *handed = halves.forward(x)
    assert torch.equal(halves.backward(*handed, x)[0], -x.sum(0).expand(3, 4))
