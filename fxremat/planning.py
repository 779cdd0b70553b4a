"""From a joint graph to its two halves: the pipeline, one stage after the other.

::

    GraphModule -> JointGraph -> Problem -> Point -> Plan -> Split
       clean       from_module   formulate   solve            split
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import fx

from passes.cleanup import clean
from passes.early import with_early
from passes.joint import JointGraph, Role, check_graph
from passes.split import Split, split
from passes.text import render
from passes.verify import verify

from . import profiles, workspace
from .budget import Budget, format_bytes
from .cost import CostModel, storage_bytes
from .errors import BudgetError
from .fakes import GUESS, signature, unbounded
from .formulate import Sizing, formulate
from .options import Options
from .pins import Pins, marks_in, pins_of
from .plan import Plan, SavedValue
from .problem import Phase, Problem
from .regions import regions_of, within
from .solvers.exact import solve_several
from .solvers.peak import PeakSolver
from .solvers.pool import Point
from .timeline import Timeline, copies, replay

__all__ = ["Planned", "plan_joint"]

Workspaces = Callable[[Sequence[fx.Node], torch.device], dict[str, int]]


@dataclass(frozen=True)
class Planned:
    """What came of one joint graph.

    Attributes:
        plan: the plan.
        problem: the problem that it solves.
        split: forward and backward as the plan says.
        workspaces: bytes that ops hold while they run, by signature.
    """

    plan: Plan
    problem: Problem
    split: Split
    workspaces: dict[str, int]


@dataclass
class _Clock:
    """Seconds spent in each stage."""

    timings: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - start


def plan_joint(
    module: fx.GraphModule,
    num_fwd_outputs: int,
    options: Options,
    workspaces: Workspaces | None = None,
    margin: int = 0,
    marks: Mapping[str, str] | None = None,
    held: int = 0,
) -> Planned:
    """Plan a joint graph and split it.

    Args:
        module: the joint graph; it is not changed.
        num_fwd_outputs: how many of its outputs belong to the forward.
        options: budget, cost model and the rest.
        workspaces: for the nodes of a graph, workspace bytes by signature; measured on the
            device by default.
        margin: bytes to stay below the budget, for what the inner compiler adds.
        held: bytes that other graphs of the step hold meanwhile, part of a budget in bytes.
        marks: what the user's marks in the model say, by node; read from the graph by default.

    Raises:
        BudgetError: if no plan meets the budget and the options don't take the closest.
        GraphError: for a graph that the pass cannot take.
        CostError: for an op whose cost cannot be told.
        InfeasibleError: if the rules leave a value that may be neither saved nor recomputed.
    """
    clock = _Clock()
    with clock.stage("joint"):
        check_graph(module.graph, num_fwd_outputs)
        joint = JointGraph.from_module(clean(module), num_fwd_outputs)
        joint = with_early(joint, replay=options.inner != "inductor")
    with clock.stage("costs"):
        device = device_of(joint)
        ops = [n for n in joint.nodes if joint.roles[n.name] is Role.OP]
        spaces = (workspaces or measured_workspaces)(ops, device)
        pins = pins_of(joint, options.policy, marks_in(module.graph) if marks is None else marks)
        problem = formulate(joint, _sizing(ops, device, options, spaces), pins)
        problem = within(problem, regions_of(joint, options.regions))
    _warn_of_guesses(joint)
    with clock.stage("solver"):
        priced = _priced(problem, pins)
        solver = PeakSolver(priced, options.effort, options.time_limit)
        limit, point = _choose(solver, options, margin, held)
        proved = True
        if options.solver == "exact" and point.seconds > 0:
            point, proved = _exact(solver, limit, point, options, margin)
    with clock.stage("split"):
        timeline = replay(problem, point.schedule)
        complete = proved and not solver.timed_out
        judge = solver if priced is problem else PeakSolver(problem)
        plan = _plan(joint, problem, judge, limit, point, timeline, complete, clock.timings)
        plan = replace(plan, held=held)
        halves = split(joint, plan.schedule, plan.forward)
        verify(joint, halves)
    return Planned(plan, problem, halves, spaces)


def _priced(problem: Problem, pins: Pins) -> Problem:
    """The problem with what the user prefers in the times of ops; the solver sees these alone."""
    if not pins.weights:
        return problem
    ops = (replace(o, seconds=o.seconds * pins.weights.get(o.name, 1.0)) for o in problem.ops)
    return replace(problem, ops=tuple(ops))


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


def measured_workspaces(nodes: Sequence[fx.Node], device: torch.device) -> dict[str, int]:
    """Workspace bytes by signature, measured on the device."""
    return {key: m.workspace for key, m in workspace.measure(nodes, device).items()}


def external_workspaces(nodes: Sequence[fx.Node], device: torch.device) -> dict[str, int]:
    """The same for ops that Inductor runs as ATen's own kernels; it fuses the others."""
    from passes.inductor import is_external

    return measured_workspaces([n for n in nodes if is_external(n)], device)


def device_of(joint: JointGraph) -> torch.device:
    """The device that a graph runs on: that of its first result on an accelerator, or the CPU."""
    for node in joint.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.device.type not in ("cpu", "meta"):
            return value.device
    return torch.device("cpu")


def _sizing(
    ops: list[fx.Node], device: torch.device, options: Options, held: dict[str, int]
) -> Sizing:
    profile = profiles.profile(options.device, device)
    timings: dict[str, float] = {}
    if options.cost == "measured":
        timings = workspace.timings(workspace.measure(ops, device, timed=True))
    model = CostModel(profile, options.cost, timings)
    return Sizing(
        seconds=lambda node: model.cost(node).seconds,
        flops=lambda node: model.cost(node).flops,
        storage=lambda tensor: storage_bytes(tensor, profile.rounding),
        workspace=lambda node: held.get(signature(node), 0),
    )


def _choose(
    solver: PeakSolver, options: Options, margin: int, held: int
) -> tuple[int | None, Point]:
    """The limit in bytes and the plan for it, ``margin`` bytes below if there is one."""
    budget: Budget = options.budget
    if budget.smallest:
        return None, solver.least()
    limit = budget.limit(solver.baseline.peak)
    if limit is not None and budget.nbytes is not None:
        limit -= held
    found = solver.solve(2**62 if limit is None else limit - margin)
    if found is not None:
        return limit, found
    least = solver.least()
    if limit is not None and least.peak <= limit:
        return limit, least
    message = _too_small(solver, limit or 0, least)
    if held and limit is not None and least.peak <= limit + held:
        # What the other graphs hold was settled before this one was known.
        warnings.warn(
            f"the step exceeds its budget by {format_bytes(least.peak - limit)}: other graphs hold "
            f"{format_bytes(held)} for their backward, and this one needs "
            f"{format_bytes(least.peak)} at least; avoid the graph break, or give a smaller budget",
            stacklevel=2,
        )
        return limit, least
    if options.on_infeasible == "raise":
        raise BudgetError(message, asked=limit, least=least.peak)
    warnings.warn(message, stacklevel=2)
    return limit, least


def _exact(
    solver: PeakSolver, limit: int | None, point: Point, options: Options, margin: int
) -> tuple[Point, bool]:
    """The cheapest plan of its class, and whether that is proved within the time limit."""
    within = point.peak if limit is None else max(limit - margin, point.peak)
    left = None if options.time_limit is None else max(0.1, solver.seconds_left)
    found = solve_several(solver.problem, within, time_limit=left, start=point.schedule)
    return found.point or point, found.proved


def _too_small(solver: PeakSolver, limit: int, least: Point) -> str:
    problem = solver.problem
    timeline = replay(problem, least.schedule)
    where, live = _at_peak(problem, least, timeline)
    return (
        f"no plan found within {limit} bytes ({format_bytes(limit)}); the least peak found is "
        f"{least.peak} bytes ({format_bytes(least.peak)}), while {where} runs, where the largest "
        f"live values are {live}. Ask for at least {least.peak} bytes, for budget='min', or "
        "shrink the batch"
    )


def _at_peak(problem: Problem, point: Point, timeline: Timeline) -> tuple[str, str]:
    if max(timeline.forward, default=0) >= max(timeline.backward, default=0):
        position = timeline.forward.index(timeline.peak)
        op = problem.ops[timeline.order[position]]
        alive = {*op.inputs, *op.outputs, *timeline.saved}
    else:
        position = timeline.backward.index(timeline.peak)
        op = problem.ops[point.schedule[position]]
        alive = {c.value for c in copies(problem, point.schedule) if c.start <= position <= c.end}
    largest = sorted(alive, key=lambda v: (-problem.values[v].nbytes, v))[:5]
    named = (
        f"{problem.values[v].name} ({format_bytes(problem.values[v].nbytes)})" for v in largest
    )
    return op.name, ", ".join(named)


def _plan(
    joint: JointGraph,
    problem: Problem,
    solver: PeakSolver,
    limit: int | None,
    point: Point,
    timeline: Timeline,
    complete: bool,
    timings: dict[str, float],
) -> Plan:
    names = [op.name for op in problem.ops]
    first: set[int] = set(timeline.hoisted)
    recomputed: list[str] = []
    for op in point.schedule:
        if problem.ops[op].phase is Phase.FORWARD or op in first:
            recomputed.append(names[op])
        first.add(op)
    return Plan(
        graph=fingerprint(joint),
        budget=limit,
        predicted_peak=timeline.peak,
        baseline_peak=solver.baseline.peak,
        floor=solver.floor,
        recompute_seconds=timeline.recompute_seconds,
        lower_bound_seconds=solver.lower_bound(max(limit or point.peak, point.peak)),
        step_seconds=problem.step_seconds,
        recompute_flops=timeline.recompute_flops,
        saved=tuple(
            SavedValue(problem.values[v].name, problem.values[v].nbytes) for v in timeline.saved
        ),
        forward=tuple(names[o] for o in timeline.order),
        schedule=tuple(names[o] for o in point.schedule),
        recomputed=tuple(recomputed),
        complete=complete,
        timings=timings,
    )


def fingerprint(joint: JointGraph) -> str:
    """A hash of a graph's text, the same for the same graph in every process."""
    text = f"{joint.num_fwd_outputs}\n{render(joint.module)}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
