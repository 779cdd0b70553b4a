"""What a planner is told of a compiler that fuses: lessons of code that it has made before."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NO_HINTS", "Hints"]


@dataclass(frozen=True)
class Hints:
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


NO_HINTS = Hints()
