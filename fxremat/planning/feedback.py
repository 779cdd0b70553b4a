"""What compiled code says of a plan, and how to plan again after it.

The inner compiler fuses, so the code of a plan may take more memory than the plan says. What to
tell the next plan is a function of all rounds so far: :func:`next_feedback`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["ATTEMPTS", "NO_FEEDBACK", "Feedback", "Round", "next_feedback"]

ATTEMPTS = 7
FAR = 1.1  # above so many times the plan's peak, the next code is compiled with ``realize``
GROWTH = (0, 1 / 64, 1 / 64, 1 / 16, 1 / 8, 1 / 4)  # of the margin at least, in budgets, by round


@dataclass(frozen=True)
class Feedback:
    """What is known of what the compiler makes of a graph.

    Attributes:
        margin: bytes to stay below the budget.
        apart: values that take memory though they might have been fused.
        realize: whether the compiler is to give memory to what several kernels read.
        baseline: baseline peak of the first plan, in bytes; fractional budgets refer to it. None
            for the first plan. Where no later plan meets the budget, the one with the least peak
            is compiled, since the code may take less.
    """

    margin: int = 0
    apart: frozenset[str] = frozenset()
    realize: bool = False
    baseline: int | None = None

    def __str__(self) -> str:
        """A part of cache keys."""
        return f"{self.margin} {self.realize} {' '.join(sorted(self.apart))}"


NO_FEEDBACK = Feedback()


@dataclass(frozen=True)
class Round:
    """One plan, and the code that was made of it.

    Attributes:
        feedback: what the planner was told.
        limit: the budget in bytes, or None.
        predicted: peak of the plan, in bytes.
        peak: peak of the code, in bytes; None where it is not known.
        materialized: values taken for fused to which the code gives memory.
    """

    feedback: Feedback
    limit: int | None
    predicted: int
    peak: int | None
    materialized: frozenset[str] = frozenset()

    @property
    def excess(self) -> int:
        """Bytes by which the code is above the budget; negative where it is below."""
        return 0 if self.peak is None or self.limit is None else self.peak - self.limit

    @property
    def lesson(self) -> Feedback:
        """The feedback with what the code tells: what takes memory, and whether far more of it."""
        if self.peak is None:
            return self.feedback
        apart = self.feedback.apart | self.materialized
        far = self.peak > FAR * self.predicted
        return replace(self.feedback, apart=apart, realize=self.feedback.realize or far)


def next_feedback(rounds: Sequence[Round], smallest: bool) -> Feedback | None:
    """What to tell the planner next; None if the last code is to be taken, or nothing helps.

    Above a budget, the values that took memory are told first; where none did, the margin grows by
    the excess, and by more with each round. The smallest peak is looked for among the lessons of
    all rounds; if an earlier code was the best, it is asked for again.

    Args:
        rounds: all rounds of one graph, at least one, in order.
        smallest: whether the smallest peak is asked for, not a budget.
    """
    last = rounds[-1]
    if smallest and last.peak is not None:
        peaks = {r.feedback: r.peak for r in rounds if r.peak is not None}
        if any(r.feedback == last.feedback for r in rounds[:-1]):
            return None  # it was the best, and has been compiled again
        if last.lesson not in peaks and len(rounds) < ATTEMPTS - 1:
            return last.lesson
        best = min(peaks, key=lambda told: peaks[told])
        return None if peaks[best] == last.peak else best
    if last.excess <= 0 or len(rounds) >= ATTEMPTS:
        return None
    if last.lesson != last.feedback:
        return last.lesson
    grown = max(last.excess, int((last.limit or 0) * GROWTH[len(rounds) - 1]))
    return replace(last.feedback, margin=last.feedback.margin + grown)
