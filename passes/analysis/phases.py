"""In which half of the step a node runs when nothing is recomputed."""

from __future__ import annotations

from torch import fx

from passes.analysis.effects import communicates, is_custom, keeps_input
from passes.analysis.roles import Role
from passes.node_utils import flat_outputs, mutated_arguments, nodes_in
from passes.phases import Phase
from passes.torch_internals import impure

__all__ = ["phases_of"]


def phases_of(
    graph: fx.Graph,
    num_fwd_outputs: int,
    roles: dict[str, Role],
    storages: dict[str, str],
) -> dict[str, Phase]:
    """The phase of every node of a joint graph, by name."""
    phases: dict[str, Phase] = {}
    late = False  # whether the backward has begun; autograd.Functions leave their ops untagged
    for node in graph.nodes:
        tag = node.meta.get("partitioner_tag")
        late = late or (node.op == "call_function" and tag == "is_backward")
        may_act = node.op == "call_function" and (_acts(node) or is_custom(node))
        backward = late and may_act and tag in (None, "is_backward")
        backward = backward or _from_backward(node, phases)
        phases[node.name] = Phase.BACKWARD if backward else Phase.DEFERRABLE
    written = {
        storages[a.name]
        for n in graph.nodes
        for a in mutated_arguments(n)
        if phases[n.name] is Phase.DEFERRABLE and a.name in storages
    }

    def reads_old(node: fx.Node) -> bool:
        """Whether an op reads what the forward overwrites: in the backward it would be too late."""
        op = roles[node.name] in (Role.OP, Role.SIZE)
        read = any(storages.get(a.name) in written for a in node.all_input_nodes)
        return op and (read or keeps_input(node))

    roots = nodes_in(flat_outputs(graph)[:num_fwd_outputs])
    for node in graph.nodes:
        once = node.op == "call_function" and (_acts(node) or reads_old(node))
        if phases[node.name] is Phase.DEFERRABLE and (node.op == "placeholder" or once):
            roots.append(node)
    while roots:
        node = roots.pop()
        if phases[node.name] is Phase.DEFERRABLE:
            phases[node.name] = Phase.FORWARD
            roots.extend(node.all_input_nodes)
    return phases


def _acts(node: fx.Node) -> bool:
    """Whether a call must keep its place among others: a draw, a write, an effect, a collective."""
    return impure(node) or communicates(node)


def _from_backward(node: fx.Node, phases: dict[str, Phase]) -> bool:
    if node.op == "placeholder":
        return any(w in str(node.target) for w in ("tangents", "bwd_seed", "bwd_base_offset"))
    tag = node.meta.get("partitioner_tag")
    if node.op == "output" or tag == "must_be_in_backward":
        return True
    if tag == "must_be_in_forward":
        return False
    if tag == "is_backward" and node.op == "call_function" and _acts(node):
        return True
    return any(phases[a.name] is Phase.BACKWARD for a in node.all_input_nodes)
