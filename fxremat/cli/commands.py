"""What the commands of the command line do; :mod:`fxremat.cli.parser` parses."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fxremat.api import offline
from fxremat.base.errors import OptionError
from fxremat.base.files import read_text, write_text
from fxremat.base.tables import print_table
from fxremat.cli import targets
from fxremat.cli.bench import Row, bench
from fxremat.inspect.drawings import to_dot
from fxremat.inspect.explain import Explainer, Flip
from fxremat.inspect.reports import write_report
from fxremat.plans.diff import diff
from fxremat.plans.frontier import Frontier
from fxremat.plans.plan import Plan
from fxremat.plans.words import words

__all__ = ["bench_", "diff_", "explain_", "frontier_", "plan_", "show_"]

MIB = 2**20


def plan_(args: Namespace) -> int:
    """``fxremat plan``."""
    target = _load(args)
    options = _step_options(args)
    for name in ("budget", "memory", "strategy"):
        if getattr(args, name) is not None:
            options[name] = getattr(args, name)
    if args.k != 1:
        options["k"] = args.k
    if args.closest:
        options["on_infeasible"] = "closest"
    with _progress(args, "planning"):
        found = offline.plan(target.model, target.args, target.kwargs, **options)
    if args.output:
        found.save(args.output)
    _write_files(args, found, None)
    print(found.to_json() if args.json else found)
    return 0


def frontier_(args: Namespace) -> int:
    """``fxremat frontier``."""
    target = _load(args)
    with _progress(args, "searching the frontier"):
        found = offline.frontier(target.model, target.args, target.kwargs, **_step_options(args))
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
    budgets = [b for b in args.budgets.split(",") if b]
    rows: list[Row] = []
    runs = bench(args.target, budgets, args.inner, args.pairs)
    for label in ("eager", *budgets):
        with _progress(args, f"measuring {label}"):
            rows.append(next(runs))
    if args.json:
        print(json.dumps([{n: getattr(r, n) for n in Row.__dataclass_fields__} for r in rows]))
    else:
        _print_rows(rows)
    return 1 if any(_broken(r) for r in rows) else 0


# --------------------------------------------------------------------------------------- input


def _load(args: Namespace) -> targets.Target:
    with _progress(args, f"making {args.target}"):
        return targets.load(args.target, meta=True)


def _step_options(args: Namespace) -> dict[str, Any]:
    options: dict[str, Any] = {
        "device": args.device,
        "inner": args.inner,
        "optimizer": args.optimizer,
        "accumulates": args.accumulates,
        "effort": args.effort,
        "time_limit": args.time_limit,
    }
    if args.policy:
        options["policy"] = dict(_policy(one) for one in args.policy)
    return options


def _policy(text: str) -> tuple[str, str]:
    pattern, equals, verdict = text.rpartition("=")
    if not equals or not pattern:
        raise OptionError(f"--policy {text!r}: no verdict in it; write 'aten.mm=save', say")
    return pattern, verdict


def _read(path: str) -> Plan | Frontier:
    text = read_text(path, "name what plan -o wrote")
    try:
        data = json.loads(text)
    except ValueError as error:
        said = f"{path}: neither a plan nor a frontier, nor any JSON: {error}"
        raise OptionError(said) from error
    kind = Frontier if isinstance(data, dict) and "frontier" in data else Plan
    try:
        return kind.from_data(data)
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
        from fxremat.inspect.drawings import charts

        drawn = charts.timeline_chart(found) if curve is None else charts.frontier_chart(curve)
        charts.save_chart(drawn, args.chart)


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
        print_table(("strategy", "peak", "time", "the frontier at that peak"), rows)


def _beside(found: Frontier, plan: Plan) -> str:
    best = found.within(plan.predicted_peak)
    return "-" if best is None else words(best).time


def _point(plan: Plan) -> dict[str, Any]:
    return {
        "peak": plan.predicted_peak,
        "share": plan.predicted_peak / max(1, plan.baseline_peak),
        "overhead": plan.overhead,
        "recompute_seconds": plan.recompute_seconds,
        "lower_bound_seconds": plan.lower_bound_seconds,
        "saved_bytes": plan.saved_bytes,
        "recomputed": len(plan.recomputed),
    }


def _explained(explainer: Explainer, name: str | None) -> dict[str, Any]:
    worth = {
        side: {"bytes": w.nbytes, "seconds": w.seconds}
        for side, w in (("more", explainer.more), ("less", explainer.less))
    }
    if name is None:
        values = explainer.problem.values
        top = [
            {"name": values[i.value].name, "bytes": i.nbytes, "holding": i.holding}
            for i in explainer.at_peak()
        ]
        return {"peak": explainer.limit, "largest": top, "worth": worth}
    decision, origin = explainer.decisions[name], explainer.context.origin(name)
    return {
        **{n: getattr(decision, n) for n in ("name", "nbytes", "choice", "runs", "reason")},
        "rebuild": decision.rebuild,
        "rebuild_seconds": decision.rebuild_seconds if decision.rebuild else None,
        **{n: getattr(origin, n) for n in ("op", "shape", "module", "source", "code")},
        "flip": _flip(explainer.flip(name)),
        "worth": worth,
    }


def _flip(found: Flip | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"choice": found.choice, "seconds": found.seconds, "why": found.why}


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
    head = ("run", "limit MiB", "predicted", "measured", "time", "planned", "gradients")
    print_table(head, cells)
    for row in rows:
        if row.error:
            print(f"{row.run}: {row.error}")


def _broken(row: Row) -> bool:
    over = row.limit is not None and row.measured is not None and row.measured > row.limit
    return over or bool(row.error)
