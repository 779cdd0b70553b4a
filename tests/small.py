"""Small models with a step each, compared with eager and measured in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import fxremat
from fxremat.backends.backend import Backend

Step = tuple[nn.Module, torch.Tensor]


class Attention(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.mlp = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(b, t, c)
        out: torch.Tensor = x + self.mlp(x)
        return out


class Chain(nn.Module):
    def __init__(self, depth: int = 16, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Judged(nn.Module):
    """A chain and a loss, whose scalar lives to the end in a storage of the unreduced size."""

    def __init__(self, loss: Callable[..., torch.Tensor], reduction: str) -> None:
        super().__init__()
        self.chain, self.loss, self.reduction = Chain(), loss, reduction

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.chain(x)
        return self.loss(y.sigmoid(), torch.ones_like(y), reduction=self.reduction)


class Broken(nn.Module):
    """Two graphs, with a break between them."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Chain(), Chain()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.one(x)
        torch._dynamo.graph_break()
        z: torch.Tensor = self.two(y)
        return z


def conv() -> Step:
    def block(a: int, b: int) -> list[nn.Module]:
        return [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]

    layers = block(3, 8)
    for _ in range(7):
        layers += block(8, 8)
    net = nn.Sequential(*layers)
    return net, torch.randn(8, 3, 32, 32)


def dropout() -> Step:
    layers: list[nn.Module] = []
    for _ in range(12):
        layers += [nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.5)]
    return nn.Sequential(*layers), torch.randn(1024, 64)


MODELS: dict[str, Callable[[], Step]] = {
    "chain": lambda: (Chain(), torch.randn(1024, 64)),
    "transformer": lambda: (
        nn.Sequential(*(Attention() for _ in range(4))),
        torch.randn(16, 32, 32),
    ),
    "conv": conv,
    "dropout": dropout,
    "mse": lambda: (Judged(F.mse_loss, "mean"), torch.randn(1024, 64)),
    "smooth_l1": lambda: (Judged(F.smooth_l1_loss, "sum"), torch.randn(1024, 64)),
    "soft_margin": lambda: (Judged(F.soft_margin_loss, "mean"), torch.randn(1024, 64)),
    "bce": lambda: (Judged(F.binary_cross_entropy, "sum"), torch.randn(1024, 64)),
}
BUDGETS = [0.7, 0.5, "min"]


def made(name: str) -> Step:
    torch.manual_seed(0)
    return MODELS[name]()


def step(model: nn.Module, run: Any, x: torch.Tensor) -> list[torch.Tensor]:
    """Loss, gradients and buffers of one step."""
    x = x.clone().requires_grad_()
    model.zero_grad()
    torch.manual_seed(1)
    loss = run(x).square().mean()
    loss.backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert x.grad is not None
    return [loss.detach(), x.grad, *grads, *(b.clone() for b in model.buffers())]


def assert_same(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> None:
    assert len(ours) == len(theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def make(budget: object, **options: object) -> Backend:
    return fxremat.backend(budget, **{"inner": "eager", "effort": 0, **options})


def compiled(name: str, how: Any) -> list[torch.Tensor]:
    model, x = made(name)
    return step(model, torch.compile(model, backend=how), x)


MEASURE = """
import sys

import torch
from torch.profiler import ProfilerActivity, profile
torch.set_num_threads(1)
import tests.small as t


def clear(x, model):
    for leaf in (x, *model.parameters()):
        leaf.grad = None


inner, *names = sys.argv[1:]
for name in names:
    for budget in t.BUDGETS:
        torch.compiler.reset()
        ours = t.make(budget, on_infeasible="closest", inner=inner)
        model, x = t.made(name)
        run = torch.compile(model, backend=ours)
        x.requires_grad_()
        seed = torch.ones_like(run(x).detach())
        run(x).backward(seed)
        clear(x, model)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
            y = run(x)
            y.backward(seed)
            del y
            clear(x, model)  # what is freed after a session spoils the next one
        now = peak = 0
        for event in prof.profiler.kineto_results.events():
            if event.name() == "[memory]":
                now += event.nbytes()
                peak = max(peak, now)
        (plan,) = ours.plans
        # the tangent was there before the session began
        tangent = seed.untyped_storage().nbytes()
        print("ROW", name, budget, peak + tangent, plan.predicted_peak, plan.budget or -1)
"""


def measure(inner: str, *names: str) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Measured peak, predicted peak and budget, in a process that has profiled nothing else."""
    args = [sys.executable, "-c", MEASURE, inner, *names]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("ROW")]
    return {(name, budget): (int(a), int(b), int(c)) for name, budget, a, b, c in rows}
