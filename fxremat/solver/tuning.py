"""What the search and the exact solver are tuned with.

After a change measure all three: ``python -m benchmarks.gap`` on small problems, where optima are
known, and ``benchmarks.curve`` and ``benchmarks.scale`` on large ones.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EXACT", "SEARCH", "ExactTuning", "SearchTuning"]


@dataclass(frozen=True)
class SearchTuning:
    """Of the default solver. Shares of time are of the step without recompute."""

    # The neighbourhood search (gap for the quality, scale for the time).
    proved: float = 5e-4  # share of time: a plan this near to the lower bound is good enough
    max_rounds: int = 120
    work: int = 10_000  # ops in the schedules of all rounds together, at effort 1
    thorough_length: int = (
        300  # ops of a schedule up to which destroyed plans are evicted from hard
    )
    # Seeds (gap and curve).
    long_schedule: int = 1000  # ops of a schedule above which seeds are chosen more sparingly
    near_limit: tuple[float, float] = (0.85, 1.7)  # multiples of the limit: cuts in between count
    approach: float = 0.85  # a limit further below a seed is approached in such steps
    careful_batches: tuple[float, ...] = (0.05, 0.01)  # where nothing else comes within the limit
    too_costly: float = 1.1  # no more of the kind of a plan that costs so many times the best
    coarse_depth: int = 3  # brackets of limits halved less often have far ends: try all seeds
    # Several recomputes of a value (curve: chains and recurrence).
    repeats_pay: float = 0.1  # share of time above which recomputing values several times may pay
    repeat_limits: tuple[float, ...] = (1.0, 1.05, 0.95, 1.1)  # multiples of the limit asked for
    many_runs: int = 1000  # plans with more runs, and with more than this per forward op,
    many_runs_per_op: int = 4  # are not improved
    # Evictions.
    single_evictions: int = 60  # tried one by one at most
    moved_across: int = 6  # backward ops that runs are moved across at most
    # The tree of limits (curve).
    finest: int = 2048  # the bracket of an answer is at most this part of the baseline's peak
    coarsest: int = 16  # and that of two neighbours on the frontier this part,
    apart: float = 5e-3  # unless their times are no further apart
    equal: float = 5e-4  # share of time: ends of a stretch that cost as good as the same


@dataclass(frozen=True)
class ExactTuning:
    """Of the mixed-integer programs (gap)."""

    unit: float = 1e-3  # share of a step in which the objective counts
    improvement: float = 1e-4  # units by which a plan must be better than the best one
    proved: float = 1e-6  # share of a step up to which a plan counts as optimal
    single_share: float = 0.3  # of the time limit, for single runs to begin with
    rough_gap: float = 0.03  # relative gap of the rounds that look for missing rows
    # Polishing, which ends at the same place on every machine.
    max_ops: int = 60  # that may run again in a problem that is polished,
    max_binaries: int = 180  # and whole variables in its program
    nodes: int = 50  # of the branch and bound in a round
    rounds: int = 20  # each with more rows


SEARCH, EXACT = SearchTuning(), ExactTuning()
