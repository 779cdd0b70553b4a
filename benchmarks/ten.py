"""Ten families of models, each a training step of 50 to 400 ms on two CPU cores.

The ResNet is there in both memory formats. Four families are Hugging Face's own
(``benchmarks/pretrained.py``) and need transformers and diffusers. Benchmarks take the file by
``--zoo benchmarks/ten.py``; it is the default of ``python -m benchmarks.compare``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import pretrained
from benchmarks.families import recurrence
from benchmarks.zoo import Attention, Case, WithLoss, gpt, linear, mean_of_squares, resnet

__all__ = ["FLAGGED", "MODELS", "layers", "mixer", "moe"]


def layers(depth: int = 32, width: int = 256, batch: int = 1024) -> Case:
    """The chain of ``benchmarks.zoo`` with each layer and its activation as one block."""
    body = [nn.Sequential(linear(width), nn.Tanh()) for _ in range(depth)]
    return WithLoss(nn.Sequential(*body), mean_of_squares), (torch.randn(batch, width),)


def dense(inside: int, hidden: int) -> nn.Sequential:
    """Two linear layers with a GELU between them."""
    return nn.Sequential(nn.Linear(inside, hidden), nn.GELU(), nn.Linear(hidden, inside))


class Mixed(nn.Module):
    """A layer that mixes places, then channels (Tolstikhin et al. 2021)."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.places, self.channels = dense(places, 2 * places), dense(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.places(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        out: Tensor = x + self.channels(self.norms[1](x))
        return out


class Mixer(nn.Module):
    """Patches of images, mixing layers, and a head over the mean of all places."""

    def __init__(self, depth: int, width: int, places: int, patch: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, patch, patch)
        self.layers = nn.Sequential(*(Mixed(places, width) for _ in range(depth)))
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10))

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.layers(self.enter(x).flatten(2).transpose(1, 2))
        out: Tensor = self.leave(mixed.mean(1))
        return out


def mixer(depth: int = 6, width: int = 256, batch: int = 8, size: int = 64, patch: int = 4) -> Case:
    """An MLP-Mixer."""
    network = Mixer(depth, width, (size // patch) ** 2, patch)
    images, classes = torch.randn(batch, 3, size, size), torch.randint(10, (batch,))
    return WithLoss(network, functional.cross_entropy), (images, classes)


class Experts(nn.Module):
    """A layer of experts, all of them computed and weighted by a router.

    Routing that skips experts has shapes that depend on data; this is what is left of it in
    memory: hidden values for each expert, and a mixture of their results.
    """

    def __init__(self, width: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.rise = nn.Parameter(torch.randn(experts, width, hidden) / width**0.5)
        self.fall = nn.Parameter(torch.randn(experts, hidden, width) / hidden**0.5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights = self.router(tokens).softmax(-1)
        hidden = functional.silu(tokens @ self.rise)  # experts, tokens, hidden
        mixed: Tensor = ((hidden @ self.fall) * weights.T.unsqueeze(-1)).sum(0)
        return mixed.view_as(x)


class ExpertLayer(nn.Module):
    """A pre-norm transformer layer with experts."""

    def __init__(self, width: int, heads: int, length: int, experts: int) -> None:
        super().__init__()
        self.attend = nn.Sequential(nn.LayerNorm(width), Attention(width, heads, length, True))
        self.think = nn.Sequential(nn.LayerNorm(width), Experts(width, width, experts))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(x)
        out: Tensor = x + self.think(x)
        return out


class ExpertNet(nn.Module):
    """Embeddings, layers of experts, and a head over the vocabulary."""

    def __init__(self, depth: int, width: int, words: int, length: int, experts: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        made = (ExpertLayer(width, width // 64, length, experts) for _ in range(depth))
        self.layers = nn.Sequential(*made)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, words))

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers(self.tokens(tokens)))
        return logits.transpose(1, 2)


def moe(
    depth: int = 4,
    width: int = 128,
    experts: int = 6,
    batch: int = 12,
    length: int = 128,
    words: int = 1000,
) -> Case:
    """A transformer whose layers think with several experts."""
    text = torch.randint(words, (batch, length + 1))
    network = ExpertNet(depth, width, words, length, experts)
    return WithLoss(network, functional.cross_entropy), (text[:, :-1], text[:, 1:])


def channels_last(case: Case) -> Case:
    """A network of convolutions and its images in the memory format that convolutions like best."""
    module, (images, classes) = case
    last = torch.channels_last
    return module.to(memory_format=last), (images.contiguous(memory_format=last), classes)  # type: ignore[call-overload]


MODELS: dict[str, Callable[[], Case]] = {
    "chain": layers,
    "gpt": lambda: gpt(layers=4),
    "llama": pretrained.llama,
    "bert": pretrained.bert,
    "vit": pretrained.vit,
    "resnet": lambda: resnet(blocks=(2, 2, 2), batch=32),
    "resnet_channels_last": lambda: channels_last(resnet(blocks=(2, 2, 2), batch=32)),
    "diffusion": lambda: pretrained.diffusion(batch=12),
    "mixer": mixer,
    "moe": moe,
    "recurrence": lambda: recurrence(steps=24, width=256, batch=512),
}
FLAGGED = ("llama", "bert", "vit", "diffusion")  # they have a flag for checkpointing
