"""A plan: what is saved, in which order the backward computes, and what that is predicted to cost.

A plan names ops and values as the joint graph does, so it can be printed, compared, written to a
file and applied again to the same graph.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from os import PathLike
from typing import Any

from fxremat.base.budget import format_bytes
from fxremat.base.errors import OptionError
from fxremat.base.files import read_text, write_text
from fxremat.plans.notebook import lines_as_table
from fxremat.plans.words import words
from fxremat.problem.context import Context

__all__ = ["Plan", "SavedValue"]

FORMAT = 5
RENAMED = {"schedule": "backward_schedule", "held": "reserved"}  # of format 4
LISTS = ("forward", "backward_schedule", "recomputed")  # of names of ops
KINDS: dict[str, tuple[tuple[type, ...], str]] = {  # of fields as JSON has them
    "graph": ((str,), "a hash"),
    "budget": ((int, type(None)), "a number of bytes or null"),
    "complete": ((bool,), "true or false"),
    **dict.fromkeys(
        ("predicted_peak", "baseline_peak", "floor", "recompute_flops", "reserved"),
        ((int,), "a whole number"),
    ),
    **dict.fromkeys(
        ("recompute_seconds", "lower_bound_seconds", "step_seconds"), ((int, float), "a number")
    ),
    **dict.fromkeys((*LISTS, "saved"), ((list, tuple), "a list")),
}


@dataclass(frozen=True, slots=True)
class SavedValue:
    """A value that the forward hands to the backward.

    Attributes:
        name: node of the joint graph that yields it.
        nbytes: bytes that saving it costs; 0 if the step holds it anyway.
    """

    name: str
    nbytes: int


@dataclass(frozen=True)
class Plan:
    """How one graph is split and replayed; all of it is fixed when the graph is compiled.

    Attributes:
        graph: fingerprint of the joint graph that the plan belongs to.
        budget: limit on the peak in bytes, or None for no limit.
        predicted_peak: most bytes that the region holds at one moment of the step.
        baseline_peak: the same for the plan that recomputes nothing.
        floor: bytes below which no plan of this graph can go.
        recompute_seconds: predicted time of the recomputed ops.
        lower_bound_seconds: time below which no plan within the budget can recompute.
        step_seconds: predicted time of a step that recomputes nothing.
        recompute_flops: floating-point operations of the recomputed ops.
        saved: values that the forward hands to the backward, in graph order.
        forward: ops in the order in which the forward runs them.
        backward_schedule: ops in the order in which the backward runs them, with repeats.
        recomputed: forward ops that the backward runs again, once for each further run.
        reserved: bytes that other graphs held for their backward when this one was planned; a
            budget for the step has been lowered by them.
        complete: False if a time limit stopped the search.
        context: the problem that it solves and where its ops come from; not compared.
    """

    graph: str
    budget: int | None
    predicted_peak: int
    baseline_peak: int
    floor: int
    recompute_seconds: float
    lower_bound_seconds: float
    step_seconds: float
    recompute_flops: int
    saved: tuple[SavedValue, ...]
    forward: tuple[str, ...]
    backward_schedule: tuple[str, ...]
    recomputed: tuple[str, ...]
    reserved: int = 0
    complete: bool = True
    context: Context | None = field(default=None, compare=False, repr=False)

    @property
    def saved_bytes(self) -> int:
        """Bytes that are live between forward and backward for the backward's sake."""
        return sum(v.nbytes for v in self.saved)

    @property
    def overhead(self) -> float:
        """Predicted recompute time as a share of the step's time."""
        return self._share(self.recompute_seconds)

    @property
    def gap(self) -> float:
        """How much of the step's time a better plan could save at most."""
        return self._share(max(0.0, self.recompute_seconds - self.lower_bound_seconds))

    def _share(self, seconds: float) -> float:
        return seconds / self.step_seconds if self.step_seconds else 0.0

    @cached_property
    def repeats(self) -> dict[str, int]:
        """How often each recomputed op runs again."""
        return dict(Counter(self.recomputed))

    @property
    def known(self) -> Context:
        """The context.

        Raises:
            OptionError: if the plan has none.
        """
        if self.context is None:
            raise OptionError(
                "the plan holds no context (Plan.context is None), so it cannot be explained or "
                "drawn; take one from backend.plans, fxremat.plan() or a file written of these"
            )
        return self.context

    def to_data(self) -> dict[str, Any]:
        """The plan without its context as what JSON can hold; :meth:`from_data` reads it back."""
        data = {"format": FORMAT, **asdict(replace(self, context=None))}
        return data

    @classmethod
    def from_data(cls, data: Any) -> Plan:
        """Read what :meth:`to_data` made, with or without a context.

        Raises:
            ValueError: if it is not a plan or comes from another format.
        """
        if isinstance(data, dict) and "frontier" in data:
            raise ValueError("a frontier, not a plan; take one of its plans, or show it as it is")
        if not isinstance(data, dict) or data.get("format") not in (4, FORMAT):
            raise ValueError(f"not a plan of format {FORMAT}; write it again with to_json()")
        given = {name: value for name, value in data.items() if name != "format"}
        if data["format"] == 4:
            given = {RENAMED.get(name, name): value for name, value in given.items()}
        names = {f.name for f in fields(cls)}
        if set(given) != names:
            odd = ", ".join(sorted(set(given) ^ names))
            raise ValueError(f"not a plan: fields missing or unknown: {odd}")
        if given["context"] is not None:
            given["context"] = Context.from_data(given["context"])
        for name, (kinds, what) in KINDS.items():
            if type(given[name]) not in kinds:
                raise ValueError(f"not a plan: {name} is {given[name]!r}, not {what}")
        try:
            given["saved"] = tuple(SavedValue(**v) for v in given["saved"])
        except TypeError as error:
            raise ValueError(f"not a plan: saved is {given['saved']!r}: {error}") from error
        for name in LISTS:
            given[name] = tuple(map(str, given[name]))
        return cls(**given)

    def to_json(self) -> str:
        """The plan as JSON text, the same for the same plan; :meth:`from_json` reads it back."""
        data = self.to_data()
        del data["context"]
        context = None if self.context is None else self.context.to_data()
        # The plan is for readers too; its long context goes on one line.
        shown = json.dumps(data, indent=1).removesuffix("\n}")
        return f'{shown},\n "context": {json.dumps(context, separators=(",", ":"))}\n}}'

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: if the text is not a plan or comes from another format.
        """
        try:
            data = json.loads(text)
        except ValueError as error:
            raise ValueError(f"not a plan, nor any JSON: {error}") from error
        return cls.from_data(data)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to a file; :meth:`load` or ``fxremat.backend(plan=path)`` read it.

        The file is replaced in one step, so that no reader sees half of it.

        Raises:
            OptionError: if it cannot be written.
        """
        write_text(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Plan:
        """Read what :meth:`save` wrote.

        Raises:
            OptionError: if the file cannot be read, or is no plan.
        """
        text = read_text(path, "write a plan there with plan.save()")
        try:
            return cls.from_json(text)
        except ValueError as error:
            raise OptionError(f"{path}: {error}") from error

    def __str__(self) -> str:
        """The plan for a reader: prediction, bound, what is saved and recomputed."""
        said = words(self)
        top = sorted(self.saved, key=lambda v: -v.nbytes)[:8]
        lines = [
            f"peak        {said.peak} predicted, {said.budget}",
            f"baseline    {said.baseline} without recomputing",
            f"floor       {said.floor}, no plan goes below",
            f"time        {said.time} of a step of {self.step_seconds * 1e3:.1f} ms, "
            f"{self.recompute_flops / 1e9:.2f} GFLOP recomputed",
            f"bound       no plan within the budget recomputes for less than "
            f"{self._share(self.lower_bound_seconds):.1%} of a step",
            f"saved       {said.saved}, {said.saved_bytes}",
            *(f"            {format_bytes(v.nbytes):>12}  {v.name}" for v in top if v.nbytes),
            f"recomputed  {said.recomputed}",
        ]
        resident = None if self.context is None else self.context.resident
        if resident is not None:
            lines.append(f"besides     {resident}")
            total, before = (resident.total(p) for p in (self.predicted_peak, self.baseline_peak))
            lines.append(
                f"step        {format_bytes(total)} in all, {format_bytes(before)} without "
                "recomputing"
            )
        if self.reserved:
            lines.append(
                f"meanwhile   other graphs hold {format_bytes(self.reserved)} for their backward"
            )
        if not self.complete:
            lines.append("the search was stopped by the time limit; a longer one may do better")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The plan in a notebook: what ``print`` shows, as a table."""
        return lines_as_table(str(self), 12)
