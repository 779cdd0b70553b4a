"""The examples in docstrings run and print what is written."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
WITH_EXAMPLES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for package in ("fxremat", "passes")
    for path in (ROOT / package).rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


def test_the_main_functions_have_examples() -> None:
    wanted = ("fxremat.api.offline", "fxremat.api.batch_size", "fxremat.backends.backend")
    assert set(wanted) <= set(WITH_EXAMPLES)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_print_what_is_written(name: str) -> None:
    torch.manual_seed(0)
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failed
