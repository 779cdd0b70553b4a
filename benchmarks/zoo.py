"""Small training models with the memory shapes that matter, sized for two CPU cores.

Each factory in :data:`MODELS` gives a module and its arguments; ``module(*args)`` is a scalar loss.

    python -m benchmarks.zoo                # list the models: parameters and the loss of one step
    python -m benchmarks.zoo --json FILE
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MODELS", "Case", "chain", "gpt", "linear", "main", "resnet", "unet"]

Case = tuple[nn.Module, tuple[Tensor, ...]]


class WithLoss(nn.Module):
    """A network followed by a loss, so that a call gives a scalar."""

    def __init__(self, network: nn.Module, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.network = network
        self.loss = loss

    def forward(self, batch: Tensor, *targets: Tensor) -> Tensor:
        return self.loss(self.network(batch), *targets)


def mean_of_squares(output: Tensor, *target: Tensor) -> Tensor:
    """Mean of the squares of the output, or of its distance from a target."""
    return (output - target[0] if target else output).square().mean()


# ----------------------------------------------------------------------------------- MLP chain


def linear(width: int) -> nn.Linear:
    """A layer that keeps the size of what passes through many of its kind.

    With PyTorch's default it vanishes, forward and backward, and CPUs are slow at denormal numbers.
    """
    layer = nn.Linear(width, width)
    nn.init.orthogonal_(layer.weight)
    return layer


def chain(depth: int = 32, width: int = 256, batch: int = 4096) -> Case:
    """A uniform chain of layers, the textbook case of checkpointing."""
    layers = [layer for _ in range(depth) for layer in (linear(width), nn.Tanh())]
    return WithLoss(nn.Sequential(*layers), mean_of_squares), (torch.randn(batch, width),)


# ---------------------------------------------------------------------------------- transformer


class Attention(nn.Module):
    """Causal self-attention: one fused op, or the textbook formula, which keeps the scores."""

    def __init__(self, width: int, heads: int, length: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.project, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        hidden = torch.full((length, length), float("-inf")).triu(1)
        self.register_buffer("hidden", hidden, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        split = self.project(x).unflatten(-1, (3, self.heads, -1))
        query, key, value = (part.transpose(1, 2) for part in split.unbind(2))
        if self.fused:
            out = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5 + self.hidden
            out = scores.softmax(-1) @ value
        joined: Tensor = self.mix(out.transpose(1, 2).flatten(2))
        return joined


class Layer(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, width: int, heads: int, length: int, fused: bool) -> None:
        super().__init__()
        self.attend = nn.Sequential(nn.LayerNorm(width), Attention(width, heads, length, fused))
        self.think = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(x)
        out: Tensor = x + self.think(x)
        return out


class GPT(nn.Module):
    """Token and position embeddings, layers, and a head over the vocabulary."""

    def __init__(
        self, layers: int, width: int, heads: int, words: int, length: int, fused: bool
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(length, width) / width**0.5)
        self.layers = nn.Sequential(*(Layer(width, heads, length, fused) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, words))

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers(self.tokens(tokens) + self.places))
        return logits.transpose(1, 2)  # classes second, as cross_entropy wants them


def gpt(
    layers: int = 8,
    width: int = 256,
    length: int = 256,
    batch: int = 4,
    heads: int = 4,
    words: int = 1000,
    fused: bool = False,
) -> Case:
    """A decoder-only transformer that predicts random words."""
    text = torch.randint(words, (batch, length + 1))
    network = GPT(layers, width, heads, words, length, fused)
    return WithLoss(network, functional.cross_entropy), (text[:, :-1], text[:, 1:])


# -------------------------------------------------------------------------------- convolutions


def conv_norm(inside: int, outside: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """A convolution without bias and its batch norm."""
    conv = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outside))


class Residual(nn.Module):
    """A basic residual block; its activations overwrite their inputs."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            conv_norm(inside, outside, 3, stride),
            nn.ReLU(inplace=True),
            conv_norm(outside, outside),
        )
        same = inside == outside and stride == 1
        self.short = nn.Identity() if same else conv_norm(inside, outside, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.main(x) + self.short(x), inplace=True)


def resnet(
    blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 32, batch: int = 64, size: int = 32
) -> Case:
    """A residual network as used on CIFAR, with batch norm and in-place activations."""
    body: list[nn.Module] = [conv_norm(3, width), nn.ReLU(inplace=True)]
    inside = width
    for stage, count in enumerate(blocks):
        outside = width << stage
        for block in range(count):
            body.append(Residual(inside, outside, 2 if stage > 0 and block == 0 else 1))
            inside = outside
    body += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10)]
    images, classes = torch.randn(batch, 3, size, size), torch.randint(10, (batch,))
    return WithLoss(nn.Sequential(*body), functional.cross_entropy), (images, classes)


def twice(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
    """Two convolutions with group norm and SiLU."""
    parts: list[nn.Module] = []
    for source, step in ((inside, stride), (outside, 1)):
        parts += [nn.Conv2d(source, outside, 3, step, 1), nn.GroupNorm(4, outside), nn.SiLU()]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    """Encoder and decoder with a long skip at each resolution."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.encode = nn.ModuleList(twice(a, b, 2) for a, b in pairwise(widths))
        self.decode = nn.ModuleList(twice(a + b, a) for a, b in reversed([*pairwise(widths)]))
        self.leave = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        levels = [self.enter(x)]
        for part in self.encode:
            levels.append(part(levels[-1]))
        y = levels.pop()
        for part in self.decode:
            y = part(torch.cat([functional.interpolate(y, scale_factor=2), levels.pop()], 1))
        out: Tensor = self.leave(y)
        return out


def unet(width: int = 16, depth: int = 4, batch: int = 8, size: int = 64) -> Case:
    """A UNet that learns to give back its input."""
    images = torch.randn(batch, 3, size, size)
    return WithLoss(UNet(width, depth), mean_of_squares), (images, images)


MODELS: dict[str, Callable[[], Case]] = {
    "chain": chain,
    "chain64": lambda: chain(depth=64),
    "gpt": gpt,
    "gpt_fused": lambda: gpt(fused=True),
    "gpt_deep": lambda: gpt(layers=24),
    "resnet": resnet,
    "unet": unet,
}


def main(argv: Sequence[str] | None = None) -> int:
    """List the models."""
    from benchmarks import harness

    parser = harness.parser(__doc__)
    args = parser.parse_args(argv)
    rows = [_describe(args.zoo, name) for name in harness.chosen(args)]
    harness.show(rows, ["model", "parameters", "input", "loss"])
    harness.write(args.json, rows)
    return 0


def _describe(zoo: Path, name: str) -> dict[str, object]:
    from benchmarks import harness

    module, args = harness.build(zoo, name)
    with torch.no_grad():
        loss = module(*args)
    count = sum(p.numel() for p in module.parameters())
    shape = "x".join(map(str, args[0].shape))
    return {"model": name, "parameters": count, "input": shape, "loss": f"{float(loss):.4g}"}


if __name__ == "__main__":
    raise SystemExit(main())
