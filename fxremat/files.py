"""Files that we write for users."""

from __future__ import annotations

import os
from contextlib import suppress
from os import PathLike
from pathlib import Path

from .errors import OptionError

__all__ = ["write_text"]


def write_text(path: str | PathLike[str], text: str) -> None:
    """Write a file, in one step: it is there as a whole or, after an error, as it was.

    Raises:
        OptionError: if it cannot be written.
    """
    target = Path(path)
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(target)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink()
        why = error.strerror or str(error)
        raise OptionError(
            f"{target} cannot be written ({why}); name a file in a folder that is there"
        ) from error
