"""Forms of an op that may run again where the op itself may not.

A random op runs again from the state of the generator that was taken before it
(:mod:`passes.recompute.replay_support`).

Training batch norm reads and updates running statistics, so as it stands it could run only once;
but its normalised result depends on the batch alone, and ATen has the op without statistics.
Convolution nets can't be rematerialized well without it: the normalised activation is as big as
the convolution's output and costs almost nothing to rebuild.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from passes.analysis.joint import JointGraph
from passes.node_utils import leaves, nodes_in
from passes.phases import Phase
from passes.torch_internals import run_with_rng_state

__all__ = ["Form", "rerun_form", "rerun_reads"]

aten = torch.ops.aten


@dataclass(frozen=True)
class Form:
    """A call that yields the leading results of another, bit for bit.

    Attributes:
        target: the op to call.
        args: its arguments, nodes of the original graph among them.
        results: how many of the original's results it yields; None is all of them.
        kwargs: its keyword arguments.
    """

    target: Any
    args: tuple[Any, ...]
    results: int | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def rerun_form(joint: JointGraph, node: fx.Node) -> Form | None:
    """The form in which an op may run again, or None where the op itself is used.

    A form that leaves out a result which the backward reads is of no use.
    """
    if node.name in joint.states:
        return _replay(joint, node)
    make = _FORMS.get(node.target)
    form = make(node) if make is not None else None
    if form is None or form.results is None:
        return form
    left_out = [i for i in joint.items(node) if i.args[1] >= form.results]  # type: ignore[operator]
    read = any(joint.phases[u.name] is not Phase.FORWARD for i in left_out for u in i.users)
    return None if read else form


def rerun_reads(joint: JointGraph, node: fx.Node) -> tuple[str, ...]:
    """Storages that a further run of an op reads, copies in place of overwritten inputs."""
    form = rerun_form(joint, node)
    read = leaves(node) if form is None else nodes_in((form.args, dict(form.kwargs)))
    return joint.storages_of(read, late=True)


def _replay(joint: JointGraph, node: fx.Node) -> Form:
    state = joint.named[joint.states[node.name]]
    return Form(run_with_rng_state, (state, node.target, *node.args), kwargs=node.kwargs)


def _batch_norm(node: fx.Node) -> Form | None:
    source, weight, bias, _, _, training, momentum, epsilon = node.args
    if not training:
        return None
    args = (source, weight, bias, True, momentum, epsilon)
    return Form(aten._native_batch_norm_legit.no_stats, args, 3)


_FORMS: dict[Any, Callable[[fx.Node], Form | None]] = {
    aten._native_batch_norm_legit_functional.default: _batch_norm,
}
