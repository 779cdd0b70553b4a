"""How long planning takes, by stage, against the whole of compiling with Inductor.

    python -m benchmarks.planning_time
    python -m benchmarks.planning_time --models gpt,unet --budgets 0.5 --json FILE

Rows: torch's own partitioner at memory budgets 1 (its default) and 0.5, and fxremat at each
budget. The first row of fxremat has an empty cache folder, as on a machine where it runs for the
first time: the device and the workspaces of all distinct ops are measured. Seconds, each row from
a process of its own with empty Inductor caches:

    joint, costs, solver, split   stages of planning
    planning    their sum; for torch, its partitioner
    compile     tracing, planning, Inductor, and the first forward and backward
    share       planning in percent of that
    plans       how often the graph was planned and compiled: more than once where the compiled
                code was above the budget
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from functorch.compile import (  # type: ignore[import-untyped]
    min_cut_rematerialization_partition,
)
from torch._functorch import config as functorch_config
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch._inductor.utils import fresh_cache

import fxremat
from benchmarks import harness
from fxremat.backends import inductor
from fxremat.planning import pipeline

__all__ = ["main", "run_case"]

STAGES = ("joint", "costs", "solver", "split")
COLUMNS = ("planner", "model", *STAGES, "planning", "compile", "share", "plans")
Run = Callable[..., torch.Tensor]


class TimedPartitioner(CustomPartitionerFn):
    """torch's own partitioner with a clock.

    Attributes:
        spent: seconds of each call.
    """

    def __init__(self) -> None:
        self.spent: list[float] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> TimedPartitioner:
        """Itself: Inductor copies its configuration."""
        return self

    def __call__(self, gm: torch.fx.GraphModule, joint_inputs: Sequence[object], **kw: Any) -> Any:
        start = time.perf_counter()
        halves = min_cut_rematerialization_partition(gm, joint_inputs, **kw)
        self.spent.append(time.perf_counter() - start)
        return halves

    def uuid(self) -> Any | None:
        """None: not to be cached."""
        return None


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    """Compile one model in this process and take the times."""
    module, args = harness.build(Path(case["zoo"]), case["model"])
    measure = _torch if case["planner"] == "torch" else _fxremat
    with fresh_cache():
        found = measure(module, args, case)
    found |= {"status": "done", "share": 100 * found["planning"] / found["compile"]}
    return found


def _torch(
    module: torch.nn.Module, args: tuple[torch.Tensor, ...], case: dict[str, Any]
) -> dict[str, Any]:
    timed = TimedPartitioner()
    run: Run = torch.compile(module, options={"custom_partitioner_fn": timed})
    with functorch_config.patch(activation_memory_budget=float(case["budget"])):
        seconds = _first_step(module, run, args)
    return {"planning": sum(timed.spent), "compile": seconds, "plans": len(timed.spent)}


def _fxremat(
    module: torch.nn.Module, args: tuple[torch.Tensor, ...], case: dict[str, Any]
) -> dict[str, Any]:
    stages = dict.fromkeys(STAGES, 0.0)
    calls = []

    def plan_joint(*args: Any, **more: Any) -> pipeline.Planned:
        planned = pipeline.plan_joint(*args, **more)
        for stage in STAGES:
            stages[stage] += planned.timings[stage]
        calls.append(planned)
        return planned

    run: Run = torch.compile(module, backend=fxremat.backend(case["budget"]))
    with mock.patch.object(inductor, "plan_joint", plan_joint):
        seconds = _first_step(module, run, args)
    planned = sum(stages.values())
    return {**stages, "planning": planned, "compile": seconds, "plans": len(calls)}


def _first_step(module: torch.nn.Module, run: Run, args: tuple[torch.Tensor, ...]) -> float:
    start = time.perf_counter()
    harness.step_of(module, run, args)()
    return time.perf_counter() - start


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    args = _parser().parse_args(argv)
    if harness.ran_case(args, run_case):
        return 0
    rows = [row for name in harness.chosen(args, ["gpt"]) for row in _rows(args, name)]
    print()
    harness.show(rows, COLUMNS)
    for row in rows:
        if row["status"] != "done":
            print(f"{row['model']}, {row['planner']}: {row['error']}")
    harness.write(args.json, rows)
    return int(any(row["status"] != "done" for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = harness.parser(__doc__)
    parser.add_argument("--budgets", default="0.5", help="of fxremat, separated by commas")
    parser.add_argument("--no-torch", action="store_true", help="leave out torch's own partitioner")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    return parser


def _rows(args: argparse.Namespace, name: str) -> list[dict[str, Any]]:
    shared = {"zoo": str(args.zoo.resolve()), "model": name}
    budgets: list[str] = args.budgets.split(",")
    rows = []
    for budget in () if args.no_torch else ("1.0", "0.5"):
        rows.append(_run(shared | {"planner": "torch", "budget": budget}, f"torch {budget}"))
    first = shared | {"planner": "fxremat", "budget": budgets[0]}
    with tempfile.TemporaryDirectory() as folder:
        rows.append(_run(first, f"fxremat {budgets[0]}, first time", Path(folder)))
    for budget in budgets:
        rows.append(_run(first | {"budget": budget}, f"fxremat {budget}"))
    return rows


def _run(case: dict[str, Any], title: str, cache: Path | None = None) -> dict[str, Any]:
    row = case | harness.run_child("benchmarks.planning_time", case, cache)
    print(f"{case['model']}, {title}: {row['status']}", flush=True)
    return row | {"planner": title}


if __name__ == "__main__":
    raise SystemExit(main())
