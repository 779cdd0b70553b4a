"""A plan: a decision, what it is predicted to cost, and the context that both are about.

The decision names ops and values as the joint graph does, so it can be printed, compared, sent to
other processes and applied again to the same graph.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from functools import cached_property
from os import PathLike
from typing import Any

from fxremat.base.codec import Upgrade, decode, encode
from fxremat.base.errors import OptionError
from fxremat.base.files import read_text, write_text
from fxremat.base.units import format_bytes, table
from fxremat.plans.notebook import lines_as_table
from fxremat.plans.notebook import table as html_table
from fxremat.plans.parts import Decision, Parts, Prediction, upgraded_context, upgraded_parts
from fxremat.plans.words import words
from fxremat.problem.context import Context

__all__ = ["Plan", "Plans"]

FORMAT = 6


@dataclass(frozen=True, kw_only=True)
class Plan(Decision, Prediction):
    """How one graph is split and replayed; all of it is fixed when the graph is compiled.

    A plan has the attributes of its decision and of its prediction, and one more.

    Attributes:
        context: the problem that it solves and where its ops come from; not compared.
    """

    context: Context = field(compare=False, repr=False)

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

    @classmethod
    def of(cls, parts: Parts, context: Context) -> Plan:
        """The plan of a decision and a prediction in a context."""
        return cls(**vars(parts.decision), **vars(parts.prediction), context=context)

    @property
    def parts(self) -> Parts:
        """The plan without its context."""
        decision, prediction = (
            {f.name: getattr(self, f.name) for f in fields(kind)} for kind in (Decision, Prediction)
        )
        return Parts(decision=Decision(**decision), prediction=Prediction(**prediction))

    def to_json(self) -> str:
        """The plan as JSON text, the same for the same plan; :meth:`from_json` reads it back."""
        parts = {"format": FORMAT, **vars(self.parts), "context": self.context}
        return encode(parts, shown=("decision", "prediction"))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: if the text is not a plan or comes from another format.
        """
        parts = decode(text, _File, "a plan", UPGRADES)
        return cls.of(parts, parts.context)

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
        resident = self.context.resident
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
        if self.context.guesses:
            lines.append(f"unknown     {self.context.guesses}: the peak may be higher")
        if not self.complete:
            lines.append("the search was stopped by the time limit; a longer one may do better")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The plan in a notebook: what ``print`` shows, as a table."""
        return lines_as_table(str(self), 12)


@dataclass(frozen=True, kw_only=True)
class _File(Parts):
    context: Context


def _upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """A plan of formats 4 and 5: one object, with its context as "detail"."""
    if data["detail"] is None:
        raise ValueError("a plan of an older format without its detail; plan the model again")
    return {**upgraded_parts(data), "context": upgraded_context(data["detail"])}


def _refused(data: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("a frontier, not a plan; take one of its plans, or show it as it is")


UPGRADES: dict[int, Upgrade] = {
    **dict.fromkeys((1, 2), _refused),
    **dict.fromkeys((4, 5), _upgraded),
    FORMAT: dict,
}


class Plans(list[Plan]):
    """Plans of the graphs of a step, which print as a table."""

    def __str__(self) -> str:
        """A line for each plan."""
        return table(COLUMNS, self._rows())

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        return html_table(COLUMNS, self._rows())

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (str(number), w.peak, w.baseline, w.budget, w.time, w.saved_bytes, w.recomputed)
            for number, w in enumerate(map(words, self), 1)
        ]


COLUMNS = ("graph", "peak", "baseline", "budget", "time", "saved", "recomputed")
