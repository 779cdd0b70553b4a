"""Planning for Inductor: plan, compile, look at what the kernels hold, plan again if too much.

The plan is made for ops as Inductor is likely to fuse them (:mod:`fxremat.frontend.fusion`). What
it fused, and the peak of the compiled kernels, is known before anything runs. A plan that would
break its budget is made again: told of the values that took memory though they were taken for fused
or, if there are none, with as much margin as was lacking. The smallest peak is looked for in the
same way. How a graph is compiled and its code read is in :mod:`passes.inductor`, which knows no
budget.

torch's caches stay on: what has been compiled before comes with the plan that was kept of it
(:mod:`fxremat.backends.plan_cache`), and is neither planned nor compiled again.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from fxremat.backends import plan_cache
from fxremat.backends.plan_cache import Record, key_of
from fxremat.base.budget import resolve
from fxremat.base.errors import BudgetError
from fxremat.base.units import format_bytes
from fxremat.constraints.user import marks_in
from fxremat.costs import workspace
from fxremat.costs.tensor_meta import signature
from fxremat.frontend.analyze import external_workspaces
from fxremat.options import Options
from fxremat.planning.assign import ALONE, Room
from fxremat.planning.feedback import ATTEMPTS, Feedback, Round, next_feedback
from fxremat.planning.peers import Peers, SingleProcess
from fxremat.planning.pipeline import Planned, plan_joint
from fxremat.plans.plan import Plan
from fxremat.problem.types import Kind
from passes.node_utils import tensors_in

__all__ = ["Attempt", "trains"]


class Attempt:
    """One graph on its way through Inductor.

    Args:
        options: the backend's.
        room: what the other graphs of the step leave to this one.
        peers: the other processes that compile this graph.

    Attributes:
        compiled: what Inductor made of it last.
        excess: bytes by which the last compiled code was above the budget.
    """

    def __init__(self, options: Options, room: Room = ALONE, peers: Peers | None = None) -> None:
        from passes.inductor import Compiled

        self.options = options
        self.compiled = Compiled()
        self.planned: Planned | None = None
        self.excess = 0
        self._feedback = Feedback()
        self._rounds: list[Round] = []
        self._baseline: int | None = None
        self._workspaces: dict[str, int] = {}
        self._marks: dict[str, str] = {}
        self._room = room
        self._peers = peers or SingleProcess()
        self._key: str | None = None
        self._training = True
        self._known: Record | None = None

    def compile(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
        """Compile once; whether the result is within the budget.

        Raises:
            BudgetError: if it is not, after several plans, and the closest is not asked for.
        """
        if not self._rounds:
            self._key = key_of(module, example_inputs, self.options, self._room)
            self._known = None if self._key is None else plan_cache.load(self._key)
            if self._known is not None:
                self._feedback = self._known.feedback
                self._baseline = self._known.plan.baseline_peak
        if self._run_inductor(module, example_inputs):
            return True
        done = self._round()
        self.compiled.graphs.clear()  # frees Inductor's lowered graphs; all that is needed was read
        self._rounds.append(done)
        self.excess, peak, limit = done.excess, done.peak, done.limit
        if self.excess > 0 and self.options.plan is not None:
            warnings.warn(
                f"the code compiled for the given plan peaks at {peak} bytes, above its budget of "
                f"{limit} bytes; plan again with fxremat.backend({limit})",
                stacklevel=2,
            )
            self.excess = 0
        elif (after := next_feedback(self._rounds, self.options.budget.smallest)) is not None:
            self._feedback = after
            self._peers.again()
            return False
        if self.excess <= 0:
            self._keep()
            return True
        if self._room.shared:  # the step's graphs are given shares once all are known
            return True
        message = (
            f"no plan found that Inductor compiles to within {limit} bytes "
            f"({format_bytes(limit or 0)}); the last of {ATTEMPTS} needs {peak} bytes. "
            "Ask for more, for budget='min', or use inner='eager'"
        )
        if self.options.on_infeasible == "raise":
            raise BudgetError(message, asked=limit, least=peak)
        warnings.warn(message, stacklevel=2)
        return True

    def _round(self) -> Round:
        """The plan of this attempt and its code; the plan then predicts what the code holds."""
        planned, peak = self.planned, self._peak()
        if planned is None or peak is None:
            return Round(self._feedback, None, 0, None)
        again = planned.split.recomputed
        names = {again.get(name, name) for name in self.compiled.kept}
        fused = {v.name for v in planned.problem.values if v.fused}
        plan = self._corrected(planned.plan, peak)
        self._baseline = plan.baseline_peak
        self.planned = replace(planned, plan=plan)
        told = frozenset(names & fused)
        return Round(self._feedback, plan.budget, planned.plan.predicted_peak, peak, told)

    def _run_inductor(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
        """Compile; whether that gave what the record tells of."""
        from passes.inductor import compile_with_inductor

        cached = (True, False) if self._key is not None else (False,)
        for caches in cached:
            self.planned = None
            self.compiled = compile_with_inductor(
                module,
                example_inputs,
                self._partition,
                self._workspace,
                self._see,
                f"{self._key} {self._feedback}" if caches else None,
                self._feedback.realize,
            )
            if self.planned is None and not trains(example_inputs):
                self._training = False
                return True
            if self.compiled.both:
                self._known = None
                return False
            if self._of_record():
                return True
            self._known = None  # code from a cache without a record: compile it anew
        return False

    def _of_record(self) -> bool:
        """Whether the code that a cache gave back is that of the record's plan."""
        known = self._known
        if known is None:
            return False
        same = (
            self.planned is None
            or self.planned.plan.backward_schedule == known.plan.backward_schedule
        )
        if same and not self._peers.confirms(known.plan):
            self._feedback, self._baseline = Feedback(), None  # those of the other ranks
            return False
        return same

    def _keep(self) -> None:
        if self._key is not None and self.planned is not None:
            plan_cache.store(self._key, Record(self.planned.plan, self._feedback))

    @property
    def plan(self) -> Plan | None:
        """The plan, with the peak of the compiled code as its prediction; None for inference."""
        if not self._training:
            return None
        if self._known is not None:
            return self._known.plan
        return None if self.planned is None else self.planned.plan

    def _corrected(self, plan: Plan, peak: int) -> Plan:
        """The plan as its code is: it predicts the code's peak.

        One that recomputes nothing also tells what the baseline holds once it is compiled.
        """
        plan = replace(plan, predicted_peak=peak)
        if self._baseline is not None:  # the step is the same, and a fraction means the same bytes
            return replace(plan, baseline_peak=self._baseline)
        if plan.recomputed:
            return plan
        baseline = max(plan.baseline_peak, peak)
        limit = resolve(self.options.budget, baseline, self._room.reserved).nbytes
        budget = plan.budget if limit is None else limit
        return replace(plan, baseline_peak=baseline, budget=budget)

    def _peak(self) -> int | None:
        """Most bytes that the compiled step holds at once."""
        if self.planned is None:
            return None
        values = self.planned.problem.values
        saved = {v.name: v.nbytes for v in self.planned.plan.saved}
        peaks = self.compiled.peaks(saved)
        returned = sum(v.nbytes for v in values if v.is_output)
        handed_in = sum(v.nbytes for v in values if v.kind is Kind.TANGENT)
        return None if peaks is None else max(peaks[0], returned + handed_in + peaks[1])

    def _partition(
        self, joint: fx.GraphModule, _: Any, *, num_fwd_outputs: int, **__: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        self.planned = plan_joint(
            joint,
            num_fwd_outputs,
            self.options,
            external_workspaces,
            self._marks,
            self._room,
            self._peers,
            replace(self._feedback, baseline=self._baseline),
        )
        self._workspaces.update(self.planned.workspaces)
        return self.planned.split.forward, self.planned.split.backward

    def _see(self, graph: fx.Graph) -> None:
        self._marks = marks_in(graph)

    def _workspace(self, node: fx.Node) -> int:
        """What an op holds that runs as an external kernel, whatever made Inductor choose one."""
        tensors = tensors_in(node.meta.get("val"))
        if not tensors:
            return 0
        key = signature(node)
        if key not in self._workspaces:
            found = workspace.measure([node], tensors[0].device)
            self._workspaces[key] = found[key].workspace if key in found else 0
        return self._workspaces[key]


def trains(inputs: Sequence[Any]) -> bool:
    """Whether a step with these inputs may have a backward."""
    grads = (isinstance(i, torch.Tensor) and i.requires_grad for i in inputs)
    return torch.is_grad_enabled() and any(grads)
