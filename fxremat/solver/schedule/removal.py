"""Copies of values, and what dropping a run of a schedule does to them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fxremat.solver.flat import Ints

__all__ = ["SAVED", "EditableCopy", "Removal", "Span", "blocked"]

SAVED = -1
Span = tuple[int, int, int]  # first position, last position, change of live bytes


class EditableCopy:
    """One copy of a value in the backward.

    Attributes:
        value: the value.
        start: position of the run that makes it, or SAVED.
        uses: ascending positions of the runs that read it.
    """

    # No links between copies: without cycles a state is freed at once, and the garbage collector,
    # which would walk everything that torch has loaded, stays out of the inner loops.
    __slots__ = ("start", "uses", "value")

    def __init__(self, value: int, start: int, uses: list[int] | None = None) -> None:
        self.value = value
        self.start = start
        self.uses = [] if uses is None else uses

    @property
    def end(self) -> int:
        """Position of the last use, or of the making if nothing reads it."""
        return self.uses[-1] if self.uses else self.start


@dataclass(slots=True)
class Removal:
    """What dropping a run would do.

    Attributes:
        gain: seconds saved.
        dead: positions of the runs that vanish, the dropped one first.
        moves: copies whose uses go to an earlier copy, or to the saved value (None).
        lost: for copies that lose uses, the positions of those uses.
        spans, forward: changes of live bytes over the backward and the forward.
        added: bytes that are added somewhere.
        area: bytes times positions that are added.
        hoists: for DEFERRABLE ops how many more saved values call for them.
    """

    dead: list[int]
    gain: float = 0.0
    moves: list[tuple[EditableCopy, EditableCopy | None]] = field(default_factory=list)
    lost: dict[EditableCopy, list[int]] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    forward: list[Span] = field(default_factory=list)
    added: int = 0
    area: int = 0
    hoists: dict[int, int] = field(default_factory=dict)


def blocked(live: Ints, spans: list[Span], limit: int) -> int | None:
    """The position at which a change exceeds a limit though it adds bytes there, or None."""
    added = removed = 0
    low, high = len(live), -1
    for first, last, nbytes in spans:
        if first > last:
            continue
        if nbytes > 0:
            added += nbytes
            low, high = min(low, first), max(high, last)
        else:
            removed -= nbytes
    if high < 0:
        return None
    part = live[low : high + 1]
    top = int(part.argmax())
    if int(part[top]) + added <= limit:
        return None
    sure = max(1, limit - int(part[top]) + 1) + removed  # what is too much, whatever else goes
    if any(first <= low + top <= last and nbytes >= sure for first, last, nbytes in spans):
        return low + top
    delta = np.zeros(high - low + 2, dtype=np.int64)
    for first, last, nbytes in spans:
        if first <= high and last >= low and first <= last:
            delta[max(first, low) - low] += nbytes
            delta[min(last, high) - low + 1] -= nbytes
    delta = np.cumsum(delta[:-1])
    over = np.flatnonzero((delta > 0) & (part + delta > limit))
    return low + int(over[0]) if len(over) else None
