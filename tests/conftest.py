from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

TINY = """
from benchmarks.zoo import chain, gpt

MODELS = {
    "chain": lambda: chain(depth=6, width=16, batch=64),
    "gpt": lambda: gpt(layers=2, width=16, length=16, batch=2, heads=2, words=20),
}
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-update", action="store_true", help="rewrite the expected text in tests/golden"
    )


def pytest_configure() -> None:
    # One thread in each process: `pytest -n 2` fills two cores, and a sum has one order everywhere.
    torch.set_num_threads(1)
    # No test depends on how fast the machine is.
    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    """No test sees what another has compiled."""
    yield
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A zoo file with two models of a few ops."""
    path = tmp_path / "tiny.py"
    path.write_text(TINY)
    return path
