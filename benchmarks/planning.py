"""How long planning takes as graphs grow, beside torch's partitioner and the time to compile.

    python -m benchmarks.planning
    python -m benchmarks.planning --models gpt8,unet4 --budget 0.7 --cold

A row for each size of a narrow transformer, so that running it takes no time that matters, or for
each model that is named (seconds are those of one run):

    ops          of the joint graph with Inductor's decompositions
    torch B      seconds of torch's own partitioner at activation_memory_budget=B
    joint, costs, solver, split   seconds of the stages of planning
    fxremat      their sum, with ops that were measured before; with --cold the device and all ops
                 are measured anew, as where it runs for the first time
    over torch   that over torch 0.5
    compile      seconds of the first step with fxremat and empty Inductor caches: tracing,
                 planning, compiling, one forward and backward
    share        planning in percent of compiling
    us/op        planning in microseconds for an op
    plans        how often the graph was planned and compiled: more than once where the compiled
                 code was above the budget

Results go to ``planning.json`` and ``.png`` in the folder.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from functorch.compile import (  # type: ignore[import-untyped]
    min_cut_rematerialization_partition,
)
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.utils import fresh_cache

import fxremat
from benchmarks import harness, pictures, zoo
from benchmarks.harness import Row
from fxremat.backends import inductor
from fxremat.planning import pipeline

__all__ = ["COLUMNS", "main", "run_ours", "run_torch"]

BUDGETS = ("1.0", "0.5")  # of torch: its default, and one at which it searches
STAGES = ("joint", "costs", "solver", "split")
COLUMNS = (
    *("model", "ops", "torch 1.0", "torch 0.5", *STAGES, "fxremat", "over torch", "compile"),
    *("share", "us/op", "plans"),
)


def run_torch(case: Row) -> Row:
    """Seconds of torch's partitioner at each budget; the halves are run as they are."""
    found: Row = {"status": "done"}

    def timed(gm: torch.fx.GraphModule, joint_inputs: Sequence[object], **more: Any) -> Any:
        start = time.perf_counter()
        halves = min_cut_rematerialization_partition(gm, joint_inputs, **more)
        found[f"torch {budget}"] = time.perf_counter() - start
        found["ops"] = sum(node.op == "call_function" for node in gm.graph.nodes)
        return halves

    for budget in BUDGETS:
        torch.compiler.reset()
        backend = aot_autograd(
            fw_compiler=lambda graph, _: graph,
            partition_fn=timed,
            decompositions=select_decomp_table,
        )
        with functorch_config.patch(activation_memory_budget=float(budget)):
            _step(case, backend)
    return found


def run_ours(case: Row) -> Row:
    """Seconds of each stage and of compiling."""
    if case["cache"]:
        os.environ["XDG_CACHE_HOME"] = case["cache"]
    stages, planned = dict.fromkeys(STAGES, 0.0), []

    def plan_joint(*args: Any, **more: Any) -> pipeline.Planned:
        planned.append(pipeline.plan_joint(*args, **more))
        for stage in STAGES:
            stages[stage] += planned[-1].timings[stage]
        return planned[-1]

    with fresh_cache(), mock.patch.object(inductor, "plan_joint", plan_joint):
        seconds = _step(case, fxremat.backend(case["budget"]))
    found: Row = {"status": "done", "fxremat": sum(stages.values()), "plans": len(planned)}
    return found | stages | {"compile": seconds}


def _step(case: Row, backend: Any) -> float:
    """Seconds of a model's first step with a backend."""
    module, args = harness.build(case["zoo"] and Path(case["zoo"]), case["model"])
    start = time.perf_counter()
    harness.step_of(module, torch.compile(module, backend=backend), args)()
    return time.perf_counter() - start


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    made = harness.parser(__doc__)
    made.add_argument("--cold", action="store_true", help="nothing was measured before")
    made.add_argument("--budget", default="0.5", help="of fxremat (default: 0.5)")
    args = made.parse_args(argv)
    default = () if args.zoo else zoo.NARROW
    names = harness.chosen(args.models, harness.load_zoo(args.zoo), default)
    case = {"zoo": args.zoo and str(args.zoo.resolve()), "budget": args.budget}

    def rows_of(name: str) -> list[Row]:
        # Narrow transformers of all depths have the same ops, so those of the first are enough.
        fresh = name == names[0] or name not in zoo.NARROW
        return [_row(case | {"model": name}, args.cold, fresh)]

    rows = harness.collect(args, "planning", names, rows_of, cold=args.cold, **case)
    harness.show(rows, COLUMNS)
    done = [row for row in rows if row["status"] == "done"]
    for row in rows:
        if row["status"] != "done":
            print(f"{row['model']}: {row['error']}")
    titles = ("torch 1.0", "torch 0.5", "fxremat", "compile")
    if done:
        series = {t: [(row["ops"], row[t]) for row in done] for t in titles}
        picture = args.out / "planning.png"
        pictures.lines(series, picture, "ops of the joint graph", "seconds")
    return int(len(done) < len(names))


def _row(case: Row, cold: bool, fresh: bool) -> Row:
    """Both planners for one model; its ops may have to be measured first, if they are fresh."""
    theirs = harness.run_forked(run_torch, case)
    with tempfile.TemporaryDirectory() as folder:
        if fresh and not cold:
            harness.run_forked(run_ours, case | {"cache": ""})
        ours = harness.run_forked(run_ours, case | {"cache": folder if cold else ""})
    row = {"model": case["model"], **theirs, **ours}
    if not theirs["status"] == ours["status"] == "done":
        return row | {"status": "failed", "error": theirs.get("error") or ours["error"]}
    return row | {
        "over torch": row["fxremat"] / row["torch 0.5"],
        "share": 100 * row["fxremat"] / row["compile"],
        "us/op": 1e6 * row["fxremat"] / row["ops"],
    }


if __name__ == "__main__":
    raise SystemExit(main())
