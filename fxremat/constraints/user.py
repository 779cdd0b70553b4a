"""What the user wants saved or recomputed, whatever the solver would choose.

Three ways to say so, the later ones going before the earlier ones:

* a ``policy`` given to the backend: a table by op, module path or node name, or a callable;
* policies of ``torch.utils.checkpoint`` (``MUST_SAVE`` and ``MUST_RECOMPUTE`` are rules, see
  :mod:`fxremat.constraints.rules`; ``PREFER_*`` are read here);
* :func:`save` and :func:`recompute` around a value, in the model.

A *must* is obeyed at every budget, or it is an error. A *preference* changes a price: recomputing
an op that had better be saved counts four times, one that had better be recomputed a quarter.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, fx
from torch.fx.traceback import annotate
from torch.utils.checkpoint import CheckpointPolicy

from fxremat.base.budget import Budget
from fxremat.base.errors import InfeasibleError, OptionError
from passes.analysis.joint import JointGraph, Role
from passes.phases import Phase

__all__ = [
    "VERDICTS",
    "Pins",
    "Policy",
    "marks_in",
    "module_path",
    "module_paths",
    "pins_of",
    "recompute",
    "region",
    "save",
]

Verdict = Literal["save", "recompute", "prefer_save", "prefer_recompute"]
VERDICTS = get_args(Verdict)
Policy = tuple[tuple[str, str], ...] | Callable[[fx.Node], str | None]

PIN, REGION = "fxremat.pin", "fxremat.region"  # keys of node.meta["custom"]
WEIGHTS = {"prefer_save": 4.0, "prefer_recompute": 0.25}  # of what an op costs to run again
_CHECKPOINT: dict[Any, Verdict] = {
    CheckpointPolicy.PREFER_SAVE: "prefer_save",
    CheckpointPolicy.PREFER_RECOMPUTE: "prefer_recompute",
}


def save(x: Tensor) -> Tensor:
    """Save a value for the backward if the backward needs it; what made it never runs again.

    For use in a model. Outside a compiled region it does nothing.

    Args:
        x: a tensor of any shape.

    Returns:
        The same tensor.
    """
    return _marked(x, "save")


def recompute(x: Tensor) -> Tensor:
    """Recompute a value in the backward, at every budget, if the backward needs it.

    For use in a model. Outside a compiled region it does nothing. Where what made it may not run
    again, compilation fails with an ``InfeasibleError`` that says why.

    Args:
        x: a tensor of any shape.

    Returns:
        The same tensor.
    """
    return _marked(x, "recompute")


def _marked(x: Tensor, verdict: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise OptionError(f"fxremat.{verdict}({x!r}): not a tensor; give the tensor itself")
    if not torch.compiler.is_compiling():
        return x
    with annotate({PIN: verdict}):
        marked: Tensor = torch.ops.aten.alias.default(x)
        return marked


def region(budget: object, name: str = "") -> AbstractContextManager[Any]:
    """Limit what a part of a model holds between forward and backward.

    Args:
        budget: bytes, or a fraction of what the part holds when nothing is recomputed, written as
            for :func:`fxremat.backend`: a number, a string, or None for no limit.
        name: parts of one name share one budget; without a name, those of the same budget do.

    Example:
        >>> import fxremat, torch
        >>> x = torch.ones(2)
        >>> with fxremat.region(0.5, "attention"):
        ...     y = x.sin()
    """
    if not torch.compiler.is_compiling():
        Budget.parse(budget)  # complains where the model is first run in eager
    return annotate({REGION: f"{name or budget}\n{budget}"})


@dataclass(frozen=True)
class Pins:
    """What a graph's nodes are pinned to.

    Attributes:
        saved: for ops that may not run again, why.
        recomputed: for storages that may not be saved, why.
        weights: for ops whose price is not their time, by what it is multiplied.
        vouched: ops that the user's policy wants recomputed, and thereby says to be pure.
    """

    saved: Mapping[str, str] = field(default_factory=dict)
    recomputed: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    vouched: frozenset[str] = frozenset()


def marks_in(graph: fx.Graph) -> dict[str, str]:
    """The marks of a joint graph as traced: by what is marked, not by the alias that marks it.

    Raises:
        InfeasibleError: if one value is marked to be saved and to be recomputed.
    """
    found: dict[str, str] = {}
    _warn_of_nested(graph)
    for node in graph.nodes:
        mark = node.meta.get("custom", {}).get(PIN)
        if mark is not None and node.target is torch.ops.aten.alias.default:
            source = node
            while source.target in (torch.ops.aten.alias.default, torch.ops.aten.detach.default):
                source = source.all_input_nodes[0]
            if found.setdefault(source.name, mark) != mark:
                said = f"{source.name}: fxremat.save() and fxremat.recompute() both say so"
                raise InfeasibleError(
                    f"{source.name} is to be saved and to be recomputed; take one mark away",
                    (said,),
                )
    return found


def _warn_of_nested(graph: fx.Graph) -> None:
    """Marks within the branches of higher-order ops cannot be heeded: these run as a whole."""
    for module in graph.owning_module.modules() if graph.owning_module is not None else ():
        if not isinstance(module, fx.GraphModule) or module.graph is graph:
            continue
        if any(PIN in n.meta.get("custom", {}) for n in module.graph.nodes):
            warnings.warn(
                "fxremat.save() and fxremat.recompute() are not heeded within the branches of "
                "torch.cond and other higher-order ops, which run as a whole",
                stacklevel=2,
            )
            return


def pins_of(joint: JointGraph, policy: Policy | None, marks: Mapping[str, str]) -> Pins:
    """Read the pins of a joint graph.

    Args:
        joint: the joint graph.
        policy: the backend's.
        marks: what :func:`marks_in` has found.

    Raises:
        OptionError: if a callable policy returns something that is no verdict.
    """
    saved: dict[str, str] = {}
    recomputed: dict[str, str] = {}
    weights: dict[str, float] = {}
    vouched: set[str] = set()

    def pin(storage: str, verdict: str, reason: str) -> None:
        if verdict == "save":
            saved[joint.maker(joint.named[storage]).name] = reason
        else:
            recomputed[storage] = reason

    for name in marks.keys() - joint.named.keys():
        warnings.warn(
            f"fxremat.{marks[name]}() is not heeded: {name} has been merged with an equal value, "
            "or replaced, before planning",
            stacklevel=2,
        )
    for node in joint.nodes:
        if joint.phases[node.name] is Phase.BACKWARD:
            continue
        if node.name in marks and joint.storages.get(node.name) in joint.computed:
            mark = marks[node.name]
            pin(joint.storages[node.name], mark, f"fxremat.{mark}() says so")
        elif joint.roles[node.name] is Role.OP:
            verdict, reason = _verdict(node, policy)
            if verdict in ("recompute", "prefer_recompute"):
                vouched.add(node.name)
            if verdict in WEIGHTS:
                weights[node.name] = WEIGHTS[verdict]
            for storage in joint.makes(node) if verdict in ("save", "recompute") else ():
                pin(storage, verdict or "", reason)
    return Pins(saved, recomputed, weights, frozenset(vouched))


def _verdict(node: fx.Node, policy: Policy | None) -> tuple[str | None, str]:
    if callable(policy):
        said = policy(node)
        if said is not None and said not in VERDICTS:
            raise OptionError(
                f"policy({node.name}) returned {said!r}: no verdict; return one of "
                f"{', '.join(map(repr, VERDICTS))}, or None"
            )
        if said is not None:
            return said, f"the policy says {said!r} for {node.name}"
    elif policy is not None:
        for pattern, said in policy:
            if matches(pattern, names(node)):
                return said, f"the policy says {said!r} for {pattern!r}"
    return _CHECKPOINT.get(cast("Any", node.meta.get("recompute"))), "a checkpoint policy"


def matches(pattern: str, found: Iterable[str]) -> bool:
    """Whether a pattern of a policy or of regions matches one of some names."""
    return any(fnmatchcase(name, pattern) for name in found)


def warn_of_unmatched(
    joint: JointGraph,
    option: str,
    patterns: Iterable[str],
    named: Callable[[fx.Node], Iterable[str]],
) -> None:
    """Warn of patterns that match nothing in a graph, as a misspelt one does.

    Args:
        joint: the joint graph.
        option: whose patterns they are.
        patterns: the patterns.
        named: what they are compared with for an op of the forward: :func:`names`, or
            :func:`module_paths`.
    """
    forward = (n for n in joint.nodes if joint.phases[n.name] is not Phase.BACKWARD)
    known = {name for n in forward if joint.roles[n.name] is Role.OP for name in named(n)}
    for pattern in patterns:
        if not matches(pattern, known):
            near = get_close_matches(pattern, sorted(known - {""}), 3, 0.5)
            hint = f"; names like it are {', '.join(near)}" if near else ""
            warnings.warn(
                f"{option}: the pattern {pattern!r} matches nothing in this graph{hint}",
                stacklevel=2,
            )


def names(node: fx.Node) -> tuple[str, ...]:
    """What a pattern of a policy is compared with: op with and without overload, paths, name."""
    target = str(node.target)
    return target, target.rpartition(".")[0], node.name, *module_paths(node)


def module_paths(node: fx.Node) -> list[str]:
    """The paths of the module that a node comes from and of those around it, innermost first."""
    parts = module_path(node).split(".")
    return [".".join(parts[:end]) for end in range(len(parts), 0, -1)]


def module_path(node: fx.Node) -> str:
    """The path of the module that a node comes from, such as ``blocks.0.attn``, or ""."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    if not stack:
        return ""
    text = str(list(stack.values())[-1][0])
    text = re.sub(r"_modules\['([^']*)'\]", r"\1", re.sub(r"^L\['\w+'\]\.?", "", text))
    return re.sub(r"\[(?:'|)([^'\]]*)(?:'|)\]", r".\1", text).lstrip(".")
