"""From a joint graph to its two halves: the pipeline, one stage after the other.

::

    GraphModule -> JointGraph -> Problem -> Point -> Plan -> Split
       clean       from_module   formulate   solve            split
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import fx

from fxremat.frontend.analyze import Workspaces, prepare
from fxremat.options import Options
from fxremat.planning.feedback import NO_FEEDBACK, Feedback
from fxremat.planning.peers import Peers, SingleProcess
from fxremat.planning.select import decide
from fxremat.plans.plan import Plan
from fxremat.problem.types import Problem
from passes.printer import render
from passes.split.split import Split, split
from passes.split.verify import verify

__all__ = ["Planned", "Texts", "plan_joint"]


@dataclass(frozen=True, slots=True)
class Texts:
    """Graphs as text, see :mod:`passes.printer`; taken before an inner compiler changes them."""

    joint: str
    forward: str
    backward: str


@dataclass(frozen=True)
class Planned:
    """What came of one joint graph.

    Attributes:
        plan: the plan.
        problem: the problem that it solves.
        split: forward and backward as the plan says.
        workspaces: bytes that ops hold while they run, by signature.
        timings: seconds that each stage of planning took.
        texts: the joint graph, forward and backward as text, where a dump was asked for.
    """

    plan: Plan
    problem: Problem
    split: Split
    workspaces: dict[str, int]
    timings: dict[str, float]
    texts: Texts | None = None


def plan_joint(
    module: fx.GraphModule,
    num_fwd_outputs: int,
    options: Options,
    workspaces: Workspaces | None = None,
    marks: Mapping[str, str] | None = None,
    held: int = 0,
    peers: Peers | None = None,
    feedback: Feedback = NO_FEEDBACK,
) -> Planned:
    """Plan a joint graph and split it.

    Args:
        module: the joint graph; it is not changed.
        num_fwd_outputs: how many of its outputs belong to the forward.
        options: budget, cost model and the rest.
        workspaces: for the nodes of a graph, workspace bytes by signature; measured on the
            device by default.
        held: bytes that other graphs of the step hold meanwhile, part of a budget in bytes.
        marks: what the user's marks in the model say, by node; read from the graph by default.
        peers: the other processes that plan this graph; none by default.
        feedback: what is known of what the inner compiler makes of the graph.

    Raises:
        BudgetError: if no plan meets the budget and the options don't take the closest.
        RankError: if the process that plans for the others does not come to a plan.
        GraphError: for a graph that the pass cannot take.
        CostError: for an op whose cost cannot be told.
        InfeasibleError: if the rules leave a value that may be neither saved nor recomputed.
    """
    ready = prepare(module, num_fwd_outputs, options, workspaces, marks, feedback.apart)
    with ready.clock.stage("solver"):
        plan = (peers or SingleProcess()).agree(ready, lambda: decide(ready, feedback, held), held)
    with ready.clock.stage("split"):
        halves = split(ready.joint, plan.backward_schedule, plan.forward)
        verify(ready.joint, halves)
    texts = None
    if options.dump is not None:
        texts = Texts(*map(render, (ready.joint.module, halves.forward, halves.backward)))
    return Planned(plan, ready.context.problem, halves, ready.workspaces, ready.clock.timings, texts)
