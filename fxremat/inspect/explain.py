"""Why each value is saved or recomputed, what the other choice would cost, what memory is worth.

All of it is computed from a plan with its context: neither torch nor the model is needed.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, replace
from functools import cached_property

from fxremat.base.budget import format_bytes
from fxremat.base.errors import InfeasibleError, OptionError
from fxremat.base.units import count, format_seconds
from fxremat.inspect.decisions import Choice, Verdict, verdicts
from fxremat.planning.planner import Planner
from fxremat.plans.plan import Plan
from fxremat.problem.liveness import Holding, Interval, Occupancy, occupancy
from fxremat.problem.context import Context
from fxremat.problem.replay import replay
from fxremat.problem.types import Kind, Problem
from fxremat.solver.peak import PeakSolver
from fxremat.solver.seeds.cuts import baseline

__all__ = ["Explainer", "Flip", "Worth", "explain"]

TOP = 10


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
        plan: a plan with its context.
        name: a value or an op of the plan; None tells of the peak, of what is live there, and
            of what more memory would be worth. The graph is planned anew a few times.

    Raises:
        OptionError: if the plan has no such value, or no context.
    """
    explainer = Explainer(plan)
    return explainer.summary() if name is None else explainer.about(name)


class Explainer:
    """Answers questions about one plan.

    Args:
        plan: a plan with its context.

    Raises:
        OptionError: if the plan has no context.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.context: Context = plan.context
        self.problem: Problem = self.context.problem

    # What is there.

    @cached_property
    def schedule(self) -> tuple[int, ...]:
        """The backward's ops, by index."""
        return tuple(self.context.op_index[name] for name in self.plan.backward_schedule)

    @cached_property
    def occupancy(self) -> Occupancy:
        """What is live when."""
        return occupancy(self.problem, self.schedule)

    @cached_property
    def before(self) -> Occupancy | None:
        """The same for the plan that recomputes nothing, where the rules allow one."""
        try:
            return occupancy(self.problem, baseline(self.problem))
        except ValueError:
            return None

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """What is done with each value, by its name, in graph order."""
        return verdicts(self.plan, self.schedule)

    # What else there could be.

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
        verdict = self.verdicts[self.find(name)]
        if verdict.choice is Choice.SAVED:
            return self._forced(verdict.name, Choice.RECOMPUTED)
        if verdict.choice is Choice.RECOMPUTED:
            return self._forced(verdict.name, Choice.SAVED)
        return None

    def _forced(self, name: str, choice: Choice) -> Flip:
        index = self.context.value_index[name]
        problem = self.context.priced
        op, value = problem.ops[problem.producer[index]], problem.values[index]
        if choice is Choice.RECOMPUTED:
            if op.fixed:
                return Flip(choice, None, f"{op.name} may not run again: {op.fixed}")
            forced = _with_value(problem, index, "asked to be recomputed")
        else:
            if value.unsaveable:
                return Flip(choice, None, f"it may not be saved: {value.unsaveable}")
            forced = _with_op(problem, problem.producer[index], "asked to be saved")
        try:
            found = PeakSolver(forced).solve(self.limit)
        except InfeasibleError as error:
            return Flip(choice, None, "; ".join(error.path) or str(error))
        if found is None:
            return Flip(choice, None, f"no plan found within {format_bytes(self.limit)}")
        return Flip(choice, found.seconds - self._own_seconds)

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

    def at_peak(self, count: int = TOP) -> list[Interval]:
        """The largest copies that are live where most is live."""
        return self.occupancy.at(self.occupancy.peak)[:count]

    # In words.

    def about(self, name: str) -> str:
        """All that can be said of one value, in lines.

        Raises:
            OptionError: if the plan has no such value.
        """
        verdict = self.verdicts[self.find(name)]
        made = self.problem.producer[self.context.value_index[verdict.name]]
        op = self.problem.ops[made] if made >= 0 else None
        origin = self.context.origin(verdict.name)
        title = f"{verdict.name}: {verdict.choice}"
        lines = [f"{title}, {format_bytes(verdict.nbytes)}" if verdict.nbytes else title]
        lines.append(f"why        {verdict.reason}")
        lines.append(f"made by    {origin.op} -> {origin.shape}")
        if op is not None and op.name != verdict.name:
            lines[-1] += f" (a result of {op.name})"
        if origin.module:
            lines.append(f"in         {origin.module}")
        if origin.source:
            lines.append(f"at         {origin.source}  {origin.code}".rstrip())
        if verdict.choice in (Choice.SAVED, Choice.RECOMPUTED):
            lines += self._cost(verdict)
            flip = self.flip(verdict.name)
            assert flip is not None
            lines.append(f"flip       {self._flip(flip)}")
        if verdict.runs:
            again = count(verdict.runs, "time")
            lines.append(f"again      its op runs again {again} in the backward")
        lines.append(f"worth      {self.worth()}")
        return "\n".join(lines)

    def _cost(self, verdict: Verdict) -> list[str]:
        if not verdict.rebuild:
            return ["cost       it cannot be computed again"]
        chain = ", ".join(verdict.rebuild[-6:])
        rest = len(verdict.rebuild) - 6
        more = f"{rest} more before, " if rest > 0 else ""
        share = verdict.rebuild_seconds / (self.plan.step_seconds or 1.0)
        text = f"{format_seconds(verdict.rebuild_seconds)}, {share:.2%} of a step"
        return [f"cost       with its ancestors {text}: {more}{chain}"]

    def _flip(self, flip: Flip) -> str:
        if flip.seconds is None:
            return f"it cannot be {flip.choice}: {flip.why}"
        amount = f"{format_seconds(abs(flip.seconds))} {'more' if flip.seconds >= 0 else 'less'}"
        return f"were it {flip.choice}, the best plan found within {self._within} takes {amount}"

    @property
    def _within(self) -> str:
        return format_bytes(self.limit)

    def worth(self) -> str:
        """The shadow price of memory at the peak, in words."""
        more, less = self.more, self.less
        text = (
            f"{format_bytes(more.nbytes)} more would save {format_seconds(more.seconds or 0.0)} a "
            f"step"
        )
        if less.seconds is None:
            return f"{text}; there is no plan with {format_bytes(-less.nbytes)} less"
        cost = format_seconds(-less.seconds)
        return f"{text}, {format_bytes(-less.nbytes)} less would cost {cost}"

    def summary(self) -> str:
        """The plan's peak: where it is, what is live there, what memory is worth there."""
        line = self.occupancy
        op = self.problem.ops[line.ops[line.peak]].name if line.ops else "nothing"
        half = "forward" if line.peak < line.boundary else "backward"
        lines = [f"peak       {self._within} in the {half}, while {op} runs"]
        if line.ops and line.workspace[line.peak]:
            lines.append(f"           {format_bytes(line.workspace[line.peak])} of it is workspace")
        lines.append(f"worth      {self.worth()}")
        lines.append("largest at the peak:")
        for one in self.at_peak():
            lines.append(f"{format_bytes(one.nbytes):>12}  {self._live(one)}")
        return "\n".join(lines)

    def _live(self, one: Interval) -> str:
        name = self.problem.values[one.value].name
        verdict, origin = self.verdicts[name], self.context.origin(name)
        where = f" in {origin.module}" if origin.module else ""
        rebuilt = one.holding in (Holding.SAVED, Holding.RECOMPUTED) and verdict.rebuild
        cost = f", {format_seconds(verdict.rebuild_seconds)} to make again" if rebuilt else ""
        return f"{one.holding:<10}  {name}{where}{cost}"


def _with_value(problem: Problem, index: int, why: str) -> Problem:
    values = list(problem.values)
    values[index] = replace(values[index], unsaveable=why)
    return replace(problem, values=tuple(values))


def _with_op(problem: Problem, index: int, why: str) -> Problem:
    ops = list(problem.ops)
    ops[index] = replace(ops[index], fixed=ops[index].fixed or why)
    return replace(problem, ops=tuple(ops))
