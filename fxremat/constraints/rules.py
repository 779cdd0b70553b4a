"""What may be saved and what may be recomputed: a table, with a reason for every verdict.

A rule is a name, a predicate on (joint graph, node), and the reason that reaches errors, plans and
reports. The first rule that matches an op decides; an op that no rule matches may be recomputed,
and a value that no rule matches may be saved. All rules hold at every budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils.checkpoint import CheckpointPolicy

from passes.analysis.effects import communicates, draws, happens_once, is_custom, keeps_input
from passes.analysis.joint import JointGraph
from passes.node_utils import mutated_arguments, packet
from passes.phases import Phase
from passes.recompute.forms import rerun_reads

__all__ = ["FIXED", "UNSAVEABLE", "Rule", "fixed", "unsaveable"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a table.

    Attributes:
        name: a word for reports.
        matches: whether the rule applies to a node of a joint graph.
        reason: the verdict in words.
    """

    name: str
    matches: Callable[[JointGraph, fx.Node], bool]
    reason: str


def _replay_support(joint: JointGraph, node: fx.Node) -> bool:
    return joint.phases[node.name] is Phase.REPLAY_SUPPORT


def _custom(joint: JointGraph, node: fx.Node) -> bool:
    return is_custom(node) and node.name not in joint.states


def _random(joint: JointGraph, node: fx.Node) -> bool:
    return draws(node) and node.name not in joint.states


def _mutates(joint: JointGraph, node: fx.Node) -> bool:
    return bool(mutated_arguments(node))


def _collective(joint: JointGraph, node: fx.Node) -> bool:
    return communicates(node)


def _reads_written(joint: JointGraph, node: fx.Node) -> bool:
    return not joint.written.isdisjoint(rerun_reads(joint, node))


def _keeps_input(joint: JointGraph, node: fx.Node) -> bool:
    return keeps_input(node)


def _effectful(joint: JointGraph, node: fx.Node) -> bool:
    tags = node.target.tags if isinstance(node.target, OpOverload) else ()
    once = happens_once(node) and node.name not in joint.states
    return once or torch.Tag.maybe_aliasing_or_mutating in tags


def _data_dependent(joint: JointGraph, node: fx.Node) -> bool:
    """A second run would bind the same symbolic size again, and the two need not be equal."""
    return "unbacked_bindings" in node.meta or (
        isinstance(node.target, OpOverload) and torch.Tag.dynamic_output_shape in node.target.tags
    )


def _unknown_higher_order(joint: JointGraph, node: fx.Node) -> bool:
    """A higher-order op may hide draws, writes and effects in its subgraphs."""
    return isinstance(node.target, HigherOrderOperator)


_DISCRETE = frozenset(
    {"topk", "sort", "argsort", "kthvalue", "median", "nanmedian", "mode", "multinomial"}
)


def _discrete(joint: JointGraph, node: fx.Node) -> bool:
    return _op_name(node) in _DISCRETE


def _op_name(node: fx.Node) -> str:
    return getattr(packet(node), "__name__", "")


def _not_a_tensor_op(joint: JointGraph, node: fx.Node) -> bool:
    return not isinstance(node.target, OpOverload)


def _must_save(joint: JointGraph, node: fx.Node) -> bool:
    group = (node, *joint.items(node))
    return any(n.meta.get("recompute") is CheckpointPolicy.MUST_SAVE for n in group)


FIXED: tuple[Rule, ...] = (
    Rule("replay_support", _replay_support, "it serves further runs of other ops alone"),
    Rule("mutation", _mutates, "it overwrites an argument, and that happens once"),
    Rule("random", _random, "it draws random numbers, and a second run would draw others"),
    Rule("collective", _collective, "it communicates, and all ranks must do so alike"),
    Rule("higher-order", _unknown_higher_order, "its subgraphs may draw, write or have effects"),
    Rule("effect", _effectful, "it has an effect beyond its result, and that happens once"),
    Rule("written", _reads_written, "it reads an input that the graph later overwrites"),
    Rule("data-dependent", _data_dependent, "the size of its result depends on data"),
    Rule("kept", _keeps_input, "it may keep an input that autograd overwrites after the forward"),
    Rule("discrete", _discrete, "its choice may differ between runs and steers what follows"),
    Rule("opaque", _not_a_tensor_op, "it is no ATen call, so what it does is not known"),
    Rule("policy", _must_save, "a checkpoint policy says MUST_SAVE"),
    Rule("custom", _custom, "it is a custom op, which may draw without saying so"),
)


def _opaque_value(joint: JointGraph, node: fx.Node) -> bool:
    return not isinstance(node.meta.get("val"), torch.Tensor)


_SCATTERS = frozenset({"slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter"})


def _scattered_into_input(joint: JointGraph, node: fx.Node) -> bool:
    """Inductor makes such a value in the input's own storage, which a later write changes.

    Ops that may not run again are exempt; saving is their only option.
    """
    source, found = node, False
    while _op_name(source) in _SCATTERS:
        source, found = source.all_input_nodes[0], True
    written = joint.storages.get(source.name) in joint.written
    return found and written and source.op == "placeholder" and not fixed(joint, node)


def _must_recompute(joint: JointGraph, node: fx.Node) -> bool:
    """The policy asks for it, the value stays in its region, and its op may run again at all."""
    if node.meta.get("recompute") is not CheckpointPolicy.MUST_RECOMPUTE:
        return False
    return not _leaves_region(joint, node) and not fixed(joint, joint.maker(node))


def _leaves_region(joint: JointGraph, node: fx.Node) -> bool:
    """Whether the forward reads the value outside its checkpoint region: then it isn't its own."""
    region = node.meta.get("ac_graph_id")
    for look in joint.looks(node):
        if look is not node and joint.phases[look.name] is not Phase.FORWARD:
            continue  # a derivative's own reads are no use outside the region
        for user in look.users:
            if user.op == "output":
                return True
            forward = joint.phases[user.name] is Phase.FORWARD
            if forward and user.meta.get("ac_graph_id") != region:
                return True
    return False


UNSAVEABLE: tuple[Rule, ...] = (
    Rule("opaque", _opaque_value, "it is no tensor, so it cannot be handed to the backward"),
    Rule("scatter", _scattered_into_input, "it may share the storage of an overwritten input"),
    Rule("policy", _must_recompute, "a checkpoint policy says MUST_RECOMPUTE"),
)


def fixed(joint: JointGraph, node: fx.Node, *, pure: bool = False) -> str:
    """Why an op may not be recomputed, or ""; the user may say that a custom op is pure."""
    rules = (r for r in FIXED if not (pure and r.matches is _custom))
    return next((r.reason for r in rules if r.matches(joint, node)), "")


def unsaveable(joint: JointGraph, node: fx.Node) -> str:
    """Why the value that a node yields may not be saved, or ""."""
    return next((r.reason for r in UNSAVEABLE if r.matches(joint, node)), "")
