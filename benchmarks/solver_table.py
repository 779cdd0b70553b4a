"""How well the solver trades time for memory: recompute time at fractions of the baseline peak.

    python -m benchmarks.solver_table
    python -m benchmarks.solver_table --workspaces --models unet --fractions 0.8,0.5
    python -m benchmarks.solver_table --no-decompositions --effort 3 --json FILE

Each column is a model, each row a limit on the peak; a cell is the predicted time of the
recomputed ops in percent of the step's, "-" where no plan was found. Graphs have Inductor's
decompositions. Costs come from a fixed profile by the roofline and workspaces are left out, so
without --workspaces the table is the same on every machine. One solver goes through all limits
from the loosest on, so later limits profit from the plans of earlier ones.

    lowest      lowest peak found, in MiB
    floor       peak in MiB below which no plan can go
    baseline    peak in MiB of the plan that recomputes nothing
    seconds     the solver's time for all limits; and for the lowest peak
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import harness
from benchmarks.harness import MIB
from benchmarks.problems import PROFILE, capture, problem_of
from fxremat.problem.types import Problem
from fxremat.solver.peak_solver import PeakSolver

__all__ = ["PROFILE", "Curve", "capture", "curve", "main", "problem_of"]

FRACTIONS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25)
COLUMNS = {  # the title of a column by the model's name
    "chain": "chain32",
    "chain64": "chain64",
    "gpt": "gpt8",
    "gpt_deep": "gpt24",
    "resnet": "resnet",
    "unet": "unet",
}


@dataclass(frozen=True)
class Curve:
    """What the solver found for one problem.

    Attributes:
        percent: for each fraction the recompute time in percent of the step, or None.
        lowest: lowest peak found, in bytes.
        floor: bytes below which no plan can go.
        baseline: peak of the plan that recomputes nothing, in bytes.
        ops: how many ops the problem has.
        seconds: the solver's time for all fractions.
        lowest_seconds: its time for the lowest peak.
    """

    percent: dict[float, float | None]
    lowest: int
    floor: int
    baseline: int
    ops: int
    seconds: float
    lowest_seconds: float


LAST: dict[str, Callable[[Curve], object]] = {  # rows below the fractions
    "lowest": lambda c: c.lowest / MIB,
    "floor": lambda c: c.floor / MIB,
    "lowest/floor": lambda c: c.lowest / c.floor,
    "baseline": lambda c: c.baseline / MIB,
    "ops": lambda c: c.ops,
    "seconds": lambda c: c.seconds,
    "seconds lowest": lambda c: c.lowest_seconds,
}


def curve(problem: Problem, fractions: Sequence[float], effort: float) -> Curve:
    """Solve a problem at all fractions of its baseline peak with one solver."""
    start = time.perf_counter()
    solver = PeakSolver(problem, effort=effort)
    percent: dict[float, float | None] = {}
    for fraction in sorted(fractions, reverse=True):
        point = solver.solve(int(fraction * solver.baseline.peak))
        share = None if point is None else 100 * point.seconds / problem.step_seconds
        percent[fraction] = share
    middle = time.perf_counter()
    lowest = solver.least().peak
    end = time.perf_counter()
    return Curve(
        percent,
        lowest,
        solver.floor,
        solver.baseline.peak,
        len(problem.ops),
        middle - start,
        end - middle,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = harness.parser(__doc__)
    parser.add_argument(
        "--fractions", default=",".join(map(str, FRACTIONS)), help="separated by commas"
    )
    parser.add_argument("--effort", type=float, default=1.0, help="search effort (default: 1)")
    harness.add_graph_options(parser)
    args = parser.parse_args(argv)
    fractions = [float(f) for f in args.fractions.split(",")]
    curves = {}
    for name in harness.chosen(args, list(COLUMNS)):
        joint = capture(args.zoo, name, not args.no_decompositions)
        problem = problem_of(joint, args.workspaces)
        curves[COLUMNS.get(name, name)] = found = curve(problem, fractions, args.effort)
        print(f"{name}: solved in {found.seconds + found.lowest_seconds:.1f} s", flush=True)
    print()
    harness.show(_rows(curves, fractions), ["fraction", *curves])
    settings = {"effort": args.effort, "workspaces": args.workspaces}
    settings["decompositions"] = not args.no_decompositions
    data = {"settings": settings, "curves": {k: vars(c) for k, c in curves.items()}}
    harness.write(args.json, data)
    return 0


def _rows(curves: dict[str, Curve], fractions: Sequence[float]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for fraction in sorted(fractions, reverse=True):
        found = {name: c.percent[fraction] for name, c in curves.items()}
        rows.append({"fraction": str(fraction)} | found)
    for title, read in LAST.items():
        rows.append({"fraction": title} | {name: read(c) for name, c in curves.items()})
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
