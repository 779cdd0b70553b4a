"""Results of benchmarks as JSON files in a folder: written as they come, read by the tables."""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import HERE

__all__ = ["FOLDER", "Results", "add_options", "machine", "read", "read_list"]

FOLDER = HERE / "results"
Row = dict[str, Any]


def add_options(made: argparse.ArgumentParser) -> None:
    """Options of benchmarks that go on from their results: where these are, and to begin anew."""
    made.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER", help="of the results")
    made.add_argument("--again", action="store_true", help="forget earlier results")


def machine() -> dict[str, Any]:
    """What the numbers were taken on, in words that name no host."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
    }


class Results:
    """A file of rows, grouped under keys such as names of models.

    Attributes:
        path: of the file.
        groups: the rows of each key.
    """

    def __init__(self, path: Path, settings: Row, again: bool = False) -> None:
        """Read what an earlier run with the same settings left, unless it is to run again.

        Args:
            path: of the file; it need not exist.
            settings: what results depend on; another run's are not mixed with these.
            again: whether to forget what is there.
        """
        self.path = path
        self.settings = settings
        self.groups: dict[str, list[Row]] = {}
        if path.exists() and not again:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["settings"] == settings:
                self.groups = kept["groups"]

    def record(self, key: str, rows: list[Row]) -> None:
        """Keep the rows of a key, and write the file."""
        self.groups[key] = rows
        kept = {"machine": machine(), "settings": self.settings, "groups": self.groups}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".part")
        beside.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        beside.replace(self.path)


def read(path: Path) -> list[Row]:
    """The rows of a file, in order; none where there is no file."""
    if not path.exists():
        return []
    groups: dict[str, list[Row]] = json.loads(path.read_text(encoding="utf-8"))["groups"]
    return [row for rows in groups.values() for row in rows]


def read_list(path: Path) -> list[Row]:
    """The rows of a file that is a plain list; none where there is no file."""
    if not path.exists():
        return []
    found: list[Row] = json.loads(path.read_text(encoding="utf-8"))
    return found
