"""How the solver's time grows with the graph: transformers as wide as a 7-billion-parameter one.

    python -m benchmarks.scale
    python -m benchmarks.scale --layers 8,16,32 --json FILE
    python -m benchmarks.scale --layers 32 --best 600

Models are traced on fake tensors and kept in a folder, so that a second run is quick; the one of 32
layers is the fixture. Costs come from a fixed profile by the roofline and workspaces are left out.
Each limit is solved by a fresh solver. Seconds are processor time, which is what an idle machine
takes: the solver runs in one thread. Three tables; the first has a row for each size:

    trace       seconds to trace the model and formulate the problem, when that was done; "-" for
                the fixture
    0.8 .. min  seconds of one solve at these fractions of the peak of the plan that recomputes
                nothing, and for the least peak
    s/1000 ops  mean of these for a thousand ops of the problem
    frontier    seconds for the whole frontier
    points      plans on it
    ratio       frontier seconds over the mean of the single solves

The second has a row for each limit:

    peak        GiB of the plan
    recompute   recompute time in percent of the step
    bound       lower bound on that of every plan within the limit
    best        with --best, at 32 layers: that of the best plan which a search of so many seconds
                finds within the same limit, at 40 times the default effort
    over        recompute - best

The third has the exponents of growth between sizes: p if a time grows like ops ** p.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import harness, problems
from fxremat.problem.types import Problem
from fxremat.solver.pareto import Point
from fxremat.solver.peak_solver import PeakSolver

__all__ = ["Size", "Solve", "best", "exponents", "main", "measure", "traced"]

LAYERS = (8, 16, 32, 64, 128)
LIMITS: tuple[float | None, ...] = (0.8, 0.5, 0.35, None)  # None is the least peak
FIXTURES = {32: "llama7b"}
EFFORT = 40  # of the long search
GIB = 2**30


@dataclass(frozen=True)
class Solve:
    """One limit at one size.

    Attributes:
        limit: "0.8", say, or "min".
        peak: bytes of the plan, or None if none was found.
        percent: its recompute time in percent of the step, or None.
        bound: lower bound on that, in percent of the step.
        seconds: the solver's time.
        best: recompute time found by a long search, in percent of the step, or None.
    """

    limit: str
    peak: int | None
    percent: float | None
    bound: float
    seconds: float
    best: float | None = None


@dataclass(frozen=True)
class Size:
    """One model.

    Attributes:
        layers: its layers.
        ops: the ops of its problem.
        trace: seconds to trace it, or None for a fixture.
        solves: one for each limit.
        frontier: seconds for the frontier.
        points: plans on it.
    """

    layers: int
    ops: int
    trace: float | None
    solves: tuple[Solve, ...]
    frontier: float
    points: int

    @property
    def mean(self) -> float:
        """Mean seconds of the single solves."""
        return sum(s.seconds for s in self.solves) / len(self.solves)


def traced(layers: int, cache: Path) -> tuple[Problem, float | None]:
    """The problem of so many layers, and the seconds it took to trace; read if it is there."""
    if layers in FIXTURES:
        return problems.load(FIXTURES[layers]), None
    path = cache / f"llama{layers}.json.gz"
    if not path.exists():
        begin = time.process_time()
        problem = problems.llama(layers)
        data = {"seconds": time.process_time() - begin, "problem": problem.to_json()}
        cache.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(json.dumps(data).encode()))
    data = json.loads(gzip.decompress(path.read_bytes()))
    return Problem.from_json(data["problem"]), data["seconds"]


def measure(layers: int, problem: Problem, trace: float | None) -> Size:
    """Solve one problem at all limits, and its frontier."""
    solves = tuple(_solve(problem, limit) for limit in LIMITS)
    begin = time.process_time()
    points = PeakSolver(problem).frontier()
    end = time.process_time()
    return Size(layers, len(problem.ops), trace, solves, end - begin, len(points))


def _solve(problem: Problem, fraction: float | None) -> Solve:
    begin = time.process_time()
    solver = PeakSolver(problem)
    point = _answer(solver, fraction)
    seconds = time.process_time() - begin
    step = problem.step_seconds
    limit = _limit(solver, fraction, point)
    return Solve(
        limit="min" if fraction is None else str(fraction),
        peak=None if point is None else point.peak,
        percent=None if point is None else 100 * point.seconds / step,
        bound=100 * solver.lower_bound(limit) / step,
        seconds=seconds,
    )


def _answer(solver: PeakSolver, fraction: float | None) -> Point | None:
    if fraction is None:
        return solver.least()
    return solver.solve(int(fraction * solver.baseline.peak))


def _limit(solver: PeakSolver, fraction: float | None, point: Point | None) -> int:
    if fraction is None and point is not None:
        return point.peak
    return int((fraction or 0.0) * solver.baseline.peak)


def best(problem: Problem, solve: Solve, time_limit: float) -> Solve:
    """The same limit with the best plan that a long search finds within it.

    Args:
        problem: the problem.
        solve: what the default solver found; its peak is the limit where that is "min".
        time_limit: seconds.
    """
    solver = PeakSolver(problem, effort=EFFORT, time_limit=time_limit)
    if solve.limit == "min":
        limit = solve.peak or solver.floor
    else:
        limit = int(float(solve.limit) * solver.baseline.peak)
    point = solver.solve(limit)
    percent = None if point is None else 100 * point.seconds / problem.step_seconds
    return Solve(**(asdict(solve) | {"best": percent}))


def exponents(sizes: Sequence[Size]) -> list[dict[str, Any]]:
    """For each two successive sizes the exponents with which times grow with the ops."""
    rows = []
    for a, b in pairwise(sizes):
        scale = math.log(b.ops / a.ops)
        row: dict[str, Any] = {"layers": f"{a.layers} -> {b.layers}"}
        if a.trace is not None and b.trace is not None:
            row["trace"] = math.log(b.trace / a.trace) / scale
        for one, other in zip(a.solves, b.solves, strict=True):
            row[one.limit] = math.log(other.seconds / one.seconds) / scale
        row["mean"] = math.log(b.mean / a.mean) / scale
        row["frontier"] = math.log(b.frontier / a.frontier) / scale
        rows.append(row)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    args = _parser().parse_args(argv)
    sizes: list[Size] = []
    for layers in map(int, args.layers.split(",")):
        problem, trace = traced(layers, args.cache)
        size = measure(layers, problem, trace)
        if args.best and layers in FIXTURES:
            found = tuple(best(problem, s, args.best) for s in size.solves)
            size = Size(**(vars(size) | {"solves": found}))
        sizes.append(size)
        print(f"{layers} layers: {size.mean:.1f} s a solve", flush=True)
        harness.write(args.json, [asdict(s) for s in sizes])
    limits = [s.limit for s in sizes[0].solves]
    print()
    columns = ("layers", "ops", "trace", *limits, "s/1000 ops", "frontier", "points", "ratio")
    harness.show([_row(s) for s in sizes], columns)
    print()
    columns = ("layers", "limit", "seconds", "peak", "recompute", "bound")
    rows = [_detail(size, s) for size in sizes for s in size.solves]
    harness.show(rows, (*columns, "best", "over") if args.best else columns)
    if len(sizes) > 1:
        print()
        harness.show(exponents(sizes), ("layers", "trace", *limits, "mean", "frontier"))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", default=",".join(map(str, LAYERS)), help="separated by commas")
    cache = Path(tempfile.gettempdir()) / "fxremat-scale"
    parser.add_argument(
        "--cache", type=Path, default=cache, help=f"folder of traced problems (default: {cache})"
    )
    parser.add_argument(
        "--best", type=float, metavar="SECONDS", help="compare with a search of this time per limit"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    return parser


def _row(size: Size) -> dict[str, Any]:
    return {
        **{"layers": size.layers, "ops": size.ops, "trace": size.trace},
        **{s.limit: s.seconds for s in size.solves},
        **{"s/1000 ops": 1000 * size.mean / size.ops, "frontier": size.frontier},
        **{"points": size.points, "ratio": size.frontier / size.mean},
    }


def _detail(size: Size, solve: Solve) -> dict[str, Any]:
    row: dict[str, Any] = {"layers": size.layers, **asdict(solve), "recompute": solve.percent}
    row["peak"] = None if solve.peak is None else solve.peak / GIB
    if solve.best is not None and solve.percent is not None:
        row["over"] = solve.percent - solve.best
    return row


if __name__ == "__main__":
    raise SystemExit(main())
