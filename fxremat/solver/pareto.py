"""Plans found so far for one problem, none worse than another in both peak and time.

Of two limits, the smaller one gets neither the higher peak nor the lower time from one pool.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from fxremat.problem.replay import replay
from fxremat.problem.types import Problem

__all__ = ["Point", "Pool"]


@dataclass(frozen=True, slots=True)
class Point:
    """One plan.

    Attributes:
        peak: most bytes live at one moment.
        seconds: time spent on recomputing.
        schedule: indices of ops in the order in which the backward runs them.
    """

    peak: int
    seconds: float
    schedule: tuple[int, ...]

    @classmethod
    def of(cls, problem: Problem, schedule: Sequence[int]) -> Point:
        """What replay says of a schedule.

        Raises:
            ValueError: if it is no schedule of the problem.
        """
        line = replay(problem, schedule)
        return cls(line.peak, line.recompute_seconds, tuple(schedule))


class Pool:
    """Non-dominated plans of one problem, by ascending peak, so by falling time."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.points: list[Point] = []

    def add(self, schedule: Sequence[int]) -> Point:
        """Judge a schedule by replay, and keep it unless a plan in the pool is as good in both.

        Raises:
            ValueError: if it is no schedule of the problem.
        """
        point = Point.of(self.problem, schedule)
        self.keep(point)
        return point

    def keep(self, point: Point) -> None:
        """Keep a judged plan unless a plan in the pool is as good in both."""
        at = bisect_right(self.points, point.peak, key=lambda p: p.peak)
        if at and self.points[at - 1].seconds <= point.seconds:
            return
        end = at
        while end < len(self.points) and self.points[end].seconds >= point.seconds:
            end += 1
        start = at - 1 if at and self.points[at - 1].peak == point.peak else at
        self.points[start:end] = [point]

    def best(self, limit: int) -> Point | None:
        """The cheapest plan whose peak is within a limit (bytes)."""
        at = bisect_right(self.points, limit, key=lambda p: p.peak)
        return self.points[at - 1] if at else None

    @property
    def least(self) -> Point:
        """The plan with the lowest peak."""
        return self.points[0]
