"""How far the default solver is from the optimum, where an exact solver can prove it.

    python -m benchmarks.gap
    python -m benchmarks.gap --models gpt2,unet3 --fractions 0.8,0.5 --time-limit 60
    python -m benchmarks.gap --several --models chain6,chain8

Each row of the first table is one limit of one instance. A fresh solver at its defaults answers, as
for a user who asks for one budget; the exact solver (fxremat/solver/exact/solve.py) starts from
that answer and looks for cheaper plans. Costs come from a fixed profile by the roofline and
workspaces are left out.

    graph       aten: as traced; decomposed: with Inductor's decompositions
    fraction    the limit on the peak, as a fraction of the peak of the plan that recomputes nothing
    ours        recompute time of the default solver's plan in percent of the step; "-": none found
    optimum     that of the best plan known: the cheapest of the exact solver's class or, if that
                is cheaper, ours; "-": none found
    proved      whether it is proved that the class has nothing cheaper, or nothing at all, before
                the time limit
    gap         ours - optimum
    bound       lower bound on the recompute time of every plan, from the default solver
    seconds, exact_seconds    of the two solvers

The second table has ours in short: "5.20" is proved to be the optimum, "5.20+0.31" is so much above
it, "5.20?" is late, "none" proved infeasible, "MISSED" found by the exact solver only.

The class is that of plans in which no op runs in two stages of the backward, or with --several
that of plans in which ops run in any number of stages; in both, runs stand in the stage that needs
them. Ours knows no such limits, so where it runs an op more than once, "optimum" says little: the
summary counts these cells apart.

Results go to ``gap.json`` and ``.png`` in the folder. The exit code is 1 if a bound is above a
plan's time, or a proved optimum above ours.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import harness, pictures, zoo
from benchmarks.harness import Row
from benchmarks.problems import joint_of, problem_of
from fxremat.problem.types import Problem
from fxremat.solver.exact.solve import solve_several, solve_single
from fxremat.solver.peak_solver import PeakSolver

__all__ = ["condensed", "judged", "main", "measure", "summary"]

GRAPHS = {"aten": False, "decomposed": True}
COLUMNS = (
    *("instance", "graph", "fraction", "ops", "ours", "optimum", "proved", "gap", "bound"),
    *("seconds", "exact_seconds"),
)
EQUAL = 1e-4  # percent of the step up to which two times are the same


def measure(
    problem: Problem, name: str, graph: str, fraction: float, several: bool, time_limit: float
) -> Row:
    """Solve one limit both ways; times of plans are in percent of the step.

    Returns:
        ``ours`` and ``optimum``, the default solver's plan and the best known, or None;
        ``repeats``, whether an op of ours runs more than once in the backward; ``proved``, whether
        the optimum is that of its class; ``bound``, None if no plan can be; seconds.
    """
    share = 100 / problem.step_seconds
    begin = time.perf_counter()
    solver = PeakSolver(problem)
    limit = int(fraction * solver.baseline.peak)
    point = solver.solve(limit)
    middle = time.perf_counter()
    start = None if point is None else point.schedule
    exact = solve_several if several else solve_single
    found = exact(problem, limit, time_limit=time_limit, start=start)
    end = time.perf_counter()
    bound = share * solver.lower_bound(limit)
    return judged(
        {
            **{"instance": name, "graph": graph, "fraction": fraction, "ops": len(problem.ops)},
            "ours": None if point is None else share * point.seconds,
            "repeats": point is not None and len(set(point.schedule)) < len(point.schedule),
            "optimum": None if found.point is None else share * found.point.seconds,
            **{"proved": found.proved, "bound": None if bound == math.inf else bound},
            **{"seconds": middle - begin, "exact_seconds": end - middle},
        }
    )


def judged(cell: Row) -> Row:
    """A cell with its gap, and whether no bound is above a plan, no proved optimum above ours."""
    ours, optimum, bound = cell["ours"], cell["optimum"], cell["bound"]
    plans = [plan for plan in (ours, optimum) if plan is not None]
    gap = None if len(plans) < 2 else ours - optimum
    below = bound is not None and all(bound <= plan + EQUAL for plan in plans)
    missing = ours is not None and optimum is None
    contradicted = cell["proved"] and (missing or (gap is not None and gap < -EQUAL))
    return cell | {"gap": gap, "valid": not contradicted and (below or not plans)}


def summary(cells: Sequence[Row]) -> list[str]:
    """What the cells say together, a line each."""
    proved = [c for c in cells if c["proved"]]
    both = [c for c in cells if c["gap"] is not None]
    gaps = [c["gap"] for c in both if c["proved"]]
    once = [c["gap"] for c in both if c["proved"] and not c["repeats"]]
    late = [c["gap"] for c in both if not c["proved"]]
    bounded = [c for c in proved if c["optimum"] is not None and c["bound"] is not None]
    loose = [c["optimum"] - c["bound"] for c in bounded]
    never = sum(c["optimum"] is None for c in proved)
    lines = [
        f"{len(cells)} cells: {len(gaps)} with a proved optimum, {never} proved infeasible, "
        f"{len(cells) - len(proved)} late"
    ]
    if gaps:
        equal = sum(g <= EQUAL for g in gaps)
        lines += [
            f"gap to proved optima: {_mean(gaps)}, "
            f"none at {equal} of {len(gaps)} ({100 * equal / len(gaps):.0f} %)",
            f"in {len(gaps) - len(once)} of these our plan runs an op more than once in a backward",
        ]
    for title, found in (
        (f"the other {len(once)}", once),
        ("gap to the best plan known where late", late),
        ("proved optimum - bound", loose),
    ):
        if found:
            lines.append(f"{title}: {_mean(found)}")
    missed = [c for c in cells if c["ours"] is None and c["optimum"] is not None]
    wrong = [c for c in cells if not c["valid"]]
    lines.append(f"limits at which only the exact solver found a plan: {_names(missed)}")
    return [*lines, f"bounds above a plan, or optima above ours: {_names(wrong)}"]


def _mean(found: Sequence[float]) -> str:
    return f"mean {sum(found) / len(found):.3f} %, worst {max(found):.3f} %"


def _names(cells: Sequence[Row]) -> str:
    return ", ".join(f"{c['instance']} {c['graph']} {c['fraction']}" for c in cells) or "none"


def condensed(cells: Sequence[Row]) -> list[Row]:
    """A row for each instance, a column for each graph and fraction."""
    rows: dict[str, Row] = {}
    for cell in cells:
        row = rows.setdefault(cell["instance"], {"instance": cell["instance"]})
        row[f"{cell['graph']} {cell['fraction']}"] = _short(cell)
    return list(rows.values())


def _short(cell: Row) -> str:
    if cell["ours"] is None:
        return "MISSED" if cell["optimum"] is not None else "none" if cell["proved"] else "-"
    gap = f"+{cell['gap']:.2f}" if cell["gap"] is not None and cell["gap"] >= 0.005 else ""
    return f"{cell['ours']:.2f}{gap}{'' if cell['proved'] else '?'}"


def _draw(cells: Sequence[Row], path: Path) -> None:
    """Recompute time of ours beside the proved optimum, a point for each cell that has both."""
    series: dict[str, list[tuple[float, float]]] = {}
    for cell in cells:
        if cell["proved"] and cell["gap"] is not None:
            series.setdefault(cell["graph"], []).append((cell["optimum"], cell["ours"]))
    if series:
        across, up = "proved optimum, % of a step", "fxremat, % of a step"
        pictures.points(series, path, across, up)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    made = harness.parser(__doc__)
    made.add_argument("--fractions", default="0.8,0.7,0.6,0.5", help="separated by commas")
    made.add_argument("--graphs", default=",".join(GRAPHS), help="aten, decomposed, or both")
    made.add_argument("--time-limit", type=float, default=20.0, help="of the exact solver, seconds")
    made.add_argument("--several", action="store_true", help="let ops run in several stages")
    args = made.parse_args(argv)
    names = harness.chosen(args.models, harness.load_zoo(args.zoo), () if args.zoo else zoo.SMALL)

    def rows_of(name: str) -> list[Row]:
        cells = []
        for graph in args.graphs.split(","):
            problem = problem_of(joint_of(harness.build(args.zoo, name), GRAPHS[graph]))
            for fraction in map(float, args.fractions.split(",")):
                cells.append(measure(problem, name, graph, fraction, args.several, args.time_limit))
        return cells

    settings = {"fractions": args.fractions, "graphs": args.graphs, "several": args.several}
    settings |= {"time limit": args.time_limit, "zoo": args.zoo and args.zoo.name}
    cells = harness.collect(args, "gap", names, rows_of, **settings)
    harness.show([c | {"fraction": str(c["fraction"])} for c in cells], COLUMNS)
    short = condensed(cells)
    harness.show(short, list(dict.fromkeys(title for row in short for title in row)))
    print(*("", *summary(cells)), sep="\n")
    _draw(cells, args.out / "gap.png")
    return int(not all(c["valid"] for c in cells))


if __name__ == "__main__":
    raise SystemExit(main())
