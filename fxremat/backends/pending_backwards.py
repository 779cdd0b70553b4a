"""What graphs that still await their backward hold, so that a budget in bytes holds for the step.

A model that breaks into several graphs runs their forwards one after the other and their backwards
in reverse. While a later graph runs, what earlier ones have returned and handed to their backward
is live too. The storages of each call are noted, and asked whether they are alive; a call is struck
out once its node of autograd has run or is gone. That needs no hold on the compiled code, which may
come from a cache.
"""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from fxremat.base.budget import Budget, format_bytes, resolve
from fxremat.plans.plan import Plan
from passes.torch_internals import (
    FakeTensor,
    StorageWeakRef,
    backward_has_run,
    is_compiled_backward,
    saved_tensors_are_packed,
    storage_key,
)

__all__ = ["PendingBackwards"]

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
class PendingBackwards:
    """Storages that graphs have made for backwards to come; for use from any thread.

    Attributes:
        budget: of all graphs of a step together; if it is not in bytes, nothing is noted.
    """

    budget: Budget
    _calls: list[_Call] = field(default_factory=list)
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

    def watch(self, run: Run, plan: Plan | None) -> Run:
        """A compiled graph that notes what each call of it makes.

        It warns, once for each plan, where the step will exceed its budget because more is held
        than when the plan was made: a second forward before the first backward, for instance.
        """
        if self.budget.nbytes is None or plan is None:
            return run

        @functools.wraps(run)
        def watched(*args: Any) -> Any:
            before = {storage_key(a) for a in args if _has_storage(a)}
            if not _fake(args):
                self._forget_fakes()
                self._warn(plan)
            outputs = run(*args)
            self._note(outputs, before)
            return outputs

        return watched

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

    def _warn(self, plan: Plan) -> None:
        reserved = self.reserved()
        over = plan.predicted_peak - (resolve(self.budget, 0, reserved).nbytes or 0)
        if over > 0 and reserved > plan.reserved and plan.graph not in self._warned:
            self._warned.add(plan.graph)
            warnings.warn(
                f"the step exceeds its budget by {format_bytes(over)}: graphs that await their "
                f"backward hold {format_bytes(reserved)}, and this one needs "
                f"{format_bytes(plan.predicted_peak)}; run backward before the next forward, or "
                "give the backend a smaller budget",
                stacklevel=2,
            )


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
