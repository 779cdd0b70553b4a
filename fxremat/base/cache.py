"""Small JSON files in the user's cache folder: device profiles and measured ops.

The folder is ``$XDG_CACHE_HOME/fxremat``, or ``~/.cache/fxremat`` where that variable is unset
(XDG base directory specification). What lies there can always be measured again, so nothing here
raises: a file that cannot be read counts as absent, one that cannot be written is not kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import tempfile
from pathlib import Path
from typing import Any

import torch

__all__ = ["folder", "load", "machine", "store"]


def folder() -> Path:
    """The cache folder; it need not exist yet.

    Raises:
        RuntimeError: if the user has no home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "fxremat"


def load(name: str) -> dict[str, Any] | None:
    """What :func:`store` kept under ``name``, or None if there is nothing that can be read."""
    try:
        data = json.loads(_path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def store(name: str, data: dict[str, Any]) -> bool:
    """Keep ``data`` under ``name``; the file is replaced in one step, so no reader sees half of it.

    Returns:
        Whether it was kept; False where the folder is not writable.
    """
    text = json.dumps(data, separators=(",", ":"))
    try:
        path = _path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    except (OSError, RuntimeError):
        return False
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(scratch).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(scratch).unlink()
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
    return folder() / (re.sub(r"[^A-Za-z0-9.+-]+", "_", name) + ".json")


def _processor() -> str:
    """The processor's name: ``platform.processor`` is empty or just the family on Linux."""
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        if found:
            return found[1]
    return platform.processor() or platform.machine()
