"""What graphs that still await their backward hold, so that a budget in bytes holds for the step.

A model that breaks into several graphs runs their forwards one after the other and their backwards
in reverse. While a later graph runs, what earlier ones have returned and handed to their backward
is live too. The ledger notes the storages of each forward, strikes them out when the backward runs
that takes them, and asks them whether they are alive, so that a backward which is never run costs
nothing either.
"""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from passes.private import StorageWeakRef, storage_key

from .budget import format_bytes
from .plan import Plan

__all__ = ["Ledger"]

Run = Callable[..., Any]
Held = dict[int, tuple[StorageWeakRef, int]]  # a storage and its bytes, by its key


@dataclass
class Ledger:
    """Storages that forwards have made for backwards to come; for use from any thread.

    Attributes:
        budget: bytes that all graphs of a step may hold together, or None; then nothing is noted.
    """

    budget: int | None
    _calls: dict[int, Held] = field(default_factory=dict)
    _count: Iterator[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _warned: set[str] = field(default_factory=set)

    def held(self) -> int:
        """Bytes that are alive of what forwards have made whose backward has not run."""
        alive: dict[int, int] = {}
        with self._lock:
            for call, storages in list(self._calls.items()):
                left = {k: (r, n) for k, (r, n) in storages.items() if not r.expired()}
                alive.update((k, n) for k, (_, n) in left.items())
                self._calls[call] = left
                if not left:
                    del self._calls[call]
        return sum(alive.values())

    def watch(self, run: Run, plan: Callable[[], Plan | None], own: Callable[[], int]) -> Run:
        """A forward, which takes its inputs as a list, that notes what it makes.

        It warns, once for each plan, where the step will exceed its budget because more is held
        than when the plan was made: a second forward before the first backward, for instance.

        Args:
            run: the forward.
            plan: its plan.
            own: how many of its outputs are the user's; the others are for the backward.
        """
        if self.budget is None:
            return run

        def watched(args: list[Any]) -> Any:
            before = set(_keys(args))
            self._warn(plan())
            outputs = run(args)
            if any(key not in before for key in _keys(outputs[own() :])):
                made = {
                    storage_key(out): (StorageWeakRef(out.untyped_storage()), _nbytes(out))
                    for out in outputs
                    if _has_storage(out) and storage_key(out) not in before
                }
                with self._lock:
                    self._calls[next(self._count)] = made
            return outputs

        watched._boxed_call = True  # type: ignore[attr-defined]
        return watched

    def strike(self, run: Run) -> Run:
        """A backward, which takes its inputs as a list, that strikes out what it has taken."""
        if self.budget is None:
            return run

        def striking(args: list[Any]) -> Any:
            taken = set(_keys(args))
            outputs = run(args)
            with self._lock:
                done = [c for c, made in self._calls.items() if not taken.isdisjoint(made)]
                for call in done[-1:]:  # a storage is made by one call, and its key used again
                    del self._calls[call]
            return outputs

        striking._boxed_call = True  # type: ignore[attr-defined]
        return striking

    def _warn(self, plan: Plan | None) -> None:
        if plan is None:
            return
        held = self.held()
        over = held + plan.predicted_peak - (self.budget or 0)
        if over > 0 and held > plan.held and plan.graph not in self._warned:
            self._warned.add(plan.graph)
            warnings.warn(
                f"the step exceeds its budget by {format_bytes(over)}: graphs that await their "
                f"backward hold {format_bytes(held)}, and this one needs "
                f"{format_bytes(plan.predicted_peak)}; run backward before the next forward, or "
                "give the backend a smaller budget",
                stacklevel=2,
            )


def _keys(values: Any) -> Iterator[int]:
    return (storage_key(v) for v in values if _has_storage(v))


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def _has_storage(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided
