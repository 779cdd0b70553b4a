"""Common subexpressions: which equal expressions become one, and which must stay two."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from passes.cleanup.clean import clean, merge_common, remove_dead
from tests.test_cleanup import BACKWARD, FORWARD, Draw, check, targets

aten = torch.ops.aten


def pair(
    op: Any,
    args: tuple[Any, ...] = (),
    other: tuple[Any, ...] | None = None,
    first: dict[str, Any] | None = None,
    second: dict[str, Any] | None = None,
) -> GraphModule:
    """Two calls of one op on ``x`` and their sum."""
    draw = Draw(4)
    one = draw.call(op, draw.x, *args, meta=first)
    two = draw.call(op, draw.x, *(args if other is None else other), meta=second)
    return draw.done(draw.call(aten.add.Tensor, one, two))


def merged(module: GraphModule) -> bool:
    before = len(targets(module))
    after = len(check(module, merge_common))
    assert after in (before, before - 1)
    return after < before


def test_equal_expressions_merge_through_chains() -> None:
    draw = Draw(4)
    ends = [
        draw.call(aten.sin.default, draw.call(aten.sum.dim_IntList, draw.x, [0], True))
        for _ in range(3)
    ]
    add = draw.call(aten.add.Tensor, draw.call(aten.add.Tensor, ends[0], ends[1]), ends[2])
    assert check(draw.done(add), merge_common) == ["sum", "sin", "add", "add"]


@pytest.mark.parametrize(
    ("op", "args", "other"),
    [
        (aten.mul.Tensor, (2,), (3,)),
        (aten.mul.Tensor, (1,), (1.0,)),
        (aten.mul.Tensor, (1,), (True,)),
        (aten.mul.Tensor, (0.0,), (-0.0,)),
        (aten.sum.dim_IntList, ([0],), ([0], True)),
    ],
)
def test_other_arguments_do_not_merge(
    op: Any, args: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    assert not merged(pair(op, args, other))


def test_keywords_count_and_their_order_does_not() -> None:
    draw = Draw(4)
    made = [
        draw.call(aten._to_copy.default, draw.x, **kwargs)
        for kwargs in (
            {"dtype": torch.float64, "memory_format": torch.contiguous_format},
            {"memory_format": torch.contiguous_format, "dtype": torch.float64},
            {"dtype": torch.float32, "memory_format": torch.contiguous_format},
            {"dtype": torch.float64, "memory_format": torch.preserve_format},
        )
    ]
    total = made[0]
    for node in made[1:]:
        total = draw.call(aten.add.Tensor, total, node)
    assert check(draw.done(total), merge_common).count("_to_copy") == 3


def test_other_overloads_do_not_merge() -> None:
    draw = Draw(4)
    one = draw.call(aten.mul.Tensor, draw.x, 2)
    other = draw.call(aten.mul.Scalar, draw.x, 2)
    assert not merged(draw.done(draw.call(aten.add.Tensor, one, other)))


def test_random_ops_do_not_merge() -> None:
    assert merged(pair(aten.exp.default))
    assert not merged(pair(aten.bernoulli.default))
    assert not merged(pair(aten.rand_like.default))


def test_checkpoint_regions_do_not_merge() -> None:
    mark, other = {"recompute": 1, "ac_graph_id": 1}, {"ac_graph_id": 2}
    assert not merged(pair(aten.exp.default, second={"recompute": 1}))
    assert not merged(pair(aten.exp.default, first={"recompute": 1}))
    assert not merged(pair(aten.exp.default, first=mark, second=mark))
    assert not merged(pair(aten.exp.default, first={"ac_graph_id": 1}, second=other))
    assert not merged(pair(aten.exp.default, second=other))
    assert merged(pair(aten.exp.default, first=other, second=other))


def test_annotations_keep_nodes_apart() -> None:
    assert not merged(pair(aten.exp.default, second={"custom": {"stream": 1}}))


def test_forward_and_backward_do_not_merge_except_views() -> None:
    assert not merged(pair(aten.exp.default, first=FORWARD, second=BACKWARD))
    assert merged(pair(aten.exp.default, first=BACKWARD, second=BACKWARD))
    assert merged(pair(aten.view.default, ([2, 2],), first=FORWARD, second=BACKWARD))
    assert not merged(pair(aten.view.default, ([2, 2],), first=BACKWARD, second=FORWARD))
    must = {"partitioner_tag": "must_be_in_backward"}
    assert not merged(pair(aten.view.default, ([2, 2],), first=FORWARD, second=must))


def test_a_backward_node_merges_with_the_twin_of_its_own_side() -> None:
    draw = Draw(4)
    made = [draw.call(aten.exp.default, draw.x, meta=m) for m in (FORWARD, BACKWARD, BACKWARD)]
    total = draw.call(aten.add.Tensor, draw.call(aten.add.Tensor, *made[:2]), made[2])
    result = clean(draw.done(total), merge_common)
    assert [n.name for n in result.graph.nodes][1:3] == ["exp_default", "exp_default_1"]
    assert targets(result).count("exp") == 2


@pytest.mark.parametrize("op", [aten.empty_like.default, aten.new_empty.default])
def test_uninitialized_memory_does_not_merge(op: Any) -> None:
    draw = Draw(4)
    args = ([4],) if op is aten.new_empty.default else ()
    made = [draw.call(op, draw.x, *args) for _ in range(2)]
    draw.call(aten.add.Tensor, *made)
    assert len(targets(clean(draw.done(None), merge_common))) == 3


def test_sizes_that_depend_on_data_do_not_merge() -> None:
    assert not merged(pair(aten.nonzero.default))


def test_what_may_or_may_not_be_a_view_does_not_merge() -> None:
    assert not merged(pair(aten.reshape.default, ([2, 2],)))


@pytest.mark.parametrize(("size", "merges"), [(128, True), (129, False)])
def test_only_small_constants_merge(size: int, merges: bool) -> None:
    draw = Draw(1)
    made = [draw.call(aten.full.default, [size], 1.0) for _ in range(2)]
    assert merged(draw.done(draw.call(aten.add.Tensor, *made))) == merges


def test_like_factories_are_constants() -> None:
    draw = Draw(129)
    made = [draw.call(aten.zeros_like.default, draw.x) for _ in range(2)]
    assert not merged(draw.done(draw.call(aten.add.Tensor, *made)))


@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("viewed", [False, True])
def test_what_is_written_to_does_not_merge(written: int, viewed: bool) -> None:
    draw = Draw(4)
    made = [draw.call(aten.full.default, [4], 1.0) for _ in range(2)]
    target = draw.call(aten.view.default, made[written], [4]) if viewed else made[written]
    draw.call(aten.add_.Tensor, target, 1)
    assert not merged(draw.done(draw.call(aten.sub.Tensor, *made)))


@pytest.mark.parametrize("viewed", [False, True])
def test_reads_do_not_merge_across_a_write(viewed: bool) -> None:
    draw = Draw(4)
    source = draw.call(aten.view.default, draw.x, [2, 2]) if viewed else draw.x
    before = [draw.call(aten.exp.default, source) for _ in range(2)]
    draw.call(aten.copy_.default, draw.x, draw.call(aten.neg.default, draw.x))
    after = draw.call(aten.exp.default, source)
    total = draw.call(aten.add.Tensor, draw.call(aten.add.Tensor, *before), after)
    assert check(draw.done(total), merge_common).count("exp") == 2


def test_reads_do_not_merge_across_an_unknown_call() -> None:
    draw = Draw(4)
    first = draw.call(aten.exp.default, draw.x)
    draw.graph.call_function(torch.sort, (draw.x,))
    total = draw.call(aten.add.Tensor, first, draw.call(aten.exp.default, draw.x))
    assert len(targets_of_exp(clean(draw.done(total), merge_common))) == 2


def targets_of_exp(module: GraphModule) -> list[Node]:
    return [n for n in module.graph.nodes if n.target is aten.exp.default]


@pytest.mark.parametrize("viewed", [False, True])
def test_two_outputs_never_come_to_share_a_storage(viewed: bool) -> None:
    draw = Draw(4)
    made = [draw.call(aten.exp.default, draw.x) for _ in range(3)]
    total = draw.call(aten.neg.default, made[2])
    second = draw.call(aten.view.default, made[1], [4]) if viewed else made[1]
    result = clean(draw.done(made[0], second, total), merge_common)
    assert len(targets_of_exp(result)) == 2  # the one that is not returned merges
    one, other, _ = result(torch.ones(4))
    assert one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()


def test_an_output_that_took_a_merge_takes_no_second_output() -> None:
    draw = Draw(4)
    inner, first, second = (draw.call(aten.exp.default, draw.x) for _ in range(3))
    module = draw.done(draw.call(aten.neg.default, inner), first, second)
    assert len(targets_of_exp(clean(module, merge_common))) == 2


def test_two_returned_views_stay_two() -> None:
    draw = Draw(4)
    made = [draw.call(aten.view.default, draw.x, [2, 2]) for _ in range(2)]
    assert len(check(draw.done(*made), merge_common)) == 2


def test_symbolic_sizes_merge() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin().view(x.shape[0] * 2, -1) + x.sin().view(x.shape[0] * 2, -1)

    module = make_fx(f, tracing_mode="symbolic")(torch.ones(4, 6))
    result = clean(module)
    names = [n.name for n in result.graph.nodes if n.op == "call_function"]
    assert names == ["sin", "sym_size_int", "mul", "view", "add"]
    x = torch.rand(4, 6)
    assert torch.equal(result(x), f(x))


def test_an_unsafe_view_shares_the_storage_of_its_input() -> None:
    draw = Draw(4)
    first = draw.call(aten.exp.default, draw.x)
    draw.call(aten.add_.Tensor, draw.call(aten._unsafe_view.default, draw.x, [4]), 1)
    second = draw.call(aten.exp.default, draw.x)
    assert not merged(draw.done(draw.call(aten.sub.Tensor, first, second)))


def test_custom_ops_neither_go_nor_merge() -> None:
    with torch.library._scoped_library("fxremat_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "CPU")
        op = torch.ops.fxremat_test.twice.default
        assert not merged(pair(op))
        draw = Draw(4)
        draw.call(op, draw.x)
        assert check(draw.done(None), remove_dead) == ["twice"]
