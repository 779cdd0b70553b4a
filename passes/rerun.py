"""Forms of an op that may run again where the op itself may not.

Training batch norm reads and updates running statistics, so as it stands it could run only once;
but its normalised result depends on the batch alone, and ATen has the op without statistics.
Convolution nets can't be rematerialized well without it: the normalised activation is as big as
the convolution's output and costs almost nothing to rebuild.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .joint import JointGraph, Side

__all__ = ["Form", "rerun_form"]

aten = torch.ops.aten


@dataclass(frozen=True)
class Form:
    """A call that yields the leading results of another, bit for bit.

    Attributes:
        target: the op to call.
        args: its arguments, nodes of the original graph among them.
        results: how many of the original's results it yields.
    """

    target: Any
    args: tuple[Any, ...]
    results: int


def rerun_form(joint: JointGraph, node: fx.Node) -> Form | None:
    """The form in which an op may run again, or None where the op itself is used.

    A form that leaves out a result which the backward reads is of no use.
    """
    make = _FORMS.get(node.target)
    form = make(node) if make is not None else None
    if form is None:
        return None
    left_out = [i for i in joint.items(node) if i.args[1] >= form.results]  # type: ignore[operator]
    read = any(joint.sides[u.name] is not Side.FORWARD for i in left_out for u in i.users)
    return None if read else form


def _batch_norm(node: fx.Node) -> Form | None:
    source, weight, bias, _, _, training, momentum, epsilon = node.args
    if not training:
        return None
    args = (source, weight, bias, True, momentum, epsilon)
    return Form(aten._native_batch_norm_legit.no_stats, args, 3)


_FORMS: dict[Any, Callable[[fx.Node], Form | None]] = {
    aten._native_batch_norm_legit_functional.default: _batch_norm,
}
