"""Text to train on that is on every machine: the source files of Python's standard library."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

TEXT_BYTES = 4_000_000


def read_text() -> tuple[Tensor, int]:
    """The characters of the standard library as indices, and how many there are to tell apart."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = ""
    for path in sorted(folder.glob("*.py")):
        text += path.read_text(encoding="utf-8", errors="ignore")
        if len(text) > TEXT_BYTES:
            break
    index = {c: i for i, c in enumerate(sorted(set(text)))}
    return torch.tensor([index[c] for c in text]), len(index)


def batches(data: Tensor, *, length: int, batch: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless random windows of the text, the same for one seed: inputs and next characters."""
    generator = torch.Generator().manual_seed(seed)
    window = torch.arange(length + 1)
    while True:
        last = len(data) - len(window) + 1
        starts = torch.randint(last, (batch, 1), generator=generator)
        chunk = data[starts + window]
        yield chunk[:, :-1].contiguous(), chunk[:, 1:].contiguous()
