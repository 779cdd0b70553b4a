"""Problems made of models at a fixed profile, and those that are kept as fixtures.

    python -m benchmarks.problems                     # list the fixtures
    python -m benchmarks.problems --write             # trace the models again and write them
    python -m benchmarks.problems --write llama7b

Models are traced on fake tensors and costs come from a fixed profile by the roofline, so the
same problem comes out on every machine. A fixture is ``Problem.to_json()``, compressed; a test
or benchmark that reads it need not wait for a trace.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks import families, harness
from benchmarks.harness import MIB
from benchmarks.llama import llama as llama_model
from fxremat.costs import workspace
from fxremat.costs.devices import DeviceProfile
from fxremat.costs.model import CostModel
from fxremat.costs.tensor_meta import signature, storage_bytes
from fxremat.frontend.build import Sizing, formulate
from fxremat.frontend.trace import trace_joint
from fxremat.problem.types import Problem
from fxremat.solver.peak_solver import PeakSolver
from passes.analysis.joint import JointGraph
from passes.cleanup.clean import clean

__all__ = [
    "FIXTURES",
    "PROFILE",
    "capture",
    "instance",
    "joint_of",
    "llama",
    "load",
    "main",
    "problem_of",
]

PROFILE = DeviceProfile("reference", (("float32", 1e11),), bandwidth=3e10, launch=1e-6)
FOLDER = Path(__file__).resolve().parent / "fixtures"


def joint_of(case: harness.Case, decompose: bool) -> JointGraph:
    """The joint graph of a model, cleaned up; nothing is run."""
    torch.compiler.reset()
    module, args = case
    joint, outputs = trace_joint(module, args, decompositions=decompose)
    return JointGraph.from_module(clean(joint), outputs)


def capture(zoo: Path, name: str, decompose: bool) -> JointGraph:
    """The joint graph of a model of a zoo, cleaned up."""
    return joint_of(harness.build(zoo, name), decompose)


def problem_of(joint: JointGraph, workspaces: bool = False) -> Problem:
    """The problem at the reference profile, with or without workspaces measured on the CPU."""
    costs = CostModel(PROFILE)
    seen = workspace.measure(joint.nodes, "cpu") if workspaces else {}
    held = {key: found.workspace for key, found in seen.items()}
    return formulate(
        joint,
        Sizing(
            seconds=lambda node: costs.cost(node).seconds,
            flops=lambda node: costs.cost(node).flops,
            storage=lambda tensor: storage_bytes(tensor, PROFILE.rounding),
            workspace=lambda node: held.get(signature(node), 0),
        ),
    )


def instance(name: str, decompose: bool = True, workspaces: bool = False) -> Problem:
    """The problem of one of ``benchmarks.families.MODELS``."""
    return problem_of(joint_of(families.MODELS[name](), decompose), workspaces)


def llama(layers: int, decompose: bool = True) -> Problem:
    """The problem of a transformer as wide as the one with 7 billion parameters."""
    return problem_of(joint_of(llama_model(layers), decompose))


FIXTURES: dict[str, Callable[[], Problem]] = {"llama7b": lambda: llama(32)}


def load(name: str) -> Problem:
    """Read a fixture."""
    return Problem.from_json(gzip.decompress(_path(name).read_bytes()).decode())


def _path(name: str) -> Path:
    return FOLDER / f"{name}.json.gz"


def _write(name: str) -> None:
    text = FIXTURES[name]().to_json()
    FOLDER.mkdir(exist_ok=True)
    _path(name).write_bytes(gzip.compress(text.encode(), mtime=0))


def main(argv: Sequence[str] | None = None) -> int:
    """List the fixtures, or write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="fixtures (default: all)")
    parser.add_argument("--write", action="store_true", help="trace the models and write files")
    args = parser.parse_args(argv)
    for name in args.names:
        if name not in FIXTURES:
            raise SystemExit(f"no fixture {name!r}; there are {', '.join(FIXTURES)}")
    rows = []
    for name in args.names or FIXTURES:
        start = time.perf_counter()
        if args.write:
            _write(name)
        rows.append(_describe(name) | {"seconds": time.perf_counter() - start})
    harness.show(rows, ["fixture", "KiB", "ops", "values", "baseline", "floor", "seconds"])
    return 0


def _describe(name: str) -> dict[str, object]:
    problem = load(name)
    solver = PeakSolver(problem)
    return {
        "fixture": name,
        "KiB": _path(name).stat().st_size / 1024,
        "ops": len(problem.ops),
        "values": len(problem.values),
        "baseline": solver.baseline.peak / MIB,
        "floor": solver.floor / MIB,
    }


if __name__ == "__main__":
    raise SystemExit(main())
