"""What graphs that still await their backward hold, so that a budget in bytes holds for the step.

A model that breaks into several graphs runs their forwards one after the other and their backwards
in reverse. While a later graph runs, what earlier ones have returned and handed to their backward
is live too. The storages of each call are noted, and asked whether they are alive; a call is struck
out once its node of autograd has run or is gone. That needs no hold on the compiled code, which may
come from a cache.
"""

from __future__ import annotations

import functools
import itertools
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from fxremat.base.budget import Budget, resolve
from fxremat.base.errors import BudgetError
from fxremat.base.units import format_bytes
from fxremat.planning.assign import Call, Share, assign, most_saved
from fxremat.plans.plan import Plan
from passes.torch_internals import (
    FakeTensor,
    StorageWeakRef,
    backward_has_run,
    is_compiled_backward,
    saved_tensors_are_packed,
    storage_key,
)

__all__ = ["CompiledGraph", "PendingBackwards"]

Run = Callable[..., Any]
DEPTH = 4  # views between an output and its graph's node of autograd


@dataclass(frozen=True)
class _Call:
    """One call of a compiled graph: its node of autograd, and the storages it has made.

    DDP splits a graph into several and compiles them all before it runs any; in between it calls
    each with fake tensors. Then ``fake`` is set, and what that call holds counts until graphs run
    for real.
    """

    node: weakref.ref[Any]
    made: Mapping[int, tuple[StorageWeakRef, int]]
    fake: bool = False

    def alive(self) -> dict[int, int]:
        """Bytes of each storage that is alive, by its key; none once the backward has run."""
        node = self.node()
        if node is None or backward_has_run(node):
            return {}
        return {k: n for k, (ref, n) in self.made.items() if not ref.expired()}


@dataclass
class CompiledGraph:
    """A training graph that has been compiled, and may be once more.

    Attributes:
        run: what it was compiled to.
        plan: its plan.
        again: compiles it with other limits; None where other processes would have to do the same.
        first: its first plan, made without such limits.
        number: no other graph has it.
    """

    run: Run
    plan: Plan
    again: Callable[[Share], tuple[Run, Plan]] | None = None
    first: Plan = field(init=False)
    number: int = field(init=False, default_factory=itertools.count().__next__)

    def __post_init__(self) -> None:
        self.first = self.plan

    @functools.cached_property
    def most(self) -> int:
        """Bytes that it saves when nothing is recomputed."""
        return most_saved(self.first.context)


@dataclass(frozen=True)
class _Entered:
    """A forward within a step: of which graph, what was held before it, and in which thread."""

    graph: CompiledGraph
    reserved: int
    thread: int = field(default_factory=threading.get_ident)


@dataclass
class PendingBackwards:
    """Storages that graphs have made for backwards to come; for use from any thread.

    Attributes:
        budget: of all graphs of a step together; without a limit nothing is noted.
        strict: whether a step that no limits of its graphs bring within the budget is an error.
    """

    budget: Budget
    strict: bool = True
    _calls: list[_Call] = field(default_factory=list)
    _step: list[_Entered] = field(default_factory=list)
    _settled: set[tuple[int, ...]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _warned: set[str] = field(default_factory=set)

    def reserved(self) -> int:
        """Bytes that are alive of what graphs have made whose backward has not run."""
        total: dict[int, int] = {}
        with self._lock:
            found = [(call, call.alive()) for call in self._calls]
            self._calls = [call for call, alive in found if alive]
        for _, alive in found:
            total.update(alive)
        return sum(total.values())

    def watch(self, graph: CompiledGraph) -> Run:
        """A compiled graph that notes what each call of it makes.

        A step begins when no backward is awaited. If the last step was above the budget, its graphs
        are first given limits with which it keeps it. What cannot be helped is warned of, once for
        each plan: a second forward before the first backward, for instance.

        Raises:
            BudgetError: by what is returned, if no limits of a step's graphs keep the budget.
        """
        if self.budget.nbytes is None and self.budget.fraction is None:
            return graph.run

        @functools.wraps(graph.run)
        def watched(*args: Any) -> Any:
            before = {storage_key(a) for a in args if _has_storage(a)}
            if not _fake(args):
                self._forget_fakes()
                self._enter(graph)
            outputs = graph.run(*args)
            self._note(outputs, before)
            return outputs

        return watched

    def _enter(self, graph: CompiledGraph) -> None:
        reserved = self.reserved()
        done: list[_Entered] = []
        with self._lock:
            if not self._calls:
                done, self._step = self._step, []
        self._settle(done)
        with self._lock:
            self._step.append(_Entered(graph, reserved))
            step = list(self._step)
        if self.budget.nbytes is None:
            return  # what a fraction is of is known when the step has ended
        over = reserved + graph.plan.predicted_peak - self.budget.nbytes
        if over > 0 and reserved and graph.plan.graph not in self._warned:
            self._warned.add(graph.plan.graph)
            warnings.warn(
                f"the step exceeds its budget by {format_bytes(over)}: graphs that await their "
                f"backward hold {format_bytes(reserved)}, and graph {len(step)} of the step "
                f"needs {format_bytes(graph.plan.predicted_peak)}; from the next step on they "
                "share the budget, if they can",
                stacklevel=2,
            )

    def _settle(self, step: Sequence[_Entered]) -> None:
        """Give the graphs of a step that was above the budget limits with which it keeps it."""
        key = tuple(e.graph.number for e in step)
        if len(step) < 2 or key in self._settled or len({e.thread for e in step}) > 1:
            return
        left = _left_live(step)
        limit = resolve(self.budget, _baseline(step, left)).nbytes or 0
        over = any(e.reserved + e.graph.plan.predicted_peak > limit for e in step)
        fraction = self.budget.fraction is not None  # now it is known what of
        graphs = list({e.graph.number: e.graph for e in step}.values())
        if not (over or fraction) or any(g.again is None for g in graphs):
            return
        self._settled.add(key)
        place = {g.number: i for i, g in enumerate(graphs)}
        calls = [Call(place[number], more) for number, more in zip(key, left, strict=True)]
        shares, needed = assign(calls, [g.plan.context for g in graphs], limit)
        if shares is not None:
            for graph, share in zip(graphs, shares, strict=True):
                assert graph.again is not None
                if not share.suits(graph.plan):
                    graph.run, graph.plan = graph.again(share)
            return
        message = (
            f"no plans found with which the {len(step)} graphs of the step keep within {limit} "
            f"bytes ({format_bytes(limit)}); they need {needed} bytes ({format_bytes(needed)}). "
            "Ask for that much, avoid the graph break, or run backward before the next forward"
        )
        if self.strict and len(graphs) == len(step):
            raise BudgetError(message, asked=limit, least=needed)
        warnings.warn(message, stacklevel=2)

    def _note(self, outputs: Any, before: set[int]) -> None:
        tensors = [o for o in pytree.tree_leaves(outputs) if _has_storage(o)]
        node = next((n for o in tensors if (n := _node(o)) is not None), None)
        if node is None or saved_tensors_are_packed():
            return  # no backward, or hooks of the user's have put the tensors elsewhere
        made = {
            storage_key(t): (StorageWeakRef(t.untyped_storage()), t.untyped_storage().nbytes())
            for t in (*tensors, *node.saved_tensors)
            if _has_storage(t) and storage_key(t) not in before
        }
        with self._lock:
            self._calls.append(_Call(weakref.ref(node), made, _fake(tensors)))

    def _forget_fakes(self) -> None:
        with self._lock:
            self._calls = [call for call in self._calls if not call.fake]


def _left_live(step: Sequence[_Entered]) -> list[int]:
    """Bytes that each call of a step left live beside what its graph saved."""
    after = [e.reserved for e in step[1:]] + [0]
    return [
        max(0, later - e.reserved - e.graph.plan.saved_bytes)
        for e, later in zip(step, after, strict=True)
    ]


def _baseline(step: Sequence[_Entered], left: Sequence[int]) -> int:
    """Peak in bytes of a step that recomputes nothing."""
    held, baseline = 0, 0
    for entered, more in zip(step, left, strict=True):
        baseline = max(baseline, held + entered.graph.first.baseline_peak)
        held += more + entered.graph.most
    return baseline


def _node(output: torch.Tensor) -> Any:
    """The node of autograd of the graph that an output comes from, or None."""
    nodes = [output.grad_fn]
    for _ in range(DEPTH):
        for node in nodes:
            if is_compiled_backward(node):
                return node
        nodes = [n for node in nodes if node is not None for n, _ in node.next_functions]
    return None


def _fake(values: Iterable[Any]) -> bool:
    return any(isinstance(value, FakeTensor) for value in values)


def _has_storage(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided
