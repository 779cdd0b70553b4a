"""A memory budget in a loop of one's own with accelerate: python examples/accelerate_loop.py.

The loop calls a compiled function that returns the loss and nothing else. Compiling the model
itself works too, but the logits that it returns would be held to the end of the step, with a
gradient of zeros for them. accelerate has no checkpointing of its own outside of sharding:
"checkpointing" is that of the model. The columns of the table are explained in sidebyside.py.
"""

from __future__ import annotations

import argparse
import copy
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

import fxremat
import sidebyside
from sidebyside import Row, Way

Settings = argparse.Namespace


def make_model(settings: Settings) -> GPT2LMHeadModel:
    """A GPT-2 with random weights."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=256,
        n_positions=settings.length,
        n_embd=settings.width,
        n_layer=settings.layers,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # said here: the model would warn, which breaks the graph
    model.train()
    return model


def loss_of(model: Any) -> Callable[[Tensor], Tensor]:
    """A function that returns the loss and nothing else."""

    def loss(words: Tensor) -> Tensor:
        made: Tensor = model(input_ids=words, labels=words, use_cache=False).loss
        return made

    return loss


def train(settings: Settings, way: Way) -> Row:
    """Train in one way."""
    model: Any = make_model(settings)
    original = copy.deepcopy(model)
    if way.checkpointing:
        model.activation_checkpointing_enable()
    starts = torch.randint(0, 256, (settings.steps * settings.batch, 1))
    data: Any = list((starts + 7 * torch.arange(settings.length)) % 256)

    accelerator = Accelerator(cpu=True, mixed_precision=settings.precision)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader: Any = DataLoader(data, batch_size=settings.batch)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    backend, run = None, loss_of(model)
    if way.budget is not None:
        backend = fxremat.backend(way.budget, inner=settings.inner)
        run = torch.compile(run, backend=backend)

    losses = []
    words = data[0]
    for words in loader:
        loss = run(words)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    del loss

    eager = None
    if way != Way():
        plain = loss_of(accelerator.prepare(original))
        eager = lambda: accelerator.backward(plain(words))  # noqa: E731
    step = lambda: accelerator.backward(run(words))  # noqa: E731
    return sidebyside.measured(losses, backend, step, eager, settings.pairs)


def parse(argv: Sequence[str] | None) -> Settings:
    """Read the command line."""
    parser = sidebyside.options(__doc__)
    parser.add_argument("--precision", default="no", choices=("no", "bf16"))
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--length", type=int, default=128, help="words of a sequence")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; 1 if a budget was exceeded."""
    train_settings = functools.partial(train, parse(argv))
    preload = ("accelerate", "transformers.models.gpt2.modeling_gpt2")
    return sidebyside.compare(train_settings, preload)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
