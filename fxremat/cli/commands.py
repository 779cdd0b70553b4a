"""What the commands of the command line do; :mod:`fxremat.cli.parser` parses."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from fxremat.api import offline
from fxremat.base.errors import OptionError
from fxremat.base.files import read_text, write_text
from fxremat.base.units import table
from fxremat.cli.bench import Row, bench
from fxremat.cli.targets import Target, importable, load
from fxremat.inspect.drawings import to_dot
from fxremat.inspect.explain import Explainer
from fxremat.inspect.reports import write_report
from fxremat.options import PlanOptions
from fxremat.plans.diff import diff
from fxremat.plans.frontier import Frontier
from fxremat.plans.plan import Plan
from fxremat.plans.words import words

__all__ = ["bench_", "diff_", "explain_", "frontier_", "plan_", "show_"]

MIB = 2**20
# What goes from the command line to fxremat.plan and fxremat.frontier, under one name.
OF_STEP = {"budget", "memory", "device", "optimizer", "accumulates", *PlanOptions.__optional_keys__}


def plan_(args: Namespace) -> int:
    """``fxremat plan``."""
    options = _step_options(args)
    with _target(args) as step, _progress(args, "planning"):
        found = offline.plan(step.model, step.args, step.kwargs, **options)
    if args.output:
        found.save(args.output)
    _write_files(args, found, None)
    print(found.to_json() if args.json else found)
    return 0


def frontier_(args: Namespace) -> int:
    """``fxremat frontier``."""
    options = _step_options(args)
    with _target(args) as step, _progress(args, "searching the frontier"):
        found = offline.frontier(step.model, step.args, step.kwargs, **options)
    if args.output:
        write_text(args.output, found.to_json() + "\n")
    _write_files(args, found.knee, found)
    _print_frontier(args, found)
    return 0


def show_(args: Namespace) -> int:
    """``fxremat show``."""
    found = _read(args.file)
    if isinstance(found, Frontier):
        _write_files(args, found.knee, found)
        _print_frontier(args, found)
        return 0
    curve = None
    if args.frontier:
        with _progress(args, "searching the frontier"):
            curve = offline.frontier(found)
    _write_files(args, found, curve)
    print(found.to_json() if args.json else found)
    if curve is not None and not args.json:
        print()
        _print_frontier(args, curve)
    return 0


def diff_(args: Namespace) -> int:
    """``fxremat diff``."""
    found = diff(Plan.load(args.first), Plan.load(args.second))
    print(json.dumps(found.to_data(), indent=1) if args.json else found)
    return 0


def explain_(args: Namespace) -> int:
    """``fxremat explain``."""
    explainer = Explainer(Plan.load(args.file))
    name = None if args.name is None else explainer.find(args.name)
    with _progress(args, "planning what else there could be"):
        if args.json:
            text = json.dumps(_explained(explainer, name), indent=1)
        else:
            text = explainer.summary() if name is None else explainer.about(name)
    print(text)
    return 0


def bench_(args: Namespace) -> int:
    """``fxremat bench``."""
    rows: list[Row] = []
    runs = bench(args.target, args.budgets, args.inner, args.pairs)
    for label in ("eager", *args.budgets):
        with _progress(args, f"measuring {label}"):
            rows.append(next(runs))
    if args.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        _print_rows(rows)
    return 1 if any(_broken(r) for r in rows) else 0


# --------------------------------------------------------------------------------------- input


@contextmanager
def _target(args: Namespace) -> Iterator[Target]:
    with importable(args.target):
        with _progress(args, f"making {args.target}"):
            step = load(args.target, meta=True)
        yield step


def _step_options(args: Namespace) -> dict[str, Any]:
    found = {n: v for n, v in vars(args).items() if n in OF_STEP and v is not None}
    if "policy" in found:
        found["policy"] = dict(_policy(one) for one in found["policy"])
    return found


def _policy(text: str) -> tuple[str, str]:
    pattern, equals, verdict = text.rpartition("=")
    if not equals or not pattern:
        raise OptionError(f"--policy {text!r}: no verdict in it; write 'aten.mm=save', say")
    return pattern, verdict


def _read(path: str) -> Plan | Frontier:
    text = read_text(path, "name what plan -o wrote")
    kind = Frontier if '"frontier":' in text[:100] else Plan
    try:
        return kind.from_json(text)
    except ValueError as error:
        raise OptionError(f"{path}: {error}") from error


@contextmanager
def _progress(args: Namespace, what: str) -> Iterator[None]:
    """Say on stderr what takes long, and how long it took."""
    if args.quiet:
        yield
        return
    print(f"{what} ...", end="", file=sys.stderr, flush=True)
    start = time.perf_counter()
    try:
        yield
    except BaseException:
        print(file=sys.stderr)
        raise
    print(f" {time.perf_counter() - start:.1f} s", file=sys.stderr)


# -------------------------------------------------------------------------------------- output


def _write_files(args: Namespace, found: Plan, curve: Frontier | None) -> None:
    if args.html:
        with _progress(args, f"writing {args.html}"):
            write_report(found, args.html, curve)
    if args.dot:
        write_text(args.dot, to_dot(found))
    if args.svg:
        from fxremat.inspect.drawings.graphs import joint_graph
        from fxremat.inspect.drawings.svg import to_svg

        write_text(args.svg, to_svg(joint_graph(found)))
    if args.chart:
        from fxremat.inspect.drawings.charts import save_chart
        from fxremat.inspect.drawings.frontier import frontier_chart
        from fxremat.inspect.drawings.timeline import timeline_chart

        save_chart(timeline_chart(found) if curve is None else frontier_chart(curve), args.chart)


def _print_frontier(args: Namespace, found: Frontier) -> None:
    if args.json:
        points = [_point(p) | {"knee": p is found.knee} for p in found]
        named = {name: _point(p) for name, p in found.strategies.items()}
        print(json.dumps({"frontier": points, "strategies": named}, indent=1))
        return
    print(found)
    if found.strategies:
        print("\nwhat people do by hand:")
        rows = [
            (name, words(p).peak, words(p).time, _beside(found, p))
            for name, p in found.strategies.items()
        ]
        print(table(("strategy", "peak", "time", "the frontier at that peak"), rows))


def _beside(found: Frontier, plan: Plan) -> str:
    best = found.within(plan.predicted_peak)
    return "-" if best is None else words(best).time


def _point(plan: Plan) -> dict[str, Any]:
    return {
        "peak": plan.predicted_peak,
        "share": plan.predicted_peak / max(1, plan.baseline_peak),
        "recomputed": len(plan.recomputed),
        **_picked(plan, "overhead recompute_seconds lower_bound_seconds saved_bytes"),
    }


def _picked(thing: object, names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names.split()}


def _explained(explainer: Explainer, name: str | None) -> dict[str, Any]:
    more, less = explainer.more, explainer.less
    worth = {
        side: {"bytes": found.nbytes, "seconds": found.seconds}
        for side, found in (("more", more), ("less", less))
    }
    if name is None:
        values = explainer.problem.values
        top = [
            {"name": values[i.value].name, "bytes": i.nbytes, "holding": i.holding}
            for i in explainer.at_peak()
        ]
        return {"peak": explainer.limit, "largest": top, "worth": worth}
    decision, flip = explainer.decisions[name], explainer.flip(name)
    return {
        **_picked(decision, "name nbytes choice runs reason rebuild"),
        "rebuild_seconds": decision.rebuild_seconds if decision.rebuild else None,
        **_picked(explainer.context.origin(name), "op shape module source code"),
        "flip": None if flip is None else asdict(flip),
        "worth": worth,
    }


def _print_rows(rows: Sequence[Row]) -> None:
    cells = []
    for row in rows:
        sizes = (row.limit, row.predicted, row.measured)
        ratios = (row.time, row.planned)
        cells.append(
            (
                row.run,
                *("-" if n is None else f"{n / MIB:.2f}" for n in sizes),
                *("-" if n is None else f"{n:.2f}" for n in ratios),
                "-" if row.gradients is None else f"{row.gradients:.1e}",
            )
        )
    print(
        table(["run", "limit MiB", "predicted", "measured", "time", "planned", "gradients"], cells)
    )
    for row in rows:
        if row.error:
            print(f"{row.run}: {row.error}")


def _broken(row: Row) -> bool:
    over = row.limit is not None and row.measured is not None and row.measured > row.limit
    return over or bool(row.error)
