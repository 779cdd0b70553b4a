"""Why each value is saved or recomputed, what the other choice would cost, what memory is worth.

All of it is computed from a plan with its context: neither torch nor the model is needed.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, replace
from functools import cached_property

from fxremat.base.errors import InfeasibleError, OptionError
from fxremat.base.units import count, format_bytes, format_seconds
from fxremat.inspect.step import Choice, Decision, PlannedStep
from fxremat.planning.planner import Planner
from fxremat.plans.plan import Plan
from fxremat.problem.liveness import Holding, Interval
from fxremat.problem.replay import replay
from fxremat.problem.types import Kind
from fxremat.solver.peak_solver import PeakSolver

__all__ = ["Explainer", "Flip", "Worth", "explain"]

TOP = 10
CHAIN = 6  # ops that are listed of those that make a value again


@dataclass(frozen=True, slots=True)
class Flip:
    """What a plan would be like if one value had to be treated the other way.

    Attributes:
        choice: the other way.
        seconds: by how much longer the best plan within the same peak would recompute, or None if
            there is no such plan.
        why: what stands in the way, or "".
    """

    choice: Choice
    seconds: float | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Worth:
    """What a change of the budget is worth.

    Attributes:
        nbytes: the change.
        seconds: by how much less the plan would recompute; None if there is no plan there.
    """

    nbytes: int
    seconds: float | None


def explain(plan: Plan, name: str | None = None) -> str:
    """Why a value is saved or recomputed, and what it would take to do otherwise.

    Args:
        plan: the plan.
        name: a value or an op of the plan; None tells of the peak, of what is live there, and
            of what more memory would be worth. The graph is planned anew a few times.

    Raises:
        OptionError: if the plan has no such value, or no context.
    """
    explainer = Explainer(plan)
    return explainer.summary() if name is None else explainer.about(name)


class Explainer(PlannedStep):
    """Answers questions about one plan, also of what else there could be.

    Args:
        plan: the plan.
    """

    @cached_property
    def planner(self) -> Planner:
        """Makes other plans of the graph; it keeps what it has searched."""
        return Planner.of(self.plan)

    @cached_property
    def limit(self) -> int:
        """The bytes that other plans are held to: the plan's own peak."""
        return max(self.occupancy.levels, default=0)

    def find(self, name: str) -> str:
        """The value that a name stands for: a value's own, or that of the op that makes it.

        Raises:
            OptionError: if there is none; the nearest names are listed.
        """
        if name in self.context.value_index:
            return name
        index = self.context.op_index.get(name)
        if index is not None and self.problem.ops[index].outputs:
            return self.problem.values[self.problem.ops[index].outputs[0]].name
        known = list({**self.context.value_index, **self.context.op_index})
        near = [n for n in difflib.get_close_matches(name, known, n=4, cutoff=0.5) if n != name]
        hint = f"; near it are {', '.join(near[:3])}" if near else ""
        raise OptionError(
            f"the plan has no value {name!r}{hint}. Names are those of nodes of the joint graph, "
            "as in plan.saved and plan.backward_schedule"
        )

    def flip(self, name: str) -> Flip | None:
        """What the plan would be if a value were treated the other way; None if there is no other.

        The whole graph is planned anew with that choice made, within the same peak.
        """
        decision = self.decisions[self.find(name)]
        if decision.choice not in (Choice.SAVED, Choice.RECOMPUTED):
            return None
        problem, index = self.context.priced, self.context.value_index[decision.name]
        maker, values, ops = problem.producer[index], list(problem.values), list(problem.ops)
        if decision.choice is Choice.SAVED:
            other, fixed = Choice.RECOMPUTED, ops[maker].fixed
            why = f"{ops[maker].name} may not run again: {fixed}" if fixed else ""
            values[index] = replace(values[index], unsaveable="asked to be recomputed")
        else:
            other, unsaveable = Choice.SAVED, values[index].unsaveable
            why = f"it may not be saved: {unsaveable}" if unsaveable else ""
            ops[maker] = replace(ops[maker], fixed=ops[maker].fixed or "asked to be saved")
        if why:
            return Flip(other, None, why)
        try:
            forced = replace(problem, values=tuple(values), ops=tuple(ops))
            found = PeakSolver(forced).solve(self.limit)
        except InfeasibleError as error:
            return Flip(other, None, "; ".join(error.path) or str(error))
        if found is None:
            return Flip(other, None, f"no plan found within {format_bytes(self.limit)}")
        return Flip(other, found.seconds - self._own_seconds)

    @cached_property
    def _own_seconds(self) -> float:
        """Recompute time of the plan, as the solver sees it."""
        return replay(self.context.priced, self.schedule).recompute_seconds

    @property
    def _change(self) -> int:
        """What is asked of the worth of memory: a round number of bytes.

        It has room for the largest value, and is at least a 64th of the baseline's peak.
        """
        largest = max((v.nbytes for v in self.problem.values if v.kind is Kind.COMPUTED), default=1)
        wanted = max(largest, self.plan.baseline_peak // 64, 1)
        return int(2 ** math.ceil(math.log2(wanted)))

    @cached_property
    def more(self) -> Worth:
        """What a little more memory would be worth: the next plans are searched for."""
        return self._worth(self._change)

    @cached_property
    def less(self) -> Worth:
        """What a little less memory would cost."""
        return self._worth(-self._change)

    def _worth(self, change: int) -> Worth:
        found = self.planner.solver.solve(self.limit + change)
        if found is None:
            return Worth(change, None)
        gain = self._own_seconds - found.seconds
        return Worth(change, max(0.0, gain) if change > 0 else min(0.0, gain))

    def at_peak(self, most: int = TOP) -> list[Interval]:
        """The largest copies that are live where most is live."""
        return self.occupancy.at(self.occupancy.peak_position)[:most]

    # In words.

    def about(self, name: str) -> str:
        """All that can be said of one value, in lines.

        Raises:
            OptionError: if the plan has no such value.
        """
        decision = self.decisions[self.find(name)]
        made = self.problem.producer[self.context.value_index[decision.name]]
        op = self.problem.ops[made].name if made >= 0 else decision.name
        origin = self.context.origin(decision.name)
        size = f", {format_bytes(decision.nbytes)}" if decision.nbytes else ""
        lines = [
            f"{decision.name}: {decision.choice}{size}",
            f"why        {decision.reason}",
            f"made by    {origin.op} -> {origin.shape}"
            + (f" (a result of {op})" if op != decision.name else ""),
        ]
        if origin.module:
            lines.append(f"in         {origin.module}")
        if origin.source:
            lines.append(f"at         {origin.source}  {origin.code}".rstrip())
        flip = self.flip(decision.name)
        if flip is not None:
            lines += [f"cost       {self._cost(decision)}", f"flip       {self._flip(flip)}"]
        if decision.runs:
            again = count(decision.runs, "time")
            lines.append(f"again      its op runs again {again} in the backward")
        return "\n".join([*lines, f"worth      {self.worth()}"])

    def _cost(self, decision: Decision) -> str:
        if not decision.rebuild:
            return "it cannot be computed again"
        rest = len(decision.rebuild) - CHAIN
        chain = ", ".join(decision.rebuild[-CHAIN:])
        more = f"{rest} more before, " if rest > 0 else ""
        share = decision.rebuild_seconds / (self.plan.step_seconds or 1.0)
        text = f"{format_seconds(decision.rebuild_seconds)}, {share:.2%} of a step"
        return f"with its ancestors {text}: {more}{chain}"

    def _flip(self, flip: Flip) -> str:
        if flip.seconds is None:
            return f"it cannot be {flip.choice}: {flip.why}"
        amount = f"{format_seconds(abs(flip.seconds))} {'more' if flip.seconds >= 0 else 'less'}"
        within = format_bytes(self.limit)
        return f"were it {flip.choice}, the best plan found within {within} takes {amount}"

    def worth(self) -> str:
        """The shadow price of memory at the peak, in words."""
        more, less = self.more, self.less
        saved = format_seconds(more.seconds or 0.0)
        text = f"{format_bytes(more.nbytes)} more would save {saved} a step"
        if less.seconds is None:
            return f"{text}; there is no plan with {format_bytes(-less.nbytes)} less"
        cost = format_seconds(-less.seconds)
        return f"{text}, {format_bytes(-less.nbytes)} less would cost {cost}"

    def summary(self) -> str:
        """The plan's peak: where it is, what is live there, what memory is worth there."""
        line = self.occupancy
        op = self.problem.ops[line.ops[line.peak_position]].name if line.ops else "nothing"
        half = "forward" if line.peak_position < line.boundary else "backward"
        lines = [f"peak       {format_bytes(self.limit)} in the {half}, while {op} runs"]
        if line.ops and line.workspace[line.peak_position]:
            lines.append(
                f"           {format_bytes(line.workspace[line.peak_position])} of it is workspace"
            )
        lines += [f"worth      {self.worth()}", "largest at the peak:"]
        lines += [f"{format_bytes(one.nbytes):>12}  {self._live(one)}" for one in self.at_peak()]
        return "\n".join(lines)

    def _live(self, one: Interval) -> str:
        name = self.problem.values[one.value].name
        decision, origin = self.decisions[name], self.context.origin(name)
        where = f" in {origin.module}" if origin.module else ""
        rebuilt = one.holding in (Holding.SAVED, Holding.RECOMPUTED) and decision.rebuild
        cost = f", {format_seconds(decision.rebuild_seconds)} to make again" if rebuilt else ""
        return f"{one.holding:<10}  {name}{where}{cost}"
