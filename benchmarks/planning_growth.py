"""How planning time grows with the graph, beside torch's partitioner and the time to compile.

    python -m benchmarks.planning_growth
    python -m benchmarks.planning_growth --layers 2,4,8 --out FOLDER

A row for each size of a narrow transformer, so that running it takes no time that matters:

    ops          of the joint graph with Inductor's decompositions
    torch B      seconds of torch's own partitioner at activation_memory_budget=B
    fxremat      seconds of planning at a budget of 0.5, with ops that were measured before
    over torch   that over torch 0.5
    compile      seconds of the first step with fxremat and empty Inductor caches: tracing,
                 planning, compiling, one forward and backward
    share        planning in percent of compiling
    us/op        planning in microseconds for an op

Results go to ``planning.json`` and ``.png`` in the folder. ``benchmarks.planning_time`` takes
one model apart by stage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch._inductor.decomposition import select_decomp_table

import fxremat
from benchmarks import forks, harness, pictures, planning_time, zoo
from benchmarks.results import Results, add_options

__all__ = ["COLUMNS", "MODELS", "main", "run_torch", "warm"]

LAYERS = (2, 4, 8, 16, 32)
MODELS = {f"gpt{n}": partial(zoo.gpt, n, 64, 64, 2) for n in (1, *LAYERS, 48, 64)}
BUDGETS = ("1.0", "0.5")  # of torch: its default, and one at which it searches
COLUMNS = (
    *("layers", "ops", "torch 1.0", "torch 0.5", "fxremat", "over torch", "compile"),
    *("share", "us/op"),
)
STAGES = planning_time.STAGES
HERE = Path(__file__).resolve()


class Counted(planning_time.TimedPartitioner):
    """torch's partitioner with a clock, that counts the ops it is given.

    Attributes:
        ops: of the last graph.
    """

    ops = 0

    def __call__(self, gm: torch.fx.GraphModule, joint_inputs: Sequence[object], **kw: Any) -> Any:
        self.ops = sum(n.op == "call_function" for n in gm.graph.nodes)
        return super().__call__(gm, joint_inputs, **kw)


def run_torch(case: dict[str, Any]) -> dict[str, Any]:
    """Seconds of torch's partitioner at each budget; the halves are run as they are."""
    found: dict[str, Any] = {"status": "done"}
    for budget in BUDGETS:
        torch.compiler.reset()
        module, args = MODELS[case["model"]]()
        timed = Counted()
        backend = aot_autograd(
            fw_compiler=_as_is,
            partition_fn=timed,
            decompositions=select_decomp_table,
        )
        with functorch_config.patch(activation_memory_budget=float(budget)):
            run = torch.compile(module, backend=backend)
            harness.step_of(module, run, args)()
        found |= {f"torch {budget}": sum(timed.spent), "ops": timed.ops}
    return found


def _as_is(graph: torch.fx.GraphModule, _: Sequence[object]) -> torch.fx.GraphModule:
    return graph


def warm(case: dict[str, Any]) -> dict[str, Any]:
    """Measure the ops of a model on this machine, so that later plans need not."""
    module, args = MODELS[case["model"]]()
    run = torch.compile(module, backend=fxremat.backend(0.5))
    harness.step_of(module, run, args)()
    return {"status": "done"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    args = _parser().parse_args(argv)
    results = Results(args.out / "planning.json", {"budget": 0.5}, args.again)
    sizes = [int(n) for n in args.layers.split(",")]
    names = harness.named(",".join(f"gpt{n}" for n in sizes), MODELS)
    todo = [name for name in names if name.removeprefix("gpt") not in results.groups]
    if todo:
        forks.run_forked(warm, {"model": f"gpt{min(sizes)}"})
    for name in todo:
        row = _row(name)
        print(f"{name}: {row['status']}", file=sys.stderr, flush=True)
        if row["status"] == "done":
            results.record(str(row["layers"]), [row])
        else:
            print(f"{name}: {row['error']}")
    rows = [row for n in sizes for row in results.groups.get(str(n), [])]
    harness.show(rows, COLUMNS)
    titles = ("torch 1.0", "torch 0.5", "fxremat", "compile")
    series = {t: [(row["ops"], row[t]) for row in rows] for t in titles if rows}
    picture = results.path.with_suffix(".png")
    pictures.lines(series, picture, "ops of the joint graph", "seconds", log=True)
    return int(len(rows) < len(sizes))


def _row(name: str) -> dict[str, Any]:
    """Both planners at one size."""
    theirs = forks.run_forked(run_torch, {"model": name})
    case = {"zoo": str(HERE), "model": name, "planner": "fxremat", "budget": "0.5"}
    ours = forks.run_forked(planning_time.run_case, case)
    for found in (theirs, ours):
        if found["status"] != "done":
            return found
    return {
        **theirs,
        "layers": int(name.removeprefix("gpt")),
        "stages": {stage: ours[stage] for stage in STAGES},
        "fxremat": ours["planning"],
        "plans": ours["plans"],
        "over torch": ours["planning"] / theirs["torch 0.5"],
        "compile": ours["compile"],
        "share": ours["share"],
        "us/op": 1e6 * ours["planning"] / theirs["ops"],
    }


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--layers", default=",".join(map(str, LAYERS)), help="separated by commas")
    add_options(made)
    return made


if __name__ == "__main__":
    raise SystemExit(main())
