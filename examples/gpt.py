"""A small GPT that computes its own loss."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """One pre-norm transformer block with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Residual stream in, residual stream out, of shape (batch, length, width)."""
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        y: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return y


class GPT(nn.Module):
    """A decoder with learned positions and a head tied to the embedding."""

    def __init__(self, vocabulary: int, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.dim() == 2:  # the layers that write to the residual stream start smaller (GPT-2)
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if last else 0.02)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean cross-entropy in nats of the next characters ``y`` after each of ``x``."""
        h = self.token(x) + self.place.weight
        for block in self.blocks:
            h = block(h)
        logits = F.linear(self.norm(h), self.token.weight)
        loss: Tensor = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        return loss
