"""Plans kept on disk for warm starts under Inductor.

torch's caches give back compiled code without asking for a plan again. What the plan was, and the
peak that was read off the code, is kept here under a key of everything that it depends on: the
graph that Dynamo captured, its inputs, the options, the device's profile, the machine, the
versions, and what other graphs hold meanwhile. The same key goes into torch's own cache keys, so
that no code made for one budget is ever served for another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from fxremat.base import cache
from fxremat.constraints.user import module_path
from fxremat.costs.devices import profile
from fxremat.costs.tensor_meta import hint
from fxremat.options import Options
from fxremat.planning.assign import Room
from fxremat.planning.feedback import Feedback
from fxremat.plans.plan import FORMAT, Plan

__all__ = ["Record", "key_of", "load", "store"]

VERSION = "7"  # of what is planned and how code is ordered; raise it when either changes


@dataclass(frozen=True)
class Record:
    """What is known of a graph that has been compiled before.

    Attributes:
        plan: the plan, with the peak of the compiled code as its prediction.
        feedback: what it was told.
    """

    plan: Plan
    feedback: Feedback


def key_of(
    module: fx.GraphModule, inputs: Sequence[Any], options: Options, room: Room
) -> str | None:
    """The key of a graph's record, or None if an option is a callable, which has no name.

    Args:
        module: the graph that Dynamo captured.
        inputs: its inputs.
        options: the backend's.
        room: what the other graphs of the step leave to this one.
    """
    if any(callable(o) for o in (options.cost, options.policy)):
        return None
    devices = sorted({str(i.device) for i in inputs if isinstance(i, torch.Tensor)})
    asked = replace(options, dump=None)
    if options.budget.nbytes is None:
        room = replace(room, reserved=0)  # only bytes are shared
    parts = [
        f"{VERSION} {FORMAT} {asked} {room}",
        str(profile(options.device, torch.device(devices[-1] if devices else "cpu"))),
        *(cache.machine(torch.device(d)) for d in devices),
        *(_code(m.graph) for m in module.modules() if isinstance(m, fx.GraphModule)),
        *(_text(i) for i in inputs),
        f"{torch.is_grad_enabled()} {torch.is_inference_mode_enabled()}",
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def load(key: str) -> Record | None:
    """The record under a key, or None if there is none that can be read."""
    data = cache.load(f"plan-{key}")
    try:
        if data is None or int(data["margin"]) < 0:
            return None
        apart = frozenset(map(str, data["apart"]))
        feedback = Feedback(int(data["margin"]), apart, bool(data["realize"]))
        return Record(Plan.from_json(data["plan"]), feedback)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def store(key: str, record: Record) -> None:
    """Keep a record; where the folder cannot be written there will be no warm start."""
    told = record.feedback
    feedback = {"margin": told.margin, "apart": sorted(told.apart), "realize": told.realize}
    cache.store(f"plan-{key}", {"plan": record.plan.to_json(), **feedback})


def _code(graph: fx.Graph) -> str:
    notes = (f"{n.name} {module_path(n)} {n.meta.get('custom')}" for n in graph.nodes)
    return "\n".join((str(graph), *notes))


def _size(size: Any) -> Any:
    try:
        return hint(size)
    except Exception:  # the ragged size of a nested tensor has no number
        return str(size)


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        size, stride = [_size(s) for s in value.shape], [_size(s) for s in value.stride()]
        symbolic = [str(s) for s in value.shape]
        return (
            f"{value.dtype} {size} {stride} {symbolic} {value.device} {value.requires_grad} "
            f"{type(value).__name__}"
        )
    return str(value)
