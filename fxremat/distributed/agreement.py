"""One plan of one graph for all ranks that compile it: the first to come decides.

Who comes to an attempt first claims it, plans, and leaves the plan, or the error for which there is
none. Whoever finds a claim waits for what its rank leaves. That rank waits for nobody while it
plans, so nobody waits in a circle.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from fxremat.base.codec import decode, encode
from fxremat.base.errors import BudgetError, RankError, RewriteError
from fxremat.base.units import format_bytes
from fxremat.frontend.analyze import Prepared
from fxremat.planning.peers import MakePlan
from fxremat.planning.planner import Planner, planner_of, reader_of
from fxremat.planning.reapply import recall
from fxremat.plans.parts import Decision, Parts, Prediction
from fxremat.plans.plan import Plan

__all__ = ["OWN", "FirstWriter", "Store", "room", "wait", "write_first"]

Store = Any  # torch.distributed.Store, which torch does not export to type checkers
OWN = "or give the backend ranks='own', and every rank plans for itself"

PATIENCE = timedelta(seconds=60)  # then it is said who is waited for
MOMENT = timedelta(milliseconds=1)
log = logging.getLogger(__name__)


def room(store: Store, name: str) -> Store:
    """A part of a store with keys of its own."""
    distributed: Any = dist
    return distributed.PrefixStore(name, store)


def write_first(store: Store, key: str, value: str) -> str:
    """Leave a value, unless another rank has left one before; what is there then."""
    return bytes(store.compare_set(key, "", value)).decode()


def wait(store: Store, keys: Sequence[str], timeout: timedelta, what: Callable[[], str]) -> None:
    """Wait until something is left under all of the keys.

    Args:
        store: where.
        keys: under what.
        timeout: how long to wait.
        what: says what has not happened, for instance "rank 1 has not come".

    Raises:
        RankError: if it is not there in time.
    """
    try:
        try:
            store.wait(keys, min(timeout, PATIENCE))
        except dist.DistStoreError:
            log.warning("%s yet; waiting for %.0f s in all", what(), timeout.total_seconds())
            store.wait(keys, max(timeout - PATIENCE, MOMENT))
    except dist.DistStoreError as error:
        raise RankError(
            f"{what()} within {timeout.total_seconds():.0f} s, the timeout of the process group. "
            "All ranks must compile the same training graphs, in the same order. Let them run the "
            f"same code, give init_process_group(timeout=...) more if a rank is slow, {OWN}"
        ) from error


@dataclass
class FirstWriter:
    """A graph that several ranks compile; see :class:`fxremat.planning.peers.Peers`.

    Attributes:
        store: where claims and plans are left, by number of the attempt.
        rank: that of this process.
        timeout: how long to wait for a plan that another rank is making.
    """

    store: Store
    rank: int
    timeout: timedelta
    _attempt: int = 0
    _agreed: Plan | None = None

    def again(self) -> None:
        """Go on to the next attempt."""
        self._attempt, self._agreed = self._attempt + 1, None

    def agree(self, ready: Prepared, make: MakePlan, reserved: int = 0) -> Plan:
        """The plan of this attempt, which Inductor may ask for twice."""
        if self._agreed is None:
            mine = self._mine()
            self._agreed = self._leave(make) if mine else _taken(ready, self._read(), reserved)
        return self._agreed

    def confirms(self, plan: Plan) -> bool:
        """Whether this plan is the first of this attempt, or the one that was."""
        if self._mine():
            self._leave(lambda: plan)
            return True
        return self._read().decision.backward_schedule == plan.backward_schedule

    def _mine(self) -> bool:
        """Whether this rank comes first; a plan that it has left before counts as another's."""
        first = write_first(self.store, f"claim {self._attempt}", str(self.rank))
        return first == str(self.rank) and not self.store.check([f"plan {self._attempt}"])

    def _leave(self, make: MakePlan) -> Plan:
        key = f"plan {self._attempt}"
        try:
            plan = make()
        except Exception as error:
            self.store.set(key, _failure(error))
            raise
        self.store.set(key, encode({"format": 1, **vars(plan.parts)}))
        return plan

    def _read(self) -> Parts:
        """The plan that the first rank leaves, or the error for which it leaves none."""
        key, first = f"plan {self._attempt}", self.store.get(f"claim {self._attempt}").decode()
        what = f"rank {first} plans for the others and has no plan"
        wait(self.store, [key], self.timeout, lambda: what)
        text = bytes(self.store.get(key)).decode()
        data = json.loads(text)
        if "failed" not in data:
            return decode(text, Parts, "a plan", {1: dict})
        message = f"rank {first}, which plans for the others, could not: {data['failed']}"
        if data["budget"] is not None:
            raise BudgetError(message, **data["budget"])
        raise RankError(message)


def _failure(error: Exception) -> str:
    least = {"asked": error.asked, "least": error.least} if isinstance(error, BudgetError) else None
    return json.dumps({"failed": f"{type(error).__name__}: {error}", "budget": least})


def _taken(ready: Prepared, parts: Parts, reserved: int) -> Plan:
    """A plan of another rank for the graph of this one, held to the budget of this one."""
    mine, ops, decision = planner_of(ready), ready.context.op_index, parts.decision
    if not ops.keys() >= {*decision.forward, *decision.backward_schedule}:
        raise RankError(
            f"the joint graphs of the ranks differ ({mine.graph} and {decision.graph}), though "
            f"they were traced from the same ops. Use the same versions of torch "
            f"on all ranks, {OWN}"
        )
    found = _replayed(ready, mine, replace(decision, graph=mine.graph), parts.prediction)
    limit = decision.budget
    if limit is not None and ready.options.budget.nbytes is not None:
        limit += decision.reserved - reserved
    # Regions leave out values by times, which differ from rank to rank, and so do these two then.
    found = replace(
        found,
        budget=limit,
        reserved=reserved,
        baseline_peak=parts.prediction.baseline_peak,
        floor=parts.prediction.floor,
    )
    if limit is not None and found.predicted_peak > max(limit, parts.prediction.predicted_peak):
        message = (
            f"the plan that the ranks agree on peaks at {found.predicted_peak} bytes "
            f"({format_bytes(found.predicted_peak)}) here, above the budget of {limit} bytes: ops "
            f"take more workspace on this rank, or other graphs hold more. Ask for more, {OWN}"
        )
        if ready.options.on_infeasible == "raise":
            raise BudgetError(message, asked=limit, least=None)
        warnings.warn(message, stacklevel=2)
    return found


def _replayed(ready: Prepared, mine: Planner, decision: Decision, there: Prediction) -> Plan:
    """A decision of another rank with the costs of this one."""
    try:
        return recall(mine, [decision])
    except RewriteError:  # the leader's fusion feedback, or its choice within regions, differs
        found = recall(reader_of(ready), [decision])
    # Without fusion the replay counts values that the code never makes.
    fuses = ready.options.inner == "inductor"
    return replace(found, predicted_peak=there.predicted_peak) if fuses else found
