"""What graphs that still await their backward hold, so that a budget in bytes holds for the step.

A model that breaks into several graphs runs their forwards one after the other and their backwards
in reverse. While a later graph runs, what earlier ones have handed to their backward is live too.
The ledger knows those tensors by their storages and asks these whether they are alive, so that a
backward that is never run, or a result that is dropped, costs nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from passes.private import StorageWeakRef, storage_key

from .budget import format_bytes
from .plan import Plan

__all__ = ["Ledger"]

Run = Callable[..., Any]


@dataclass
class Ledger:
    """Storages that forwards have made, and their bytes.

    Attributes:
        budget: bytes that all graphs of a step may hold together, or None; then nothing is noted.
    """

    budget: int | None
    _alive: dict[int, tuple[StorageWeakRef, int]] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)

    def held(self) -> int:
        """Bytes that are still alive of what forwards have returned or handed on."""
        self._alive = {k: (r, n) for k, (r, n) in self._alive.items() if not r.expired()}
        return sum(nbytes for _, nbytes in self._alive.values())

    def watch(self, run: Run, plan: Callable[[], Plan | None]) -> Run:
        """A forward, which takes its inputs as a list, that notes what it hands on.

        It warns, once for each plan, where the step will exceed its budget because more is held
        than when the plan was made: a second forward before the first backward, for instance.
        """
        if self.budget is None:
            return run

        def watched(args: list[Any]) -> Any:
            before = {storage_key(a) for a in args if _has_storage(a)}
            self._warn(plan())
            outputs = run(args)
            for out in outputs:
                if _has_storage(out) and storage_key(out) not in before:
                    storage = out.untyped_storage()
                    self._alive[storage_key(out)] = StorageWeakRef(storage), storage.nbytes()
            return outputs

        watched._boxed_call = True  # type: ignore[attr-defined]
        return watched

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


def _has_storage(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided
