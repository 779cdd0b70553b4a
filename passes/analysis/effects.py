"""Which calls must happen exactly as often as the program says: draws, writes, effects."""

from __future__ import annotations

import torch
from torch import fx
from torch._ops import OpOverload

from passes.torch_internals import impure, run_with_rng_state

__all__ = [
    "COLLECTIVE",
    "OWN",
    "communicates",
    "draws",
    "generator",
    "happens_once",
    "is_custom",
    "keeps_input",
]

COLLECTIVE = frozenset(  # namespaces of ops that communicate
    {"_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor", "c10d"}
    | {"symm_mem", "fsdp"}
)
OWN = COLLECTIVE | frozenset(  # namespaces of torch itself, whose ops say what they do
    {"aten", "prims", "prim", "quantized", "quantized_decomposed", "_quantized", "sparse"}
    | {"mkldnn", "mkl", "onednn", "rngprims", "debugprims", "inductor", "_inductor", "fxremat"}
    | {"profiler", "torchvision", "higher_order", "bsr", "_export"}
)


def draws(node: fx.Node) -> bool:
    """Whether a call draws random numbers.

    Fused attention is tagged as if it did, but without dropout it draws none.
    """
    target = node.target
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    takes_share = any(a.name == "dropout_p" for a in target._schema.arguments)
    return not takes_share or bool(_given(node, "dropout_p", 0.0) != 0)


def generator(node: fx.Node) -> object:
    """The generator that a call is told to draw from, or None for the default one."""
    return _given(node, "generator", None) if isinstance(node.target, OpOverload) else None


def _given(node: fx.Node, name: str, default: object) -> object:
    """What an op is given for an argument of its schema, by position or by name."""
    assert isinstance(node.target, OpOverload)
    for index, argument in enumerate(node.target._schema.arguments):
        if argument.name == name and index < len(node.args):
            return node.args[index]
    return node.kwargs.get(name, default)


def communicates(node: fx.Node) -> bool:
    """Whether a call is a collective: all ranks must make it, in the same order as others."""
    return getattr(node.target, "namespace", "") in COLLECTIVE


def is_custom(node: fx.Node) -> bool:
    """Whether a call is of an op that is not torch's own."""
    return isinstance(node.target, OpOverload) and node.target.namespace not in OWN


def happens_once(node: fx.Node) -> bool:
    """Whether a call draws, communicates, writes to an argument or has another such effect."""
    if node.op != "call_function" or node.target is run_with_rng_state:
        return False
    tagged = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return communicates(node) or (draws(node) if tagged else impure(node))


def keeps_input(node: fx.Node) -> bool:
    """Whether a node may keep an input that AOTAutograd overwrites after the forward has returned.

    Such a write is not in the graph; all that shows is the clone of the input that it is kept in.
    """
    source = node.args[0] if node.args else None
    if node.target is not torch.ops.aten.clone.default or not isinstance(source, fx.Node):
        return False
    return source.op == "placeholder"
