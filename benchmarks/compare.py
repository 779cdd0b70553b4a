"""Peak and time against what people use today, and what fxremat takes at each of their peaks.

    python -m benchmarks.compare
    python -m benchmarks.compare --models gpt,resnet --inner eager --picture compare.png

For each model and inner compiler, each of these is run in a process of its own:

    eager           uncompiled
    torch B         torch's own partitioner with activation_memory_budget=B
    every K         torch.utils.checkpoint around every K blocks, uncompiled
    selective       the same for each block, with products and convolutions saved
    fxremat B       a budget B of the baseline peak

    peak      bytes above what exists when the step starts, in MiB, measured
    time      step time over uncompiled eager, median of interleaved pairs
    ours      the time of fxremat with that row's peak as its budget; "-" if no plan meets it
    loss      whether the loss is eager's to 1e-4

The exit code is 1 if a budget of fxremat was broken or one of its losses is off.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch import config as functorch_config

import fxremat
from benchmarks import byhand, harness
from benchmarks.harness import MIB
from fxremat import measure
from fxremat.errors import BudgetError

__all__ = ["main", "run_case"]

TORCH = ("1.0", "0.7", "0.5", "0.3", "0.1", "0.0")
OURS = ("1.0", "0.7", "0.5", "0.4", "0.3", "min")
COLUMNS = ("model", "inner", "run", "peak", "of eager", "time", "ours", "kept", "loss")
CLOSE = 1e-4


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    """Measure one run in this process, which must not have profiled memory before."""
    module, args = harness.build(Path(case["zoo"]), case["model"])
    eager = harness.step_of(module, module, args)
    wanted = float(eager())
    changed, run, limit = _run_of(case, module)
    if run is None:
        return {"status": "not possible"}
    step = harness.step_of(changed, run, args)
    try:
        loss = float(step())
    except Exception as error:
        if any(isinstance(e, BudgetError) for e in harness.causes(error)):
            return {"status": "infeasible"}
        raise
    changed.zero_grad(set_to_none=True)
    module.zero_grad(set_to_none=True)
    peak = measure.peak_bytes(step)
    allowed = limit()
    return {
        "status": "done",
        "peak": peak,
        "time": measure.time_ratio(step, eager, case["pairs"]) if case["pairs"] else None,
        "kept": None if allowed is None else peak <= allowed,
        "loss": abs(loss - wanted) <= CLOSE * max(1.0, abs(wanted)),
    }


Run = Callable[..., Tensor] | None


def _run_of(case: dict[str, Any], module: nn.Module) -> tuple[nn.Module, Run, Callable[[], Any]]:
    """The module, what runs its step, and the limit on the peak, known once it has run."""
    kind, _, amount = case["run"].partition(" ")
    if kind in ("every", "selective"):
        copy, _ = harness.build(Path(case["zoo"]), case["model"])
        done = byhand.checkpointed(copy, int(amount or 1), kind == "selective")
        return copy, copy if done else None, lambda: None
    if kind == "torch":
        return module, _torch(module, float(amount), case["inner"]), lambda: None
    if kind == "fxremat":
        backend = fxremat.backend(amount, inner=case["inner"])
        run: Run = torch.compile(module, backend=backend)
        return module, run, lambda: backend.plans[0].budget
    return module, module, lambda: None


def _torch(module: nn.Module, budget: float, inner: str) -> Run:
    functorch_config.activation_memory_budget = budget
    backend = "inductor" if inner == "inductor" else "aot_eager_decomp_partition"
    compiled: Run = torch.compile(module, backend=backend)
    return compiled


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    args = _parser().parse_args(argv)
    if harness.ran_case(args, run_case):
        return 0
    rows: list[dict[str, Any]] = []
    for inner in args.inner.split(","):
        for model in harness.chosen(args, ["chain", "gpt", "gpt_fused", "resnet", "unet"]):
            rows += _compared(args, model, inner)
            harness.write(args.json, rows)
    harness.show([_shown(row) for row in rows], COLUMNS)
    if args.picture is not None:
        _draw(rows, args.picture)
    ours = [r for r in rows if r["run"].startswith("fxremat") and r["status"] == "done"]
    return int(any(not r["loss"] or r["kept"] is False for r in ours))


def _compared(args: argparse.Namespace, model: str, inner: str) -> list[dict[str, Any]]:
    module, _ = harness.build(args.zoo, model)
    theirs = [f"torch {b}" for b in TORCH] + [f"every {k}" for k in byhand.every(module)]
    runs = ["eager", *theirs, "selective", *(f"fxremat {b}" for b in OURS)]
    rows = [_measured(args, model, inner, run) for run in runs]
    eager = rows[0].get("peak")
    for row in rows:
        if row["status"] == "done":
            row["share"] = row["peak"] / eager if eager else None
            if row["run"].split()[0] not in ("eager", "fxremat"):
                matched = _measured(args, model, inner, f"fxremat {row['peak']}")
                row["ours"] = matched.get("time")
                row["ours kept"] = matched.get("kept")
    return rows


def _measured(args: argparse.Namespace, model: str, inner: str, run: str) -> dict[str, Any]:
    case = {"zoo": str(args.zoo.resolve()), "model": model, "inner": inner, "run": run}
    found = harness.run_child("benchmarks.compare", {**case, "pairs": args.pairs})
    print(f"{model} {inner} {run}: {found.get('status')}", file=sys.stderr, flush=True)
    return {"model": model, "inner": inner, "run": run, **found}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    if row["status"] != "done":
        return {**row, "peak": row["status"]}
    return {**row, "peak": row["peak"] / MIB, "of eager": row["share"]}


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Peak against time, one panel for each model and inner compiler."""
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((r["model"], r["inner"]) for r in rows))
    figure = Figure(figsize=(5 * min(3, len(panels)), 4 * -(-len(panels) // 3)), layout="tight")
    for place, (model, inner) in enumerate(panels, 1):
        axes = figure.add_subplot(-(-len(panels) // 3), min(3, len(panels)), place)
        done = [r for r in rows if (r["model"], r["inner"]) == (model, inner) and r.get("time")]
        for kind, mark in (("eager", "k*"), ("torch", "rs-"), ("every", "mD"), ("selective", "g^"),
                           ("fxremat", "bo-")):  # fmt: skip
            points = [(r["peak"] / MIB, r["time"]) for r in done if r["run"].split()[0] == kind]
            if points:
                axes.plot(*zip(*sorted(points), strict=True), mark, label=kind, markersize=5)
        axes.set(title=f"{model}, {inner}", xlabel="measured peak, MiB", ylabel="time over eager")
        axes.legend(fontsize=8)
    figure.savefig(path)


def _parser() -> argparse.ArgumentParser:
    parser = harness.parser(__doc__)
    parser.add_argument("--inner", default="eager,inductor", help="separated by commas")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of timed steps; 0: no times")
    parser.add_argument("--picture", type=Path, metavar="FILE", help=".png or .svg (matplotlib)")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
