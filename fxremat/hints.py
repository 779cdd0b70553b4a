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
        again: whether a plan has been compiled before. Where none meets the budget now, the one
            with the least peak is worth a try, since the code may take less.
    """

    margin: int = 0
    apart: frozenset[str] = frozenset()
    realize: bool = False
    again: bool = False

    def __str__(self) -> str:
        """A part of cache keys."""
        return f"{self.margin} {self.realize} {' '.join(sorted(self.apart))}"


NO_HINTS = Hints()
