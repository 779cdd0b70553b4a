"""What the command line plans: ``file.py:factory`` or ``module:factory``.

A factory takes no arguments and returns ``(model, args)`` or ``(model, args, kwargs)``: a module
that returns the loss, and what it is called with (a tensor, or a tuple of anything).
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from fxremat.base.errors import OptionError
from fxremat.base.units import error_line

__all__ = ["Target", "import_file", "importable", "load"]

FORM = "write file.py:factory or module:factory"


@dataclass(frozen=True)
class Target:
    """A training step.

    Attributes:
        model: returns the loss.
        args: what it is called with.
        kwargs: the same, by name.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))

    @property
    def is_real(self) -> bool:
        """Whether all tensors have data, so that the step can be run."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        given = pytree.tree_leaves((self.args, self.kwargs))
        tensors += [t for t in given if isinstance(t, torch.Tensor)]
        return all(t.device.type != "meta" for t in tensors)


@contextmanager
def importable(spec: str) -> Iterator[None]:
    """In the body, a target's code can import what lies beside it, also when it runs.

    Args:
        spec: as for :func:`load`.
    """
    place, before = spec.rpartition(":")[0], sys.path[:]
    # As Python does for a script; or as python -m does, with no links resolved.
    beside = Path(place).resolve().parent if place.endswith(".py") else os.getcwd()  # noqa: PTH109
    sys.path.insert(0, str(beside))
    try:
        yield
    finally:
        sys.path[:] = before


def load(spec: str, *, meta: bool = False) -> Target:
    """Make a training step from its name.

    Args:
        spec: ``file.py:factory`` or ``module:factory``.
        meta: build it on the "meta" device, without memory, where the factory allows that.

    Raises:
        OptionError: if there is no such factory, it fails, or returns something else.
    """
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise OptionError(f"target {spec!r}: no factory is named; {FORM}")
    with _apart(place), _told(f"{place} cannot be imported", "mend it first"):
        found = _import(place)
    factory = getattr(found, name, None)
    if not callable(factory):
        raise _missing(place, name, found)
    with _apart(place):
        if meta:
            # Where it fails, it reads values, say: build it for real.
            with suppress(Exception, SystemExit), torch.device("meta"):
                return _checked(spec, factory())
        with _told(f"target {spec!r}", "run the factory by itself"):
            return _checked(spec, factory())


@contextmanager
def _apart(place: str) -> Iterator[None]:
    """A user's code sees no arguments of ours, and what it prints is not our output."""
    ours = sys.argv
    sys.argv = [place]
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv = ours


@contextmanager
def _told(what: str, remedy: str) -> Iterator[None]:
    """An error of a user's code in one line, with where it was raised."""
    try:
        yield
    except OptionError:
        raise
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        raise OptionError(f"{what}: {error_line(error)} ({where}); {remedy}") from error


def _import(place: str) -> ModuleType:
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise OptionError(f"there is no file {place!r}; {FORM}")
        return import_file(path, f"fxremat_target_{path.stem}")
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise
        raise OptionError(f"there is no module {place!r}; {FORM}") from error


def import_file(path: Path, name: str) -> ModuleType:
    """Run a Python file as a module of this name.

    Args:
        path: of a file whose name ends in ``.py``.
        name: what the module is called in ``sys.modules``, where Dynamo looks it up.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # the name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _missing(place: str, name: str, module: ModuleType) -> OptionError:
    known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"; near it are {', '.join(near)}" if near else ""
    return OptionError(f"{place} has no function {name!r}{hint}; {FORM}")


def _checked(spec: str, made: Any) -> Target:
    wanted = "return (model, args) or (model, args, kwargs)"
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        kind = type(made).__name__
        raise OptionError(f"target {spec!r}: the factory returned a {kind}; {wanted}")
    model, args, kwargs = (*made, {})[:3]
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise OptionError(f"target {spec!r}: the model is a {kind}, not an nn.Module; {wanted}")
    if isinstance(args, dict) and not kwargs:
        args, kwargs = (), args
    if not isinstance(args, (tuple, list)):
        args = (args,)
    return Target(model, tuple(args), dict(kwargs))
