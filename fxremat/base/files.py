"""Files: replaced in one step, and read and written with errors that say what to do."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from fxremat.base.errors import OptionError

__all__ = ["read_text", "replace_text", "write_text", "writing"]


def read_text(path: str | PathLike[str], remedy: str) -> str:
    """The text of a file.

    Raises:
        OptionError: if it cannot be read or is no text; the message ends with the remedy.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror or error}; {remedy}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{path}: no text ({error}); {remedy}") from error


@contextmanager
def writing(path: str | PathLike[str]) -> Iterator[None]:
    """Say of an error in the body which file cannot be written.

    Raises:
        OptionError: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise OptionError(
            f"{path} cannot be written ({error.strerror or error}); name a file in a folder that "
            "is there"
        ) from error


def write_text(path: str | PathLike[str], text: str) -> None:
    """Write a file, in one step: it is there as a whole or, after an error, as it was.

    Raises:
        OptionError: if it cannot be written.
    """
    with writing(path):
        replace_text(Path(path), text)


def replace_text(path: Path, text: str) -> None:
    """The same with the error as it comes: an OSError."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(path)
    except OSError:
        with suppress(OSError):
            scratch.unlink()
        raise
