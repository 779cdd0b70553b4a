"""Models that are no plain chains, and small ones whose optimal plans a solver can prove.

Each factory gives a module and its arguments; ``module(*args)`` is a scalar loss. Benchmarks take
them by ``--zoo benchmarks/families.py --models NAME``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.zoo import Case, WithLoss, chain, gpt, mean_of_squares, resnet, unet

__all__ = [
    "FAMILIES",
    "INSTANCES",
    "MODELS",
    "densenet",
    "encoder_decoder",
    "long_skips",
    "recurrence",
    "two_branch",
    "uneven",
]


class Dense(nn.Module):
    """A layer that appends its result to all that came before (Huang et al. 2017)."""

    def __init__(self, inside: int, growth: int) -> None:
        super().__init__()
        conv = nn.Conv2d(inside, growth, 3, padding=1, bias=False)
        self.layer = nn.Sequential(nn.BatchNorm2d(inside), nn.ReLU(), conv)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layer(x)], 1)


def densenet(
    blocks: Sequence[int] = (6, 12, 8), growth: int = 12, batch: int = 8, size: int = 32
) -> Case:
    """Dense blocks with halvings between them: values of all sizes, most of them read twice."""
    width = 2 * growth
    body: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False)]
    for number, layers in enumerate(blocks):
        if number:
            body += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
            width //= 2
        for _ in range(layers):
            body.append(Dense(width, growth))
            width += growth
    body += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
    images, classes = torch.randn(batch, 3, size, size), torch.randint(10, (batch,))
    return WithLoss(nn.Sequential(*body), functional.cross_entropy), (images, classes)


class Branches(nn.Module):
    """Two towers over the same input, joined after their last layers."""

    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        left = [nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth)]
        right = [
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
            for _ in range(depth)
        ]
        self.left, self.right = nn.Sequential(*left), nn.Sequential(*right)
        self.join = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        joined: Tensor = self.join(torch.cat([self.left(x), self.right(x)], 1))
        return joined


def two_branch(depth: int = 16, width: int = 256, batch: int = 1024) -> Case:
    """Two towers joined late: the backward walks through them side by side."""
    return WithLoss(Branches(depth, width), mean_of_squares), (torch.randn(batch, width),)


class Attention(nn.Module):
    """Attention from one sequence to another, or to itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ask, self.tell = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.mix = nn.Linear(width, width)

    def forward(self, x: Tensor, source: Tensor, causal: bool) -> Tensor:
        parts = (self.ask(x), *self.tell(source).chunk(2, -1))
        query, key, value = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        out = functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
        joined: Tensor = self.mix(out.transpose(1, 2).flatten(2))
        return joined


class Coder(nn.Module):
    """A pre-norm layer of an encoder, or of a decoder that also looks at the encoder's result."""

    def __init__(self, width: int, heads: int, decoder: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 + decoder))
        self.attend = Attention(width, heads)
        self.look = Attention(width, heads) if decoder else None
        self.think = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        y = self.norms[0](x)
        x = x + self.attend(y, y, causal=self.look is not None)
        if self.look is not None and memory is not None:
            x = x + self.look(self.norms[2](x), memory, causal=False)
        out: Tensor = x + self.think(self.norms[1](x))
        return out


class EncoderDecoder(nn.Module):
    """A transformer that reads one text and predicts another (Vaswani et al. 2017)."""

    def __init__(self, layers: int, width: int, heads: int, words: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.encode = nn.ModuleList(Coder(width, heads, decoder=False) for _ in range(layers))
        self.decode = nn.ModuleList(Coder(width, heads, decoder=True) for _ in range(layers))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, words))

    def forward(self, source: Tensor, text: Tensor, target: Tensor) -> Tensor:
        memory, x = self.tokens(source), self.tokens(text)
        for layer in self.encode:
            memory = layer(memory)
        for layer in self.decode:
            x = layer(x, memory)
        logits: Tensor = self.head(x)
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def encoder_decoder(
    layers: int = 4, width: int = 128, length: int = 128, batch: int = 8, words: int = 1000
) -> Case:
    """Cross attention: every decoder layer reads what the encoder made at its end."""
    source, text = torch.randint(words, (batch, length)), torch.randint(words, (batch, length + 1))
    network = EncoderDecoder(layers, width, width // 32, words)
    return network, (source, text[:, :-1], text[:, 1:])


class Recurrence(nn.Module):
    """A minimal gated unit (Zhou et al. 2016) run over the steps of its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.fresh = nn.Linear(2 * width, width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x[0])
        for part in x.unbind(0):
            gate = self.gate(torch.cat([part, state], 1)).sigmoid()
            fresh = self.fresh(torch.cat([part, gate * state], 1)).tanh()
            state = state + gate * (fresh - state)
        return state


def recurrence(steps: int = 120, width: int = 128, batch: int = 128) -> Case:
    """One cell over many steps: all weights are shared, so their gradients live throughout."""
    return WithLoss(Recurrence(width), mean_of_squares), (torch.randn(steps, batch, width),)


class LongSkips(nn.Module):
    """Layers up and down; each on the way down also reads its counterpart on the way up."""

    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        levels = [x]
        for part in self.up:
            levels.append(functional.silu(part(levels[-1])))
        y = levels.pop()
        for part in self.down:
            y = functional.silu(part(torch.cat([y, levels.pop()], 1)))
        return y


def long_skips(depth: int = 24, width: int = 128, batch: int = 2048) -> Case:
    """A U of linear layers with skips of every length, from one layer to all."""
    return WithLoss(LongSkips(depth, width), mean_of_squares), (torch.randn(batch, width),)


def uneven(widths: Sequence[int], batch: int = 4096) -> Case:
    """A chain whose values differ in size, and its layers in time."""
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.Tanh())]
    return WithLoss(nn.Sequential(*layers), mean_of_squares), (torch.randn(batch, widths[0]),)


FAMILIES: dict[str, Callable[[], Case]] = {
    "densenet": densenet,
    "two_branch": two_branch,
    "encoder_decoder": encoder_decoder,
    "recurrence": recurrence,
    "long_skips": long_skips,
}

INSTANCES: dict[str, Callable[[], Case]] = {
    "chain6": lambda: chain(depth=6),
    "chain8": lambda: chain(depth=8),
    "chain10": lambda: chain(depth=10),
    "chain12": lambda: chain(depth=12),
    "chain16": lambda: chain(depth=16),
    "hourglass": lambda: uneven((256, 512, 128, 32, 128, 512, 256)),
    "rising": lambda: uneven((64, 96, 128, 192, 256, 384, 512, 512)),
    "sawtooth": lambda: uneven((64, 512, 128, 768, 64, 512, 128, 256)),
    "gpt1": lambda: gpt(layers=1, width=128, length=128),
    "gpt1_fused": lambda: gpt(layers=1, width=128, length=128, fused=True),
    "gpt2": lambda: gpt(layers=2, width=128, length=128),
    "gpt2_fused": lambda: gpt(layers=2, width=128, length=128, fused=True),
    "resnet1": lambda: resnet(blocks=(1,)),
    "resnet1_1": lambda: resnet(blocks=(1, 1), width=16),
    "unet2": lambda: unet(depth=2),
    "unet3": lambda: unet(depth=3),
    "recurrence8": lambda: recurrence(steps=8),
    "recurrence16": lambda: recurrence(steps=16),
    "densenet4": lambda: densenet(blocks=(4,)),
    "densenet2_2": lambda: densenet(blocks=(2, 2)),
    "two_branch3": lambda: two_branch(depth=3),
    "encoder_decoder1": lambda: encoder_decoder(layers=1, length=64),
    "long_skips4": lambda: long_skips(depth=4),
}

MODELS = FAMILIES | INSTANCES
