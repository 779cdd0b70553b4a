"""Peaks to the byte where a kernel holds more than its traced values say; a process for each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fxremat
from fxremat.base.measure import peak_bytes


def rows() -> Callable[[], Tensor]:
    """Rows written one after the other: made functional, each write returns the whole."""
    w, x = torch.randn(1024, requires_grad=True), torch.randn(1024)

    def step() -> Tensor:
        cache = x.new_zeros(64, 1024)
        for i in range(4):
            cache[i] = x * w + i
        return (cache * w).sum()

    return step


def loss() -> Callable[[], Tensor]:
    """An op of torch's outside of aten that holds a chunk of logits."""
    x = torch.randn(512, 64, requires_grad=True)
    w, target = torch.randn(1000, 64, requires_grad=True), torch.randint(0, 1000, (512,))
    chunks = nn.modules.LinearCrossEntropyOptions(batch_chunk_size=64, allow_retain_graph=True)
    return lambda: functional.linear_cross_entropy(x, w, target, options=chunks)


def sort() -> Callable[[], Tensor]:
    """An op that Inductor leaves to ATen for its size."""
    x = torch.randn(8000, requires_grad=True)
    return lambda: (torch.sort(x * 2).values * torch.arange(8000.0)).sum()


def scaled() -> Callable[[], Tensor]:
    """A product that Inductor leaves to ATen by its own choice."""
    x, one = torch.randn(256, 256, requires_grad=True), torch.ones(())
    b = torch.randn(256, 256).to(torch.float8_e4m3fn).t()

    def step() -> Tensor:
        a = x.detach().to(torch.float8_e4m3fn)
        made: Tensor = torch._scaled_mm(a, b, one, one, out_dtype=torch.float32)
        return (made * x).sum()

    return step


PROGRAMS = {made.__name__: made for made in (rows, loss, sort, scaled)}


def measure(name: str, inner: str) -> tuple[int, int]:
    """The peak of the second step, predicted and measured."""
    torch.manual_seed(0)
    backend = fxremat.backend(inner=inner)
    run = torch.compile(PROGRAMS[name](), backend=backend)
    run().backward()
    measured = peak_bytes(lambda: run().backward())
    return backend.plans[0].predicted_peak, measured


@pytest.mark.parametrize(
    ("name", "inner"),
    [("rows", "eager"), ("loss", "eager"), ("sort", "inductor"), ("scaled", "inductor")],
)
def test_the_peak_is_predicted_to_the_byte(name: str, inner: str) -> None:
    code = f"from tests.test_real_peaks import measure; print(*measure({name!r}, {inner!r}))"
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    predicted, measured = map(int, done.stdout.split())
    assert predicted == measured


def test_what_depends_on_values_is_said_to_be_unknown() -> None:
    torch.compiler.reset()
    mask, backend = torch.rand(100) > 0.2, fxremat.backend(inner="eager")
    run = torch.compile(lambda x: x.sin().masked_scatter(mask, x.cos()).sum(), backend=backend)
    run(torch.randn(100, requires_grad=True)).backward()
    (plan,) = backend.plans
    assert plan.context.guesses == "workspace of 1 ops (aten.masked_scatter)"
    assert "workspace of 1 ops (aten.masked_scatter): the peak may be higher" in str(plan)
