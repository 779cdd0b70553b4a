"""A joint graph made ready for a solver: cleaned, costed, with the rules applied."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import fx

from fxremat.constraints.user import marks_in, module_paths, names, pins_of, warn_of_unmatched
from fxremat.costs import devices, workspace
from fxremat.costs.model import CostModel
from fxremat.costs.tensor_meta import GUESS, signature, storage_bytes, unbounded
from fxremat.costs.workspace import Measurement
from fxremat.frontend.build import Sizing, formulate, origins_of
from fxremat.frontend.fusion import SHARE, fused_values
from fxremat.frontend.regions import regions_of, within
from fxremat.options import Options
from fxremat.problem.context import Context
from fxremat.problem.types import Problem
from passes.analysis.joint import JointGraph, Role
from passes.cleanup.clean import clean
from passes.cleanup.late_writes import put_late_writes_last
from passes.printer import render
from passes.recompute.replay_support import with_replay_support
from passes.torch_internals import storage_key

__all__ = [
    "Clock",
    "Prepared",
    "Workspaces",
    "estimated_workspaces",
    "external_workspaces",
    "fingerprint",
    "prepare",
]

NOTHING = Measurement(0)  # of ops that were not asked about
Workspaces = Callable[[Sequence[fx.Node], torch.device], dict[str, Measurement]]


@dataclass
class Clock:
    """Seconds spent in each stage."""

    timings: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the seconds that the body takes to a stage."""
        start = time.perf_counter()
        yield
        self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True)
class Prepared:
    """A joint graph with all that a solver and a plan need.

    Attributes:
        joint: the cleaned graph.
        context: the problem that it poses, and where its ops come from.
        workspaces: bytes that ops hold while they run, by signature.
        options: what was asked for.
        clock: seconds that each stage took.
        unfused: makes the problem anew without fusion and without the budgets of regions. A plan
            from another process is checked with it: fusion and regions depend on times that were
            measured there, and may come out otherwise here.
    """

    joint: JointGraph
    context: Context
    workspaces: dict[str, int]
    options: Options
    clock: Clock
    unfused: Callable[[], Problem] = field(repr=False)


def prepare(
    module: fx.GraphModule,
    num_fwd_outputs: int,
    options: Options,
    workspaces: Workspaces | None = None,
    marks: Mapping[str, str] | None = None,
    materialized: Collection[str] = (),
) -> Prepared:
    """Read a joint graph, cost its ops and apply the rules.

    Args:
        module: the joint graph; it is not changed.
        num_fwd_outputs: how many of its outputs belong to the forward.
        options: cost model, device, pins and the rest.
        workspaces: for the nodes of a graph, what runs of their ops hold and return, by
            signature; measured on the device by default.
        marks: what the user's marks in the model say, by node; read from the graph by default.
        materialized: values that take memory though Inductor might have fused them.

    Raises:
        GraphError: for a graph that the pass cannot take.
        CostError: for an op whose cost cannot be told.
        InfeasibleError: if what is pinned contradicts itself or a rule.
    """
    clock = Clock()
    with clock.stage("joint"):
        module = put_late_writes_last(module, num_fwd_outputs)
        cleaned = JointGraph.from_module(clean(module), num_fwd_outputs)
        joint = with_replay_support(cleaned, replay=options.inner != "inductor")
    with clock.stage("costs"):
        device = _device_of(joint)
        profile = devices.profile(options.device, device)
        ops = [n for n in joint.nodes if joint.roles[n.name] is Role.OP]
        seen = (workspaces or workspace.measure)(ops, device)
        pins = pins_of(joint, options.policy, marks_in(module.graph) if marks is None else marks)
        sizing = _sizing(ops, device, profile, options, seen)
        fused: dict[str, tuple[str, ...]] = {}
        if options.inner == "inductor" and options.plan is None:
            decided = {*pins.saved, *pins.recomputed, *pins.weights, *materialized}
            fused = fused_values(joint, sizing.storage, decided)
        regions = regions_of(joint, options.regions)
        loops = _within_loops(sizing, fused, options)
        problem = within(formulate(joint, loops, pins, fused), regions)
        inner = options.inner if isinstance(options.inner, str) else "callable"
        context = Context(
            problem=problem,
            origins=origins_of(joint),
            device=profile.name,
            inner=inner,
            weights=pins.weights,
            unmeasured=tuple(n.name for n in ops if not seen.get(signature(n), NOTHING).known),
        )
    _warn_of_guesses(joint)
    if isinstance(options.policy, tuple):
        warn_of_unmatched(joint, "policy", [p for p, _ in options.policy], names)
    warn_of_unmatched(joint, "regions", [p for p, _ in options.regions], module_paths)
    meanwhile = {key: m.workspace for key, m in seen.items()}
    unfused = partial(formulate, joint, sizing, pins)
    return Prepared(joint, context, meanwhile, options, clock, unfused)


def _warn_of_guesses(joint: JointGraph) -> None:
    for node in joint.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and unbounded(value):
            warnings.warn(
                f"{node.name}: its size depends on data and has no upper bound, so {GUESS} is "
                "taken for it and the peak is a guess; bound it with torch._check(size <= ...)",
                stacklevel=2,
            )
            return


def external_workspaces(nodes: Sequence[fx.Node], device: torch.device) -> dict[str, Measurement]:
    """What ops hold that Inductor runs as ATen's own kernels, by signature; it fuses the others."""
    from passes.inductor import is_external

    return workspace.measure([n for n in nodes if is_external(n)], device)


def estimated_workspaces(nodes: Sequence[fx.Node], device: torch.device) -> dict[str, Measurement]:
    """What ops are estimated to hold, by signature, for a device that is not here."""
    return workspace.estimate(nodes)


def _device_of(joint: JointGraph) -> torch.device:
    """The device that a graph runs on: that of its first result on an accelerator, or the CPU."""
    for node in joint.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.device.type not in ("cpu", "meta"):
            return value.device
    return torch.device("cpu")


def _sizing(
    ops: list[fx.Node],
    device: torch.device,
    profile: devices.DeviceProfile,
    options: Options,
    seen: Mapping[str, Measurement],
) -> Sizing:
    timings: dict[str, float] = {}
    if options.cost == "measured":
        timings = workspace.timings(workspace.measure(ops, device, timed=True))
    model = CostModel(profile, options.cost, timings)
    more = workspace.excess(ops, seen)
    return Sizing(
        seconds=lambda node: model.cost(node).seconds,
        flops=lambda node: model.cost(node).flops,
        storage=lambda tensor: storage_bytes(
            tensor, profile.rounding, more.get(storage_key(tensor), 0)
        ),
        workspace=lambda node: seen.get(signature(node), NOTHING).workspace,
    )


def _within_loops(sizing: Sizing, fused: Collection[str], options: Options) -> Sizing:
    """Costs in which a fused op takes a share of its time; those that the user gives stay."""
    if not fused or callable(options.cost):
        return sizing
    return replace(sizing, seconds=lambda n: sizing.seconds(n) * (SHARE if n.name in fused else 1))


def fingerprint(joint: JointGraph) -> str:
    """A hash of a graph's text, the same for the same graph in every process."""
    text = f"{joint.num_fwd_outputs}\n{render(joint.module)}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
