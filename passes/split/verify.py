"""Check the two halves of a split against the joint graph they come from.

A rewrite is trusted only after its output has been compared with its input, as in Autodidax. Every
fault is a fault of this package, hence an ``AssertionError``; it names the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from torch import fx
from torch.types import py_sym_types

from passes.analysis.effects import happens_once
from passes.analysis.joint import JointGraph, Role
from passes.node_utils import flat_outputs, mutated_arguments
from passes.phases import Phase
from passes.printer import type_text
from passes.split.split import Split
from passes.torch_internals import is_backward_state, is_opaque_node

__all__ = ["verify"]


def verify(joint: JointGraph, split: Split) -> None:
    """Check a split against its joint graph.

    Args:
        joint: the joint graph.
        split: what was made of it.

    Raises:
        AssertionError: for a half that is no valid graph; outputs that differ from the joint's in
            number, shape or dtype; a hand-over that differs between the halves; a view saved
            beside its base; a draw, write or effect that is missing, stands twice, or stands in
            the wrong half. The message holds the name of the node.
    """
    for module in (split.forward, split.backward):
        try:
            module.graph.lint()
        except RuntimeError as error:
            raise AssertionError(f"no valid graph: {error}") from error
    inputs: dict[bool, list[fx.Node]] = {True: [], False: []}  # of the backward, of the forward
    for node in joint.module.graph.find_nodes(op="placeholder"):
        inputs[joint.phases[node.name] is Phase.BACKWARD].append(node)
    state = filter(is_backward_state, joint.nodes)  # what hooks of gradients are kept in
    taken = split.forward.graph.find_nodes(op="placeholder")
    _same_names(taken, inputs[False], "{}: the forward's input, where the joint graph has {}")
    handed = _check_outputs(joint, split)
    _check_hand_over(split, handed, [*inputs[True], *state])
    _check_saved(joint, split)
    _check_recomputed(joint, split)
    _check_effects(joint, split)


def _check_outputs(joint: JointGraph, split: Split) -> list[fx.Node]:
    """Compare what the halves return with the joint graph's outputs; return what is handed on."""
    cut = joint.num_fwd_outputs
    expected, forward = flat_outputs(joint.module.graph), flat_outputs(split.forward.graph)
    _compare("forward", forward[:cut], expected[:cut])
    _compare("backward", flat_outputs(split.backward.graph), expected[cut:])
    for value in forward[cut:]:
        if not isinstance(value, fx.Node):
            raise AssertionError(f"output: the forward hands on {value!r}, which is no node")
    return forward[cut:]


def _compare(half: str, got: Sequence[Any], want: Sequence[Any]) -> None:
    if len(got) != len(want):
        raise AssertionError(f"output: the {half} returns {len(got)} values, not {len(want)}")
    for index, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        if _type(mine) != _type(theirs):
            raise AssertionError(
                f"{getattr(theirs, 'name', mine)}: output {index} of the {half} is {_type(mine)}, "
                f"in the joint graph {_type(theirs)}"
            )


def _check_hand_over(split: Split, handed: list[fx.Node], own: list[fx.Node]) -> None:
    """The backward takes sizes, tensors, objects, tangents; the forward gives sizes last."""
    for name, count in Counter(n.name for n in handed).items():
        if count > 1:
            raise AssertionError(f"{name}: handed to the backward {count} times")
    sizes = [n for n in handed if isinstance(n.meta.get("val"), py_sym_types)]
    objects = [n for n in handed if is_opaque_node(n)]
    tensors = [n for n in handed if n not in {*sizes, *objects}]
    if handed != [*tensors, *objects, *sizes]:
        first = (objects or sizes)[0].name
        raise AssertionError(f"{first}: an object or a size is handed on before a tensor")
    given = [*sizes, *tensors, *objects, *own]
    taken = split.backward.graph.find_nodes(op="placeholder")
    _same_names(taken, given, "{}: the backward's input, where {} is handed to it")
    for mine, theirs in zip(taken, given, strict=True):
        if _type(mine) != _type(theirs):
            raise AssertionError(
                f"{mine.name}: handed on as {_type(theirs)}, taken as {_type(mine)}"
            )
    _same_names(tensors, split.saved, "{}: handed to the backward, where the split lists {}")


def _check_saved(joint: JointGraph, split: Split) -> None:
    holder: dict[str, str] = {}
    for name in split.saved:
        if name not in joint.roles:
            raise AssertionError(f"{name}: saved, but no node of the joint graph")
        storage = joint.storages.get(name)
        if storage is None:
            raise AssertionError(f"{name}: saved, but it is no tensor")
        if joint.roles[storage] is Role.INPUT:
            continue
        # Two results of one op may share a storage; then neither is a view to be made again.
        if storage in holder and joint.roles[name] is not Role.ITEM:
            raise AssertionError(f"{name}: saved beside {holder[storage]}, of the same storage")
        if joint.roles[name] is Role.VIEW:
            raise AssertionError(f"{name}: a view is saved where its base {storage} should be")
        holder[storage] = name


def _check_recomputed(joint: JointGraph, split: Split) -> None:
    backward = {n.name for n in split.backward.graph.nodes}
    for new, old in split.recomputed.items():
        if new not in backward:
            raise AssertionError(f"{new}: listed as a recompute, but not in the backward")
        if joint.roles.get(old) is not Role.OP or joint.phases[old] is Phase.BACKWARD:
            raise AssertionError(f"{new}: a recompute of {old}, which is no op of the forward")


def _check_effects(joint: JointGraph, split: Split) -> None:
    want = {n.name: n for n in joint.nodes if happens_once(n)}
    seen: Counter[str] = Counter()
    for half, module in ((Phase.FORWARD, split.forward), (Phase.BACKWARD, split.backward)):
        for node in module.graph.nodes:
            if not happens_once(node):
                continue
            name = split.recomputed.get(node.name, node.name)
            if name not in want:
                raise AssertionError(f"{node.name}: draws, writes or has an effect the joint lacks")
            seen[name] += 1
            theirs = joint.phases[name] is Phase.BACKWARD
            if mutated_arguments(node) and theirs is not (half is Phase.BACKWARD):
                raise AssertionError(f"{node.name}: a write that the joint has in the other half")
    for name in want:
        if seen[name] != 1:
            raise AssertionError(
                f"{name}: draws, writes or has an effect, so it must stand once, not {seen[name]}"
                " times"
            )


def _type(value: object) -> str:
    """What a node holds, as text: comparing symbolic sizes themselves would add guards."""
    return type_text(value.meta.get("val")) if isinstance(value, fx.Node) else repr(value)


def _same_names(mine: Sequence[fx.Node], theirs: Sequence[fx.Node | str], fault: str) -> None:
    """Compare two lists by name; past the end of one stands "nothing"."""
    for pair in zip_longest(mine, theirs, fillvalue="nothing"):
        one, other = (getattr(value, "name", value) for value in pair)
        if one != other:
            raise AssertionError(fault.format(one, other))
