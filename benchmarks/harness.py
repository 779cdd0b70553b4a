"""What the benchmarks share: the command line, child processes, results in files, tables."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import zoo
from benchmarks.zoo import Case
from fxremat.base.units import error_line, table
from fxremat.cli.targets import import_file

__all__ = [
    "FOLDER",
    "MIB",
    "Case",
    "Row",
    "Step",
    "build",
    "cell",
    "chosen",
    "collect",
    "in_mib",
    "load_zoo",
    "parser",
    "read",
    "run_forked",
    "show",
    "step_of",
]

MIB = 2**20
FOLDER = Path(__file__).resolve().parent / "results"
HUGGING_FACE = (
    "transformers.models.llama.modeling_llama",
    "transformers.models.bert.modeling_bert",
    "transformers.models.vit.modeling_vit",
    "diffusers.models.unets.unet_2d",
)
SERVED = ("torch._inductor.compile_fx", "benchmarks.variants", *HUGGING_FACE)
PATIENCE = 600  # seconds that a case may take
Row = dict[str, Any]
Step = Callable[[], Tensor]


def parser(text: str | None, models: bool = True) -> argparse.ArgumentParser:
    """A command line with what every benchmark takes.

    Args:
        text: the docstring of its module.
        models: whether it runs models of the zoo.
    """
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if models:
        made.add_argument("--zoo", type=Path, metavar="FILE", help="Python file with a MODELS dict")
        made.add_argument("--models", "--families", help="names, separated by commas")
    made.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER", help="of the results")
    made.add_argument("--again", action="store_true", help="forget earlier results")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too")
    made.add_argument("--minutes", type=float, default=60, help="begin nothing later than that")
    return made


def load_zoo(path: Path | None) -> Mapping[str, Callable[[], Case]]:
    """The ``MODELS`` of a file, or those of ``benchmarks.zoo``."""
    if path is None:
        return zoo.MODELS
    if path.suffix != ".py":
        raise SystemExit(f"{path} is not a Python file")
    models: dict[str, Callable[[], Case]] = import_file(path, f"zoo_{path.stem}").MODELS
    return models


def chosen(wanted: str | None, known: Iterable[str], default: Iterable[str] = ()) -> list[str]:
    """The names in a list with commas, else the defaults, else all that are known."""
    known = list(known)
    names = wanted.split(",") if wanted else list(default) or known
    for name in names:
        if name not in known:
            raise SystemExit(f"no model {name!r}; there are {', '.join(known)}")
    return names


def build(path: Path | None, name: str) -> Case:
    """A model of a zoo, the same weights and inputs each time."""
    torch.manual_seed(0)
    return load_zoo(path)[name]()


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


def run_forked(run: Callable[[Row], Row], case: Row, patience: float = PATIENCE) -> Row:
    """What ``run`` returns for a case in a process of its own.

    Memory can be measured only once in a process. This one is forked from a server that has
    imported what cases need and run nothing: an interpreter takes longer to start than most cases.

    Args:
        run: a function of a module, which the process finds by name.
        case: its argument.
        patience: seconds after which the process is ended.

    Returns:
        What it returned, or ``{"status": "failed", "error": ...}``.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(SERVED))
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(run, case, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(patience):
            process.kill()
            return {"status": "failed", "error": f"no result after {patience:.0f} s"}
        found: Row = ours.recv()
        return found
    except EOFError:
        process.join()
        return {"status": "failed", "error": f"exit {process.exitcode}"}
    finally:
        process.join()


def _child(run: Callable[[Row], Row], case: Row, pipe: Connection) -> None:
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # what the profiler and compilers print is not of the parent's tables
    os.dup2(nowhere, 2)
    try:
        found = run(case)
    except Exception as error:
        found = {"status": "failed", "error": error_line(error)}
    pipe.send(found)


def collect(
    args: argparse.Namespace,
    kind: str,
    names: Sequence[str],
    rows_of: Callable[[str], list[Row]],
    **settings: Any,
) -> list[Row]:
    """The rows of each name, made or found where an earlier run left them; all are kept in a file.

    Args:
        args: of :func:`parser`.
        kind: the file is ``kind.json`` in the folder of the results.
        names: what there are rows of.
        rows_of: makes them.
        settings: what rows depend on; those of other settings are forgotten.
    """
    path: Path = args.out / f"{kind}.json"
    old = json.loads(path.read_text()) if path.exists() and not args.again else {}
    groups: dict[str, list[Row]] = old["groups"] if old.get("settings") == settings else {}
    begin = time.monotonic()
    for name in names:
        if name in groups:
            continue
        if time.monotonic() - begin > 60 * args.minutes:
            print(f"{args.minutes:g} minutes are over; run again to go on from {name}")
            break
        start = time.monotonic()
        groups[name] = rows_of(name)
        print(f"{kind} {name}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
        _write(path, {"machine": _machine(), "settings": settings, "groups": groups})
    rows = [row for name in names for row in groups.get(name, [])]
    if args.json is not None:
        _write(args.json, rows)
    return rows


def _machine() -> Row:
    """What the numbers were taken on, in words that name no host."""
    threads, cores = torch.get_num_threads(), os.cpu_count()
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    return {**versions, "threads": threads, "cores": cores}


def _write(path: Path, data: object) -> None:
    """Write JSON in one step, so that an interrupted run leaves what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


def read(path: Path) -> list[Row]:
    """The rows that :func:`collect` kept in a file; none where there is no file."""
    if not path.exists():
        return []
    groups: dict[str, list[Row]] = json.loads(path.read_text(encoding="utf-8"))["groups"]
    return [row for rows in groups.values() for row in rows]


def show(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Print rows as a table; the first column to the left, the others to the right."""
    print()
    print(table(columns, [[cell(row.get(c)) for c in columns] for row in rows]), flush=True)


def cell(value: object) -> str:
    """A value as tables show it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def in_mib(row: Row, *keys: str) -> Row:
    """A row with some of its values in MiB instead of bytes."""
    return row | {k: row[k] / MIB for k in keys if row.get(k) is not None}
