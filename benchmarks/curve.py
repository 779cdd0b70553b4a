"""Whether a smaller budget ever costs less, and what the whole frontier takes.

    python -m benchmarks.curve
    python -m benchmarks.curve --workspaces --no-decompositions --models gpt,unet
    python -m benchmarks.curve --zoo FILE --json FILE

Each row is a model, those of the zoo and those of benchmarks/families.py. Budgets are spaced evenly
from the peak of the plan that recomputes nothing down to the least peak, and each is solved by a
fresh solver, so no solve can profit from another. Costs come from a fixed profile by the roofline.
Seconds are processor time, which is what an idle machine takes: the solver runs in one thread.

    found           budgets for which there is a plan that keeps them
    rises           steps down in the budget at which the peak rises
    falls           steps down in the budget at which the recompute time falls
    lowest/floor    least peak, over the peak below which no plan can go
    at lowest       recompute time there, in percent of the step
    max gap         largest difference between a plan's recompute time and the lower bound on that
                    of every plan within the budget, in percent of the step
    s/solve, worst  seconds of a solve: the mean and the longest
    points          plans on the frontier
    s front         seconds for the frontier
    ratio           of that to the mean solve

The exit code is 1 if a peak rises, a time falls, a budget is not kept or a bound is above a plan.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from benchmarks import families, harness, zoo
from benchmarks.problems import joint_of, problem_of
from fxremat.problem.types import Problem
from fxremat.solver.peak_solver import PeakSolver

__all__ = ["Answer", "Curve", "curve", "main"]

BUDGETS = 25
COLUMNS = (
    *("model", "ops", "found", "rises", "falls", "lowest/floor", "at lowest", "max gap"),
    *("s/solve", "worst", "points", "s front", "ratio"),
)


@dataclass(frozen=True)
class Answer:
    """What a fresh solver says to one budget.

    Attributes:
        budget: bytes.
        peak: bytes, or None if it found no plan.
        percent: recompute time in percent of the step, or None.
        bound: lower bound on that, in percent of the step.
        seconds: the solver's time.
    """

    budget: int
    peak: int | None
    percent: float | None
    bound: float
    seconds: float


@dataclass(frozen=True)
class Curve:
    """All budgets of one model, from the loosest on, and its frontier.

    Attributes:
        ops: how many ops the problem has.
        floor: bytes below which no plan can go.
        lowest: the least peak, in bytes.
        answers: one for each budget, by falling budget.
        points: plans on the frontier.
        seconds: for the frontier.
    """

    ops: int
    floor: int
    lowest: int
    answers: tuple[Answer, ...]
    points: int
    seconds: float

    @property
    def found(self) -> list[Answer]:
        """The answers with a plan that keeps the budget."""
        return [a for a in self.answers if a.peak is not None and a.peak <= a.budget]

    @property
    def rises(self) -> int:
        """Steps down in the budget at which the peak rises."""
        peaks = [a.peak for a in self.answers if a.peak is not None]
        return sum(lower > upper for upper, lower in pairwise(peaks))

    @property
    def falls(self) -> int:
        """Steps down in the budget at which the recompute time falls."""
        times = [a.percent for a in self.answers if a.percent is not None]
        return sum(lower < upper for upper, lower in pairwise(times))

    @property
    def gaps(self) -> list[float]:
        """By how much each plan is above the bound, in percent of the step."""
        return [a.percent - a.bound for a in self.answers if a.percent is not None]

    @property
    def valid(self) -> bool:
        """Whether all budgets are kept, nothing rises or falls, and no bound is above a plan."""
        kept = len(self.found) == len(self.answers) and not self.rises and not self.falls
        return kept and all(gap >= -1e-6 for gap in self.gaps)


def curve(problem: Problem, budgets: int = BUDGETS) -> Curve:
    """Solve evenly spaced budgets, each with a fresh solver, and the frontier with another."""
    solver = PeakSolver(problem)
    top, lowest = solver.baseline.peak, solver.least().peak
    spaced = [top - (top - lowest) * i // (budgets - 1) for i in range(budgets)]
    answers = tuple(_answer(problem, budget) for budget in spaced)
    begin = time.process_time()
    points = len(PeakSolver(problem).frontier())
    end = time.process_time()
    return Curve(len(problem.ops), solver.floor, lowest, answers, points, end - begin)


def _answer(problem: Problem, budget: int) -> Answer:
    begin = time.process_time()
    solver = PeakSolver(problem)
    point = solver.solve(budget)
    seconds = time.process_time() - begin
    step = problem.step_seconds
    bound = 100 * solver.lower_bound(budget) / step
    if point is None:
        return Answer(budget, None, None, bound, seconds)
    return Answer(budget, point.peak, 100 * point.seconds / step, bound, seconds)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = harness.parser(__doc__)
    parser.set_defaults(zoo=None)
    parser.add_argument("--budgets", type=int, default=BUDGETS, help=f"default: {BUDGETS}")
    harness.add_graph_options(parser)
    args = parser.parse_args(argv)
    models = zoo.MODELS if args.zoo is None else harness.load_zoo(args.zoo)
    models = models | families.FAMILIES
    curves: dict[str, Curve] = {}
    for name in harness.named(args.models or None, models):
        joint = joint_of(models[name](), not args.no_decompositions)
        curves[name] = found = curve(problem_of(joint, args.workspaces), args.budgets)
        seconds = sum(a.seconds for a in found.answers)
        print(f"{name}: {seconds:.1f} s, {'valid' if found.valid else 'NOT VALID'}", flush=True)
        harness.write(args.json, {k: asdict(c) for k, c in curves.items()})
    print()
    harness.show([_row(name, c) for name, c in curves.items()], COLUMNS)
    return int(not all(c.valid for c in curves.values()))


def _row(name: str, found: Curve) -> dict[str, Any]:
    seconds = [a.seconds for a in found.answers]
    mean = sum(seconds) / len(seconds)
    return {
        **{"model": name, "ops": found.ops, "found": f"{len(found.found)}/{len(seconds)}"},
        **{"rises": found.rises, "falls": found.falls},
        **{"lowest/floor": found.lowest / found.floor, "at lowest": found.answers[-1].percent},
        **{"max gap": max(found.gaps, default=None), "s/solve": mean, "worst": max(seconds)},
        **{"points": found.points, "s front": found.seconds, "ratio": found.seconds / mean},
    }


if __name__ == "__main__":
    raise SystemExit(main())
