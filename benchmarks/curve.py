"""Plans over many limits: are they monotone and near the bound, and how long do they take.

    python -m benchmarks.curve
    python -m benchmarks.curve --limits 0.8,0.5,0.35,min --models gpt8,unet4 --workspaces
    python -m benchmarks.curve --limits 0.8,0.5,0.35,min --layers 8,16,32,64,128

Each row is a model: graphs of the zoo, or with --layers transformers as wide as one of 7 billion
parameters. Limits are so many, spaced evenly from the peak of the plan that recomputes nothing down
to the least peak; or fractions of the former, and "min". Each is solved by a fresh solver, so no
solve can profit from another. Costs come from a fixed profile by the roofline, so plans are the
same on every machine. Seconds are processor time, which is what an idle machine takes: the solver
runs in one thread.

    trace           seconds to trace the model and formulate the problem
    found           limits for which there is a plan that keeps them
    rises, falls    steps down in the limit at which the peak rises, or the recompute time falls
    lowest/floor    least peak, over the peak below which no plan can go
    there           recompute time there, in percent of the step
    gap             largest difference between a plan's recompute time and the lower bound on that
                    of every plan within the limit, in percent of the step
    s/solve, worst  seconds of a solve: the mean and the longest
    s/1000 ops      the mean for a thousand ops of the problem
    frontier        seconds for the whole frontier
    points          plans on it
    ratio           of its seconds to the mean solve
    0.8 .. min      seconds (recompute time / its bound, in percent of the step)

The exit code is 1 if a peak rises, a time falls, a limit from the least peak on is not kept or a
bound is above a plan.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

from benchmarks import harness, zoo
from benchmarks.harness import Row
from benchmarks.llama import llama
from benchmarks.problems import joint_of, problem_of
from fxremat.problem.types import Problem
from fxremat.solver.peak_solver import PeakSolver

__all__ = ["COLUMNS", "curve", "judged", "main", "shown"]

COLUMNS = (
    *("model", "ops", "trace", "found", "rises", "falls", "lowest/floor", "there", "gap"),
    *("s/solve", "worst", "s/1000 ops", "frontier", "points", "ratio"),
)


def curve(problem: Problem, limits: str, effort: float = 1.0) -> Row:
    """Solve limits, each with a fresh solver, and the frontier with another.

    Args:
        problem: the problem.
        limits: their number, or fractions and "min", separated by commas.
        effort: of the search.

    Returns:
        Bytes, seconds, and under "answers" a row for each limit: ``limit`` and ``peak`` in bytes,
        ``percent`` and ``bound`` of the recompute time, in percent of the step, and ``seconds``.
    """
    solver = PeakSolver(problem, effort=effort)
    top, lowest = solver.baseline.peak, solver.least().peak
    answers = [
        {"title": title, **_answer(problem, limit, effort)}
        for title, limit in _limits(limits, top, lowest)
    ]
    begin = time.process_time()
    points = len(PeakSolver(problem, effort=effort).frontier())
    seconds = time.process_time() - begin
    return {
        **{"ops": len(problem.ops), "floor": solver.floor, "lowest": lowest, "answers": answers},
        **{"points": points, "frontier": seconds},
    }


def _limits(limits: str, top: int, lowest: int) -> list[tuple[str, int | None]]:
    """Titles and bytes of limits; None is the least peak, to be found."""
    if limits.isdigit():
        count = int(limits) - 1
        return [(str(i), top - (top - lowest) * i // count) for i in range(count + 1)]
    return [(f, None if f == "min" else int(float(f) * top)) for f in limits.split(",")]


def _answer(problem: Problem, limit: int | None, effort: float) -> Row:
    """What a fresh solver says to one limit."""
    begin = time.process_time()
    solver = PeakSolver(problem, effort=effort)
    point = solver.least() if limit is None else solver.solve(limit)
    seconds = time.process_time() - begin
    if limit is None:
        limit = solver.least().peak
    share = 100 / problem.step_seconds
    return {
        "limit": limit,
        "peak": None if point is None else point.peak,
        "percent": None if point is None else share * point.seconds,
        "bound": share * solver.lower_bound(limit),
        "seconds": seconds,
    }


def judged(row: Row) -> Row:
    """What a row's answers say together; "valid" if they are as they should be."""
    answers: Sequence[Row] = row["answers"]
    found = [a for a in answers if a["peak"] is not None]
    kept = [a for a in found if a["peak"] <= a["limit"]]
    rises = sum(lower["peak"] > upper["peak"] for upper, lower in pairwise(found))
    falls = sum(lower["percent"] < upper["percent"] for upper, lower in pairwise(found))
    gaps = [a["percent"] - a["bound"] for a in found]
    possible = [a for a in answers if a["limit"] >= row["lowest"]]
    valid = len(kept) >= len(possible) and not rises and not falls
    return {
        **{"kept": len(kept), "rises": rises, "falls": falls, "gap": max(gaps, default=None)},
        "valid": valid and len(kept) == len(found) and all(gap >= -1e-6 for gap in gaps),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    made = harness.parser(__doc__)
    made.add_argument("--layers", help="of transformers, separated by commas")
    made.add_argument("--limits", default="25", help="their number (default: 25), or fractions")
    made.add_argument("--effort", type=float, default=1.0, help="of the search (default: 1)")
    made.add_argument("--workspaces", action="store_true", help="count measured workspaces")
    made.add_argument("--as-traced", action="store_true", help="no decompositions by Inductor")
    args = made.parse_args(argv)
    if args.layers:
        names = [f"{n} layers" for n in args.layers.split(",")]
    else:
        names = harness.chosen(
            args.models, harness.load_zoo(args.zoo), () if args.zoo else zoo.GRAPHS
        )

    def rows_of(name: str) -> list[Row]:
        begin = time.process_time()
        case = llama(int(name.split()[0])) if args.layers else harness.build(args.zoo, name)
        problem = problem_of(joint_of(case, not args.as_traced), args.workspaces)
        row = {"model": name, "trace": time.process_time() - begin}
        return [row | curve(problem, args.limits, args.effort)]

    settings = {"limits": args.limits, "effort": args.effort, "workspaces": args.workspaces}
    settings |= {"as traced": args.as_traced, "zoo": args.zoo and args.zoo.name}
    kind = "scale" if args.layers else "curve"
    rows = harness.collect(args, kind, names, rows_of, **settings)
    harness.show([shown(row) for row in rows], columns(rows))
    return int(not all(judged(row)["valid"] for row in rows))


def columns(rows: Sequence[Row]) -> list[str]:
    """Those of a table; one for each limit where limits are named."""
    titles = [a["title"] for row in rows[:1] for a in row["answers"]]
    return [*COLUMNS, *(title for title in titles if not title.isdigit())]


def shown(row: Row) -> Row:
    """A row as its table has it."""
    seconds = [a["seconds"] for a in row["answers"]]
    mean = sum(seconds) / len(seconds)
    said = judged(row)
    cells: Row = {a["title"]: _cell(a) for a in row["answers"]}
    return {
        **cells,
        **row,
        **said,
        **{"found": f"{said['kept']}/{len(seconds)}", "lowest/floor": row["lowest"] / row["floor"]},
        **{"there": row["answers"][-1]["percent"], "s/solve": mean, "worst": max(seconds)},
        **{"s/1000 ops": 1000 * mean / row["ops"], "ratio": row["frontier"] / mean},
    }


def _cell(answer: Row) -> str:
    if answer["percent"] is None:
        return "-"
    return f"{answer['seconds']:.1f} ({answer['percent']:.2f} / {answer['bound']:.2f})"


if __name__ == "__main__":
    raise SystemExit(main())
