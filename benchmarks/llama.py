"""A decoder-only transformer in the way of LLaMA 2 (Touvron et al. 2023), built on "meta".

32 layers at the widths given here as defaults make the 7-billion-parameter model. It has no
weights: it is there to be traced, not run.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Llama", "llama"]

Case = tuple[nn.Module, tuple[Tensor, ...]]


class Norm(nn.Module):
    """Root mean square norm (Zhang, Sennrich 2019), computed in float32."""

    def __init__(self, width: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(width)), epsilon

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = (wide.square().mean(-1, keepdim=True) + self.epsilon).rsqrt()
        return self.weight * (wide * scale).type_as(x)


def turned(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary position embedding (Su et al. 2021): pairs of features turned by their angles."""
    left, right = x.chunk(2, -1)
    return x * cosines + torch.cat([-right, left], -1) * sines


class Attention(nn.Module):
    """Causal self-attention, one fused op."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.mix = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        query, key, value = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        query, key = turned(query, cosines, sines), turned(key, cosines, sines)
        out = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined: Tensor = self.mix(out.transpose(1, 2).flatten(2))
        return joined


class Gated(nn.Module):
    """SwiGLU (Shazeer 2020): a hidden layer times a gate."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return out


class Layer(nn.Module):
    """A pre-norm layer."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.before_attend, self.attend = Norm(width), Attention(width, heads)
        self.before_think, self.think = Norm(width), Gated(width, hidden)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        x = x + self.attend(self.before_attend(x), cosines, sines)
        out: Tensor = x + self.think(self.before_think(x))
        return out


class Llama(nn.Module):
    """Embedding, layers, and a head over the vocabulary, with its loss."""

    def __init__(self, layers: int, width: int, heads: int, hidden: int, words: int) -> None:
        super().__init__()
        self.features = width // heads
        self.tokens = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads, hidden) for _ in range(layers))
        self.norm, self.head = Norm(width), nn.Linear(width, words, bias=False)

    def angles(self, text: Tensor) -> Tensor:
        """By how much each feature at each position is turned, in radians."""
        steps = torch.arange(0, self.features, 2, device=text.device)
        speeds = 10_000.0 ** (-steps / self.features)
        return torch.arange(text.shape[1], device=text.device).unsqueeze(1) * speeds.repeat(2)

    def forward(self, text: Tensor, target: Tensor) -> Tensor:
        """The cross-entropy of the next word."""
        x, angles = self.tokens(text), self.angles(text)
        cosines, sines = angles.cos().type_as(x), angles.sin().type_as(x)
        for layer in self.layers:
            x = layer(x, cosines, sines)
        logits = self.head(self.norm(x)).float()
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def llama(
    layers: int = 32,
    width: int = 4096,
    heads: int = 32,
    hidden: int = 11_008,
    words: int = 32_000,
    length: int = 2048,
    batch: int = 4,
) -> Case:
    """A bfloat16 model and its text, without data.

    With one text of 2048 words the gradients of the 7-billion-parameter model outweigh its
    activations, so that the peak is at the end of the backward and recomputing saves nothing.
    """
    with torch.device("meta"):
        network = Llama(layers, width, heads, hidden, words).bfloat16()
        text = torch.randint(words, (batch, length))
    return network, (text, text.clone())
