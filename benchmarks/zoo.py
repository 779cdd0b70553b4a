"""The models of all benchmarks: training steps sized for two CPU cores.

A model is a function without arguments in :data:`MODELS`; it gives a module and its arguments, and
``module(*args)`` is a scalar loss.

    FAMILIES   ten families with steps of 50 to 400 ms, of which the ResNet is there in two memory
               formats; four are Hugging Face's (``benchmarks/hugging_face.py``)
    GRAPHS     larger graphs for the solver, some of them no chains
    SMALL      graphs so small that an exact solver can prove which plans are optimal
    NARROW     transformers of so many layers that take no time to run, only to plan and compile
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import hugging_face
from benchmarks.hugging_face import Case

__all__ = [
    "FAMILIES",
    "GRAPHS",
    "MODELS",
    "NARROW",
    "SMALL",
    "Case",
    "chain",
    "gpt",
    "resnet",
    "unet",
]


class WithLoss(nn.Module):
    """A network followed by a loss, so that a call gives a scalar."""

    def __init__(self, network: nn.Module, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.network = network
        self.loss = loss

    def forward(self, batch: Tensor, *targets: Tensor) -> Tensor:
        return self.loss(self.network(batch), *targets)


class Parts(nn.Sequential):
    """Parts run in turn."""

    def run(self, x: Tensor) -> Tensor:
        for part in self:
            x = part(x)
        return x


class Add(Parts):
    """Parts run in turn; their input is added to the result."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.run(x)


def mean_of_squares(output: Tensor, *target: Tensor) -> Tensor:
    """Mean of the squares of the output, or of its distance from a target."""
    return (output - target[0] if target else output).square().mean()


def labelled(network: nn.Module, batch: int, size: int) -> Case:
    """A classifier of random images into ten classes."""
    images, classes = torch.randn(batch, 3, size, size), torch.randint(10, (batch,))
    return WithLoss(network, functional.cross_entropy), (images, classes)


def dense(width: int, hidden: int, activation: type[nn.Module] = nn.GELU) -> nn.Sequential:
    """Two linear layers with an activation between them."""
    return nn.Sequential(nn.Linear(width, hidden), activation(), nn.Linear(hidden, width))


# -------------------------------------------------------------------------------- linear layers


def linear(width: int) -> nn.Linear:
    """A layer that keeps the size of what passes through many of its kind.

    With PyTorch's default it vanishes, forward and backward, and CPUs are slow at denormal numbers.
    """
    layer = nn.Linear(width, width)
    nn.init.orthogonal_(layer.weight)
    return layer


def chain(depth: int = 32, width: int = 256, batch: int = 4096) -> Case:
    """A uniform chain of layers, the textbook case of checkpointing."""
    layers = (nn.Sequential(linear(width), nn.Tanh()) for _ in range(depth))
    return WithLoss(nn.Sequential(*layers), mean_of_squares), (torch.randn(batch, width),)


def uneven(widths: Sequence[int], batch: int = 4096) -> Case:
    """A chain whose values differ in size, and its layers in time."""
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.Tanh())]
    return WithLoss(nn.Sequential(*layers), mean_of_squares), (torch.randn(batch, widths[0]),)


class Joined(nn.ModuleList):
    """Two parts that read the same input, their results one after the other."""

    def forward(self, x: Tensor) -> Tensor:
        left, right = self
        return torch.cat([left(x), right(x)], 1)


def two_branch(depth: int = 16, width: int = 256, batch: int = 1024) -> Case:
    """Two towers joined late: the backward walks through them side by side."""
    left = [m for _ in range(depth) for m in (nn.Linear(width, width), nn.Tanh())]
    right = [
        m for _ in range(depth) for m in (nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
    ]
    towers = Joined([nn.Sequential(*left), nn.Sequential(*right)])
    network = nn.Sequential(towers, nn.Linear(2 * width, width))
    return WithLoss(network, mean_of_squares), (torch.randn(batch, width),)


class Skips(nn.Module):
    """Parts on the way down; each on the way up also reads its counterpart's input."""

    def __init__(
        self, down: Iterable[nn.Module], up: Iterable[nn.Module], scale: float = 1
    ) -> None:
        super().__init__()
        self.down, self.up, self.scale = nn.ModuleList(down), nn.ModuleList(up), scale

    def forward(self, x: Tensor) -> Tensor:
        levels = [x]
        for part in self.down:
            levels.append(part(levels[-1]))
        y = levels.pop()
        for part in self.up:
            y = y if self.scale == 1 else functional.interpolate(y, scale_factor=self.scale)
            y = part(torch.cat([y, levels.pop()], 1))
        return y


def long_skips(depth: int = 24, width: int = 128, batch: int = 2048) -> Case:
    """A U of linear layers with skips of every length, from one layer to all."""
    down = (nn.Sequential(nn.Linear(width, width), nn.SiLU()) for _ in range(depth))
    up = (nn.Sequential(nn.Linear(2 * width, width), nn.SiLU()) for _ in range(depth))
    return WithLoss(Skips(down, up), mean_of_squares), (torch.randn(batch, width),)


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


# --------------------------------------------------------------------------------- transformers


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


class GPT(nn.Module):
    """Token and maybe position embeddings, layers, and a head over the vocabulary."""

    def __init__(self, layers: Sequence[nn.Module], width: int, words: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(length, width) / width**0.5) if length else None
        self.layers = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, words))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        logits: Tensor = self.head(self.layers(x if self.places is None else x + self.places))
        return logits.transpose(1, 2)  # classes second, as cross_entropy wants them


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


def gpt(
    layers: int = 8,
    width: int = 256,
    length: int = 256,
    batch: int = 4,
    heads: int = 4,
    words: int = 1000,
    fused: bool = False,
    experts: int = 0,
) -> Case:
    """A decoder-only transformer with pre-norm layers that predicts random words.

    With experts its layers think with several of them, and positions are not told.
    """

    def think() -> list[nn.Module]:
        return [Experts(width, width, experts)] if experts else [*dense(width, 4 * width)]

    body = [
        nn.Sequential(
            Add(nn.LayerNorm(width), Attention(width, heads, length, fused)),
            Add(nn.LayerNorm(width), *think()),
        )
        for _ in range(layers)
    ]
    text = torch.randint(words, (batch, length + 1))
    network = GPT(body, width, words, 0 if experts else length)
    return WithLoss(network, functional.cross_entropy), (text[:, :-1], text[:, 1:])


class CrossAttention(nn.Module):
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
        self.attend = CrossAttention(width, heads)
        self.look = CrossAttention(width, heads) if decoder else None
        self.think = dense(width, 4 * width, nn.ReLU)

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


class Transposed(Parts):
    """Parts that work along the places of a sequence."""

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x.transpose(1, 2)).transpose(1, 2)


class Mixer(nn.Module):
    """Patches of images, layers that mix places, then channels (Tolstikhin et al. 2021)."""

    def __init__(self, depth: int, width: int, places: int, patch: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, patch, patch)
        self.layers = nn.Sequential(
            *(
                nn.Sequential(
                    Add(nn.LayerNorm(width), Transposed(*dense(places, 2 * places))),
                    Add(nn.LayerNorm(width), *dense(width, 4 * width)),
                )
                for _ in range(depth)
            )
        )
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10))

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.layers(self.enter(x).flatten(2).transpose(1, 2))
        out: Tensor = self.leave(mixed.mean(1))
        return out


def mixer(depth: int = 6, width: int = 256, batch: int = 8, size: int = 64, patch: int = 4) -> Case:
    """An MLP-Mixer."""
    return labelled(Mixer(depth, width, (size // patch) ** 2, patch), batch, size)


# --------------------------------------------------------------------------------- convolutions


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
    return labelled(nn.Sequential(*body), batch, size)


def channels_last(case: Case) -> Case:
    """A network of convolutions and its images in the memory format that convolutions like best."""
    module, (images, classes) = case
    last = torch.channels_last
    return module.to(memory_format=last), (images.contiguous(memory_format=last), classes)  # type: ignore[call-overload]


class Dense(Parts):
    """A layer that appends its result to all that came before (Huang et al. 2017)."""

    def __init__(self, inside: int, growth: int) -> None:
        conv = nn.Conv2d(inside, growth, 3, padding=1, bias=False)
        super().__init__(nn.BatchNorm2d(inside), nn.ReLU(), conv)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.run(x)], 1)


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
    return labelled(nn.Sequential(*body), batch, size)


def twice(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
    """Two convolutions with group norm and SiLU."""
    parts: list[nn.Module] = []
    for source, step in ((inside, stride), (outside, 1)):
        parts += [nn.Conv2d(source, outside, 3, step, 1), nn.GroupNorm(4, outside), nn.SiLU()]
    return nn.Sequential(*parts)


def unet(width: int = 16, depth: int = 4, batch: int = 8, size: int = 64) -> Case:
    """A UNet that learns to give back its input: long skips at each resolution."""
    widths = [width << level for level in range(depth + 1)]
    down = (twice(a, b, 2) for a, b in pairwise(widths))
    up = (twice(a + b, a) for a, b in reversed([*pairwise(widths)]))
    enter, leave = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
    images = torch.randn(batch, 3, size, size)
    network = nn.Sequential(enter, Skips(down, up, 2), leave)
    return WithLoss(network, mean_of_squares), (images, images)


Models = Mapping[str, Callable[[], Case]]

FAMILIES: Models = {
    "chain": partial(chain, batch=1024),
    "gpt": partial(gpt, layers=4),
    "llama": hugging_face.llama,
    "bert": hugging_face.bert,
    "vit": hugging_face.vit,
    "resnet": partial(resnet, (2, 2, 2), batch=32),
    "resnet_channels_last": lambda: channels_last(resnet((2, 2, 2), batch=32)),
    "diffusion": hugging_face.diffusion,
    "mixer": mixer,
    "moe": partial(gpt, 4, 128, 128, 12, 2, fused=True, experts=6),
    "recurrence": partial(recurrence, 24, width=256, batch=512),
}
GRAPHS: Models = {
    "chain32": chain,
    "chain64": partial(chain, 64),
    "gpt8": gpt,
    "gpt8_fused": partial(gpt, fused=True),
    "gpt24": partial(gpt, 24),
    "resnet34": resnet,
    "unet4": unet,
    "densenet": densenet,
    "two_branch": two_branch,
    "encoder_decoder": encoder_decoder,
    "recurrence120": recurrence,
    "long_skips": long_skips,
}
SMALL: Models = {
    **{f"chain{depth}": partial(chain, depth) for depth in (6, 8, 10, 12, 16)},
    "hourglass": partial(uneven, (256, 512, 128, 32, 128, 512, 256)),
    "rising": partial(uneven, (64, 96, 128, 192, 256, 384, 512, 512)),
    "sawtooth": partial(uneven, (64, 512, 128, 768, 64, 512, 128, 256)),
    "gpt1": partial(gpt, 1, 128, 128),
    "gpt1_fused": partial(gpt, 1, 128, 128, fused=True),
    "gpt2": partial(gpt, 2, 128, 128),
    "gpt2_fused": partial(gpt, 2, 128, 128, fused=True),
    "resnet1": partial(resnet, (1,)),
    "resnet1_1": partial(resnet, (1, 1), width=16),
    "unet2": partial(unet, depth=2),
    "unet3": partial(unet, depth=3),
    "recurrence8": partial(recurrence, 8),
    "recurrence16": partial(recurrence, 16),
    "densenet4": partial(densenet, (4,)),
    "densenet2_2": partial(densenet, (2, 2)),
    "two_branch3": partial(two_branch, 3),
    "encoder_decoder1": partial(encoder_decoder, 1, length=64),
    "long_skips4": partial(long_skips, 4),
    "chain32": chain,
}
NARROW: Models = {f"narrow{n}": partial(gpt, n, 64, 64, 2) for n in (4, 8, 16, 32)}
MODELS: Models = {**FAMILIES, **GRAPHS, **SMALL, **NARROW}
