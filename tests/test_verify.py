"""The check of a split: right ones pass, and each fault is named with its node."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import fx
from torch.utils import _pytree as pytree

from passes.analysis.joint import JointGraph, Role
from passes.phases import Phase
from passes.split.split import Split, split
from passes.split.verify import verify
from tests.graphs import CASES, joint

aten = torch.ops.aten


def halves_of(name: str, *first: str) -> tuple[JointGraph, Split]:
    """The split that recomputes nothing but, at the start of the backward, the given ops."""
    graph = joint(name)
    ops = [n.name for n in graph.nodes if graph.roles[n.name] in (Role.OP, Role.OUTPUT)]
    forward = [op for op in ops if graph.phases[op] is Phase.FORWARD]
    backward = [op for op in ops if graph.phases[op] is not Phase.FORWARD]
    made = split(graph, [*first, *backward], forward)
    return graph, replace(
        made, forward=copy.deepcopy(made.forward), backward=copy.deepcopy(made.backward)
    )


def find(module: fx.GraphModule, name: str) -> fx.Node:
    found: dict[str, fx.Node] = {n.name: n for n in module.graph.nodes}
    return found[name]


def returned(module: fx.GraphModule) -> list[object]:
    return pytree.arg_tree_leaves(*module.graph.output_node().args)


def give(module: fx.GraphModule, values: list[object]) -> None:
    module.graph.output_node().args = (tuple(values),)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CASES)
def test_right_split_passes(name: str) -> None:
    verify(*halves_of(name))


def test_right_recompute_passes() -> None:
    verify(*halves_of("diamond", "sin", "sigmoid", "sin"))


# --- faults: each takes a split apart and names the node and the words of the complaint --------


def lint_forward(s: Split) -> None:
    exp, sin = find(s.forward, "exp"), find(s.forward, "sin")
    sin.append(exp)


def lint_backward(s: Split) -> None:
    find(s.backward, "mul_1").append(find(s.backward, "cos"))
    find(s.backward, "mul_3").append(find(s.backward, "cos"))


def lost_output(s: Split) -> None:
    give(s.backward, returned(s.backward)[:-1])


def lost_forward_output(s: Split) -> None:
    give(s.forward, [])


def none_gradient(s: Split) -> None:
    give(s.backward, [None])


def other_shape(s: Split) -> None:
    find(s.backward, "mul_4").meta = {"val": torch.empty(2, 2)}


def other_dtype(s: Split) -> None:
    find(s.forward, "mul").meta = {"val": torch.empty(4, 4, dtype=torch.float64)}


def swapped_saved(s: Split) -> None:
    mul, first, second, *rest = returned(s.forward)
    give(s.forward, [mul, second, first, *rest])


def twice_saved(s: Split) -> None:
    give(s.forward, [*returned(s.forward), returned(s.forward)[-1]])


def unsaved(s: Split) -> None:
    give(s.forward, returned(s.forward)[:-1])


def constant_saved(s: Split) -> None:
    give(s.forward, [*returned(s.forward), 3])


def taken_with_other_shape(s: Split) -> None:
    find(s.backward, "exp").meta = {"val": torch.empty(7)}


def extra_input(s: Split) -> None:
    with s.backward.graph.inserting_before(find(s.backward, "tangents_1")):
        s.backward.graph.placeholder("strange")


def lost_forward_input(s: Split) -> None:
    first = find(s.forward, "primals_1")
    with s.forward.graph.inserting_before(first):
        new = s.forward.graph.placeholder("other")
    new.meta = first.meta
    first.replace_all_uses_with(new)
    s.forward.graph.erase_node(first)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lost_output, "output: the backward returns 0 values, not 1"),
        (lost_forward_output, "output: the forward returns 0 values, not 1"),
        (none_gradient, "mul_4: output 0 of the backward is None"),
        (other_shape, r"mul_4: output 0 of the backward is f32\[2, 2\]"),
        (other_dtype, "mul: output 0 of the forward is f64"),
        (swapped_saved, "sin: the backward's input, where sigmoid is handed to it"),
        (twice_saved, "exp: handed to the backward 2 times"),
        (unsaved, "exp: the backward's input, where tangents_1 is handed to it"),
        (constant_saved, "the forward hands on 3"),
        (taken_with_other_shape, "exp: handed on as f32"),
        (extra_input, "strange: the backward's input, where tangents_1 is handed to it"),
        (lost_forward_input, "other: the forward's input, where the joint graph has primals_1"),
    ],
    ids=lambda p: getattr(p, "__name__", None),
)
def test_fault(fault: Callable[[Split], None], words: str) -> None:
    graph, made = halves_of("diamond")
    fault(made)
    with pytest.raises(AssertionError, match=words):
        verify(graph, made)


@pytest.mark.parametrize("fault", [lint_forward, lint_backward], ids=["forward", "backward"])
def test_half_that_reads_what_is_not_there(fault: Callable[[Split], None]) -> None:
    graph, made = halves_of("diamond")
    fault(made)
    with pytest.raises(AssertionError, match="used before it has been defined"):
        verify(graph, made)


def test_saved_list_that_lies() -> None:
    graph, made = halves_of("diamond")
    with pytest.raises(AssertionError, match=r"sigmoid: handed to the backward, .* lists exp"):
        verify(graph, replace(made, saved=("sin", "exp", "sigmoid")))


def test_view_saved_beside_or_instead_of_its_base() -> None:
    graph, made = halves_of("shared_view")
    view = find(made.forward, "select")
    values = returned(made.forward)
    base = next(i for i, n in enumerate(values) if isinstance(n, fx.Node) and n.name == "mm")

    def swap(backward: fx.GraphModule, *, keep: bool) -> tuple[str, ...]:
        mm = find(backward, "mm")
        with backward.graph.inserting_after(mm):
            new = backward.graph.placeholder("select")
        new.meta = view.meta
        if not keep:
            mm.replace_all_uses_with(new)
            backward.graph.erase_node(mm)
        names = [n.name for n in backward.graph.find_nodes(op="placeholder")]
        return tuple(n for n in names if not n.startswith("tangents"))

    for keep, words in ((True, "select: saved beside mm"), (False, "select: a view is saved")):
        halves = replace(
            made, forward=copy.deepcopy(made.forward), backward=copy.deepcopy(made.backward)
        )
        # The joint's own select is a view of mm; the backward of the copy has it under "select".
        for node in list(halves.backward.graph.nodes):
            if node.name == "select":
                node.name = "select_in_backward"
        saved = swap(halves.backward, keep=keep)
        mine = [find(halves.forward, n.name) for n in values if isinstance(n, fx.Node)]
        after = [find(halves.forward, "select")]
        give(halves.forward, [*mine[: base + keep], *after, *mine[base + 1 :]])
        with pytest.raises(AssertionError, match=words):
            verify(graph, replace(halves, saved=saved))


def test_recompute_of_nothing() -> None:
    graph, made = halves_of("diamond", "sin")
    assert made.recomputed == {"sin_again": "sin"}
    with pytest.raises(AssertionError, match="sin_again: a recompute of mul_1"):
        verify(graph, replace(made, recomputed={"sin_again": "mul_1"}))
    with pytest.raises(AssertionError, match="gone: listed as a recompute"):
        verify(graph, replace(made, recomputed={"gone": "sin"}))


# --- effects -----------------------------------------------------------------------------------


def test_random_op_twice() -> None:
    graph, made = halves_of("random_op", "rand_like")
    with pytest.raises(AssertionError, match=r"rand_like: .* must stand once, not 2 times"):
        verify(graph, made)


def test_dropout_twice() -> None:
    with pytest.raises(AssertionError, match=r"native_dropout: .* not 2 times"):
        verify(*halves_of("dropout", "native_dropout"))


def test_attention_without_dropout_may_run_twice() -> None:
    verify(*halves_of("attention", "_scaled_dot_product_flash_attention_for_cpu"))


def test_lost_write() -> None:
    graph, made = halves_of("mutation")
    made.forward.graph.erase_node(find(made.forward, "copy_"))
    with pytest.raises(AssertionError, match=r"copy_: .* must stand once, not 0 times"):
        verify(graph, made)


def test_write_in_the_other_half() -> None:
    graph, made = halves_of("mutation")
    made.forward.graph.erase_node(find(made.forward, "copy_"))
    mul = find(made.backward, "mul_1")
    with made.backward.graph.inserting_before(made.backward.graph.output_node()):
        args = (mul, mul)
        made.backward.graph.create_node("call_function", aten.copy_.default, args, name="copy_")
    with pytest.raises(AssertionError, match="copy_: a write that the joint has in the other half"):
        verify(graph, made)


def test_draw_that_the_joint_lacks() -> None:
    graph, made = halves_of("chain")
    with made.backward.graph.inserting_before(made.backward.graph.output_node()):
        made.backward.graph.call_function(aten.rand.default, ([2],))
    with pytest.raises(AssertionError, match="rand_default: draws, writes or has an effect the"):
        verify(graph, made)


def chain_of(length: int) -> tuple[JointGraph, Split]:
    """A chain of ops and its split that recomputes nothing."""
    graph = fx.Graph()
    x, tangent = graph.placeholder("primals_1"), graph.placeholder("tangents_1")
    x.meta["val"] = tangent.meta["val"] = torch.empty(4, device="meta")

    def call(target: object, *args: fx.Node) -> fx.Node:
        node = graph.call_function(target, args)  # type: ignore[arg-type]
        node.meta["val"] = torch.empty(4, device="meta")
        return node

    last = x
    values = [last := call(aten.sin.default, last) for _ in range(length)]
    gradient = tangent
    for value in reversed(values):
        gradient = call(aten.mul.Tensor, gradient, value)
    graph.output([last, gradient])
    made = JointGraph.from_module(fx.GraphModule({}, graph), 1)
    ops = [n.name for n in made.nodes if made.roles[n.name] in (Role.OP, Role.OUTPUT)]
    return made, split(made, ops[length:], ops[:length])


def calls_of(run: Callable[[], object]) -> int:
    """How many functions a call calls, those written in C included."""
    count = 0

    def seen(frame: object, event: str, _: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def test_work_grows_with_the_graph_and_not_with_its_square() -> None:
    small, large = (calls_of(partial(verify, *chain_of(n))) for n in (100, 400))
    assert small < large < 5 * small
