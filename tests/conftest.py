from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-update", action="store_true", help="rewrite the expected text in tests/golden"
    )


def pytest_configure() -> None:
    # One thread in each process: `pytest -n 2` fills two cores, and a sum has one order everywhere.
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    """No test sees what another has compiled."""
    yield
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
