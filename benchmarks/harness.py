"""What the benchmarks share: the command line, models, measurements, tables, child processes."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fxremat.base.units import table
from fxremat.cli.targets import import_file

__all__ = [
    "HERE",
    "MIB",
    "add_graph_options",
    "build",
    "causes",
    "cell",
    "chosen",
    "load_zoo",
    "named",
    "parser",
    "ran_case",
    "run_child",
    "show",
    "step_of",
    "write",
]

MIB = 2**20
ERROR = re.compile(r"[\w.]*(Error|Exception|Exit|Interrupt)\b")  # how a traceback ends
HERE = Path(__file__).resolve().parent
Row = Mapping[str, Any]
Step = Callable[[], Tensor]
Case = tuple[nn.Module, tuple[Tensor, ...]]


def parser(text: str | None) -> argparse.ArgumentParser:
    """A command line with what every benchmark takes; ``text`` is the module's docstring."""
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--zoo", type=Path, default=HERE / "zoo.py", help="Python file with a MODELS dict"
    )
    made.add_argument(
        "--models", "--families", help="names, separated by commas (default: all that fit)"
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    return made


def add_graph_options(made: argparse.ArgumentParser) -> None:
    """Options of benchmarks of the solver: which graphs, and with what costs."""
    made.add_argument("--workspaces", action="store_true", help="count measured workspaces")
    made.add_argument(
        "--no-decompositions", action="store_true", help="graphs as for inner='eager'"
    )


def load_zoo(path: Path) -> dict[str, Callable[[], Case]]:
    """The ``MODELS`` of a file."""
    if path.suffix != ".py":
        raise SystemExit(f"{path} is not a Python file")
    models: dict[str, Callable[[], Case]] = import_file(path, f"zoo_{path.stem}").MODELS
    return models


def chosen(args: argparse.Namespace, default: Sequence[str] | None = None) -> list[str]:
    """The models that the command line names, or those of ``default`` that the zoo has."""
    known = load_zoo(args.zoo)
    if args.models is None:
        return [name for name in (default or known) if name in known]
    return named(args.models, known, f" in {args.zoo}")


def named(models: str | None, known: Iterable[str], where: str = "") -> list[str]:
    """The names in a list with commas, or all that are known; an error if one is unknown."""
    known = list(known)
    names = known if models is None else models.split(",")
    for name in names:
        if name not in known:
            raise SystemExit(f"no model {name!r}{where}; there are {', '.join(known)}")
    return names


def build(zoo: Path, name: str) -> Case:
    """A model of a zoo, the same weights and inputs each time."""
    torch.manual_seed(0)
    return load_zoo(zoo)[name]()


def step_of(module: nn.Module, run: Callable[..., Tensor], args: tuple[Tensor, ...]) -> Step:
    """One forward and backward of ``run`` that leaves the gradients at ``module``."""

    def step() -> Tensor:
        loss = run(*args)
        loss.backward()
        return loss

    def fresh() -> Tensor:
        module.zero_grad(set_to_none=True)
        return step()

    return fresh


def causes(error: BaseException) -> list[BaseException]:
    """An error and all that led to it, those that ``torch.compile`` wrapped included."""
    found: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is not None and one not in found:
            found.append(one)
            todo += [one.__context__, one.__cause__, getattr(one, "inner_exception", None)]
    return found


def run_child(module: str, case: Row, cache: Path | None = None) -> dict[str, Any]:
    """Run one case in a fresh process: ``python -m module --case JSON`` prints JSON last.

    Args:
        module: the benchmark's name.
        case: what to run.
        cache: where the process keeps its caches; None is where it always does.

    Returns:
        What the process printed, or ``{"status": "failed", "error": ...}``.
    """
    command = [sys.executable, "-m", module, "--case", json.dumps(case)]
    if cache is not None:
        command = ["env", f"XDG_CACHE_HOME={cache}", *command]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if ERROR.match(line)]
        return {"status": "failed", "error": errors[-1] if errors else f"exit {done.returncode}"}
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def ran_case(args: argparse.Namespace, run: Callable[[dict[str, Any]], Row]) -> bool:
    """Whether this process is a child of :func:`run_child`; then it has run its case by now."""
    if args.case is None:
        return False
    print(json.dumps(run(json.loads(args.case))))
    return True


def show(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Print rows as a table; the first column to the left, the others to the right."""
    print(table(columns, [[cell(row.get(c)) for c in columns] for row in rows]), flush=True)


def cell(value: object) -> str:
    """A value as tables show it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def write(path: Path | None, data: object) -> None:
    """Write results as JSON, if a file was named."""
    if path is not None:
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
