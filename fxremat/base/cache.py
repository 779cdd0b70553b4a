"""Small JSON files in the user's cache folder: device profiles, measured ops, plans of graphs.

The folder is ``$XDG_CACHE_HOME/fxremat``, or ``~/.cache/fxremat`` where that variable is unset
(XDG base directory specification). What lies there can always be made again, so nothing here
raises: a file that cannot be read counts as absent, one that cannot be written is not kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from fxremat.base.files import replace_text

__all__ = ["load", "machine", "store", "update"]

WAIT = 10  # seconds for another process that writes


def load(name: str) -> dict[str, Any] | None:
    """What was kept under ``name``, or None if there is nothing that can be read."""
    try:
        data = json.loads(_path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def store(name: str, data: dict[str, Any]) -> bool:
    """Keep ``data`` under ``name``.

    Returns:
        Whether it was kept; False where the folder is not writable.
    """
    return update(name, lambda _: data)


def update(name: str, change: Callable[[dict[str, Any] | None], dict[str, Any]]) -> bool:
    """Keep what a function makes of what is kept under ``name``; one process after the other.

    Returns:
        Whether it was kept; False where the folder is not writable.
    """
    try:
        path = _path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.parent / ".lock", timeout=WAIT):
            replace_text(path, json.dumps(change(load(name)), separators=(",", ":")))
    except (OSError, RuntimeError):  # of the second kind: no home folder, no locks
        return False
    return True


def machine(device: torch.device) -> str:
    """What measurements on ``device`` depend on: torch version, device name, thread count."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    elif device.type == "cpu":
        name = f"{_processor()} {torch.backends.cpu.get_cpu_capability()}"
    else:
        name = f"{device.type} {platform.node()}"
    return f"torch {torch.__version__} {name} {torch.get_num_threads()} threads"


def _path(name: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return folder / "fxremat" / (re.sub(r"[^A-Za-z0-9.+-]+", "_", name) + ".json")


def _processor() -> str:
    """The processor's name: ``platform.processor`` is empty or just the family on Linux."""
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        if found:
            return found[1]
    return platform.processor() or platform.machine()
