"""Are budgets kept, and predictions right? Predicted against measured peak.

    python -m benchmarks.prediction
    python -m benchmarks.prediction --inner eager --models gpt,unet --budgets 0.5,min --no-time

For each model, inner compiler and budget one training step (forward and backward) is measured:

    limit       the peak that was allowed, in MiB
    predicted   the peak that the plan promises, in MiB
    measured    the peak above what exists when the step starts, from the allocator's events, in MiB
    ratio       predicted over measured: 1 is exact; below 1 the step held more than promised
    kept        measured is not above the limit; for "min", not above the prediction
    joint, costs, solver, split   seconds of each stage of planning
    compile     seconds of the first step: tracing, planning, compiling, and running it once
    time        step time over uncompiled eager, median of interleaved pairs
    planned     the same, predicted

A budget that no plan meets is a row "infeasible" with the least peak that the error names. The exit
code is 1 if a budget was broken or a case failed.

Each case runs in a process of its own. torch's reporter of CPU memory keeps the sizes of blocks
that were allocated in one profiling session and freed outside it; when such an address is used
again, later sessions count a block that they did not see allocated, and are wrong. For the same
reason time is measured after memory. Compile time depends on Inductor's caches on disk; --cold
gives each case empty ones.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch._inductor.utils import fresh_cache

import fxremat
from benchmarks import harness
from benchmarks.harness import MIB
from fxremat.base import measure
from fxremat.base.errors import BudgetError

__all__ = ["main", "run_case"]

BUDGETS = ("1.0", "0.7", "0.5", "0.4", "min")
STAGES = ("joint", "costs", "solver", "split")
COLUMNS = (
    *("model", "inner", "budget", "limit", "predicted", "measured", "ratio", "kept"),
    *(*STAGES, "compile", "time", "planned"),
)


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    """Measure one case in this process, which must not have profiled memory before."""
    module, args = harness.build(Path(case["zoo"]), case["model"])
    backend = fxremat.backend(case["budget"], inner=case["inner"])
    step = harness.step_of(module, torch.compile(module, backend=backend), args)
    start = time.perf_counter()
    try:
        with fresh_cache() if case["cold"] else contextlib.nullcontext():
            step()
            compiled = time.perf_counter() - start
            return _measured(case, backend, step, module, args) | {"compile": compiled}
    except Exception as error:
        budgets = [e for e in harness.causes(error) if isinstance(e, BudgetError)]
        if not budgets:
            raise
        return {"status": "infeasible", "asked": budgets[0].asked, "least": budgets[0].least}


def _measured(
    case: dict[str, Any],
    backend: fxremat.Backend,
    step: harness.Step,
    module: torch.nn.Module,
    args: tuple[torch.Tensor, ...],
) -> dict[str, Any]:
    if len(backend.plans) != 1:
        raise RuntimeError(f"{len(backend.plans)} graphs in one step; a prediction is for one")
    (plan,) = backend.plans
    module.zero_grad(set_to_none=True)
    peak = measure.peak_bytes(step)
    limit = plan.predicted_peak if plan.budget is None else plan.budget
    found: dict[str, Any] = {"status": "done", "kept": peak <= limit}
    found |= {"limit": limit, "predicted": plan.predicted_peak, "measured": peak}
    found |= {"baseline": plan.baseline_peak, "floor": plan.floor}
    found |= {"ratio": plan.predicted_peak / peak, "planned": 1 + plan.overhead}
    found |= backend.timings[0]
    if case["pairs"]:
        eager = harness.step_of(module, module, args)
        eager()
        found["time"] = measure.time_ratio(step, eager, case["pairs"])
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    args = _parser().parse_args(argv)
    if harness.ran_case(args, run_case):
        return 0
    rows: list[dict[str, Any]] = []
    for case in _cases(args):
        rows.append(_run(case))
        harness.write(args.json, rows)
    print()
    harness.show([_shown(row) for row in rows], COLUMNS)
    done = [row for row in rows if row["status"] == "done"]
    broken = sum(not row["kept"] for row in done)
    failed = sum(row["status"] == "failed" for row in rows)
    infeasible = len(rows) - len(done) - failed
    print(
        f"{len(done)} measured, {broken} broke their budget, {infeasible} infeasible, "
        f"{failed} failed"
    )
    for row in rows:
        if row["status"] == "failed":
            print(f"{row['model']} {row['inner']} {row['budget']}: {row['error']}")
    return int(bool(broken or failed))


def _parser() -> argparse.ArgumentParser:
    parser = harness.parser(__doc__)
    parser.add_argument("--inner", default="eager,inductor", help="separated by commas")
    parser.add_argument("--budgets", default=",".join(BUDGETS), help="separated by commas")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of timed steps (default: 5)")
    parser.add_argument("--no-time", action="store_true", help="measure memory alone")
    parser.add_argument("--cold", action="store_true", help="empty compile caches for each case")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    return parser


def _cases(args: argparse.Namespace) -> list[dict[str, Any]]:
    shared = {"zoo": str(args.zoo.resolve()), "cold": args.cold}
    shared |= {"pairs": 0 if args.no_time else args.pairs}
    return [
        shared | {"model": model, "inner": inner, "budget": budget}
        for inner in args.inner.split(",")
        for model in harness.chosen(args)
        for budget in args.budgets.split(",")
    ]


def _run(case: dict[str, Any]) -> dict[str, Any]:
    row = case | harness.run_child("benchmarks.prediction", case)
    print(f"{row['inner']} {row['model']} {row['budget']}: {row['status']}", flush=True)
    return row


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    shown = {k: row.get(k) for k in COLUMNS}
    if row["status"] == "done":
        return shown | {k: row[k] / MIB for k in ("limit", "predicted", "measured")}
    least = row.get("least")
    least = "" if least is None else f"least {least / MIB:.2f}"
    return shown | {"limit": row["status"], "predicted": least}


if __name__ == "__main__":
    raise SystemExit(main())
