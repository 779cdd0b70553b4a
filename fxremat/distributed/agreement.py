"""One graph on several ranks: who plans it, and what the others do with the plan."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field, replace
from datetime import timedelta

from fxremat.base.budget import format_bytes
from fxremat.base.errors import BudgetError, RankError
from fxremat.distributed.store import OWN, Store, wait
from fxremat.frontend.analyze import Prepared
from fxremat.planning.peers import MakePlan
from fxremat.planning.planner import Planner, planner_of, reader_of
from fxremat.planning.reapply import recall
from fxremat.plans.plan import Plan

__all__ = ["FirstWriter", "Follower", "Leader"]

END = b"end"


@dataclass
class _Shared:
    """A graph that several ranks compile.

    Attributes:
        store: where plans are left, by number of the attempt.
        timeout: how long to wait for another rank.
    """

    store: Store
    timeout: timedelta
    number: int = 0
    made: dict[int, Plan] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"plan {self.number}"

    def again(self) -> None:
        self.number += 1

    def agree(self, ready: Prepared, make: MakePlan, held: int = 0) -> Plan:
        """Inductor may ask twice in one attempt, with its caches and without."""
        if self.number not in self.made:
            self.made[self.number] = self._agreed(ready, make, held)
        return self.made[self.number]

    def _agreed(self, ready: Prepared, make: MakePlan, held: int) -> Plan:
        raise NotImplementedError


class Leader(_Shared):
    """The rank that decides for all that compile a graph equal to its own."""

    def _agreed(self, ready: Prepared, make: MakePlan, held: int) -> Plan:
        try:
            plan = make()
        except Exception as error:
            self.store.set(self.key, _failure(error))
            raise
        self.store.set(self.key, _text(plan))
        return plan

    def confirms(self, plan: Plan) -> bool:
        """Always: this rank decides."""
        return True

    def finish(self, plan: Plan | None) -> None:
        """Leave the plan, if a cache gave it back, and that no other will come."""
        if plan is not None:
            if not self.made:  # it came from a cache
                self.store.set(self.key, _text(plan))
            self.again()
        self.store.set(self.key, END)


class Follower(_Shared):
    """A rank that takes the plan of another."""

    def _agreed(self, ready: Prepared, make: MakePlan, held: int) -> Plan:
        said = self._read(self.key)
        if said == END:  # the code of this rank takes more, though its plan was the same
            return make()
        return _taken(ready, _plan(said), held)

    def confirms(self, plan: Plan) -> bool:
        """Whether the last plan of the rank that decides is this one."""
        number, last = 0, None
        while (said := self._read(f"plan {number}")) != END:
            last, number = _plan(said), number + 1
        return last is None or last.backward_schedule == plan.backward_schedule

    def finish(self, plan: Plan | None) -> None:
        """Nobody waits for this rank."""

    def _read(self, key: str) -> bytes:
        what = "the rank that plans for the others has not come to a plan"
        return wait(self.store, key, self.timeout, what)


class FirstWriter(_Shared):
    """A rank that waits for none: the first to leave a plan decides."""

    def _agreed(self, ready: Prepared, make: MakePlan, held: int) -> Plan:
        if self.store.check([self.key]):
            return _taken(ready, _plan(self.store.get(self.key)), held)
        plan = make()
        said = self.store.compare_set(self.key, "", _text(plan))
        return plan if said == _text(plan).encode() else _taken(ready, _plan(said), held)

    def confirms(self, plan: Plan) -> bool:
        """Whether no plan has been left yet, or this one has."""
        said: list[tuple[str, ...]] = []
        while self.store.check([f"plan {len(said)}"]):
            said.append(_plan(self.store.get(f"plan {len(said)}")).backward_schedule)
        return not said or plan.backward_schedule in said

    def finish(self, plan: Plan | None) -> None:
        """Leave the plan, if a cache gave it back and none is there yet."""
        if plan is not None and not self.made:
            self.store.compare_set(self.key, "", _text(plan))


def _text(plan: Plan) -> str:
    return replace(plan, context=None).to_json()


def _failure(error: Exception) -> str:
    least = {"asked": error.asked, "least": error.least} if isinstance(error, BudgetError) else None
    return json.dumps({"failed": f"{type(error).__name__}: {error}", "budget": least})


def _plan(said: bytes) -> Plan:
    """The plan that another rank left, or the error for which it left none."""
    data = json.loads(said)
    if "failed" not in data:
        return Plan.from_json(said.decode())
    message = f"the rank that plans for the others could not: {data['failed']}"
    if data["budget"] is not None:
        raise BudgetError(message, **data["budget"])
    raise RankError(message)


def _taken(ready: Prepared, plan: Plan, held: int) -> Plan:
    """A plan of another rank for the graph of this one, held to the budget of this one."""
    mine, ops = planner_of(ready), ready.context.op_index
    if not ops.keys() >= {*plan.forward, *plan.backward_schedule}:
        raise RankError(
            f"the joint graphs of the ranks differ ({mine.graph} and {plan.graph}), though they "
            f"were traced from the same ops. Use the same versions of torch on all ranks, {OWN}"
        )
    found = _replayed(ready, mine, replace(plan, graph=mine.graph))
    limit = plan.budget
    if limit is not None and ready.options.budget.nbytes is not None:
        limit += plan.reserved - held
    # Regions leave out values by times, which differ from rank to rank, and so do these two then.
    found = replace(
        found,
        budget=limit,
        reserved=held,
        baseline_peak=plan.baseline_peak,
        floor=plan.floor,
    )
    if limit is not None and found.predicted_peak > max(limit, plan.predicted_peak):
        message = (
            f"the plan that the ranks agree on peaks at {found.predicted_peak} bytes "
            f"({format_bytes(found.predicted_peak)}) here, above the budget of {limit} bytes: ops "
            f"take more workspace on this rank, or other graphs hold more. Ask for more, {OWN}"
        )
        if ready.options.on_infeasible == "raise":
            raise BudgetError(message, asked=limit, least=None)
        warnings.warn(message, stacklevel=2)
    return found


def _replayed(ready: Prepared, mine: Planner, plan: Plan) -> Plan:
    """A plan of another rank with the costs of this one."""
    try:
        return recall(mine, [plan])
    except ValueError:  # the leader's fusion feedback, or its choice within regions, differs
        found = recall(reader_of(ready), [plan])
    # Without fusion the replay counts values that the code never makes.
    fuses = ready.options.inner == "inductor"
    return replace(found, predicted_peak=plan.predicted_peak) if fuses else found
