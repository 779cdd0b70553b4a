"""A memory budget in place of activation checkpointing in the Trainer of transformers, measured.

    python examples/huggingface.py                        # a small Llama
    python examples/huggingface.py --model gpt2 --layers 12
    python examples/huggingface.py --inner inductor --precision bf16

Weights are made from a config. "checkpointing" is activation_checkpointing=True, called
gradient_checkpointing in older versions; a budget is a RematCallback. What is measured is a call of
Trainer.training_step. The columns of the table are explained in sidebyside.py.
"""

from __future__ import annotations

import argparse
import copy
import functools
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)

import sidebyside
from fxremat.integrations.transformers import RematCallback
from sidebyside import Row, Way

BESIDE = 4  # bytes: accelerate divides the loss once more, outside of what is compiled
Settings = argparse.Namespace


def make_model(settings: Settings) -> nn.Module:
    """A Llama or a GPT-2 with random weights."""
    torch.manual_seed(0)
    if settings.model == "gpt2":
        config = GPT2Config(
            vocab_size=settings.words,
            n_positions=settings.length,
            n_embd=settings.width,
            n_layer=settings.layers,
            n_head=settings.heads,
            bos_token_id=0,
            eos_token_id=0,
        )
        return GPT2LMHeadModel(config)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=settings.words,
            hidden_size=settings.width,
            intermediate_size=settings.width * 8 // 3,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            max_position_embeddings=settings.length,
        )
    )


def make_data(settings: Settings) -> list[dict[str, Tensor]]:
    """Sequences in which each word follows from the one before: there is something to learn."""
    generator = torch.Generator().manual_seed(1)
    count = settings.steps * settings.batch
    starts = torch.randint(0, settings.words, (count, 1), generator=generator)
    rows = (starts + 7 * torch.arange(settings.length)) % settings.words
    return [{"input_ids": row, "labels": row} for row in rows]


class Measured(Trainer):
    """A Trainer that measures the last of its steps, before it takes it."""

    pairs: int
    callback: RematCallback | None
    eager: nn.Module | None  # the model as it was, if something is done to the one that trains
    row: Row

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """A step as it is."""
        if self.state.global_step == self.state.max_steps - 1:
            with torch.random.fork_rng():  # dropout draws as it would have
                self._measure(model, inputs, num_items_in_batch)
            model.zero_grad()
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        return loss

    def _measure(self, model: nn.Module, inputs: dict[str, Any], count: Any) -> None:
        run = super().training_step
        backend = None if self.callback is None else self.callback.backend
        eager = None
        if self.eager is not None:
            plain = self.accelerator.prepare_model(self.eager, evaluation_mode=True)  # autocast
            eager = lambda: run(plain, dict(inputs), count)  # noqa: E731
        step = lambda: run(model, dict(inputs), count)  # noqa: E731
        self.row = sidebyside.measured([], backend, step, eager, self.pairs)


def train(settings: Settings, way: Way) -> Row:
    """Train in one way."""
    callback = None if way.budget is None else RematCallback(way.budget, inner=settings.inner)
    model = make_model(settings)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=settings.steps,
            per_device_train_batch_size=settings.batch,
            learning_rate=3e-3,
            activation_checkpointing=way.checkpointing,
            bf16=settings.precision == "bf16",
            use_cpu=True,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            log_level="error",
        )
        trainer = Measured(
            model,
            arguments,
            train_dataset=make_data(settings),
            callbacks=[] if callback is None else [callback],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.pairs, trainer.callback = settings.pairs, callback
        trainer.eager = None if way == Way() else copy.deepcopy(model)
        trainer.train()
    losses = [float(r["loss"]) for r in trainer.state.log_history if "loss" in r]
    return Row(**{**vars(trainer.row), "losses": losses})


def parse(argv: Sequence[str] | None) -> Settings:
    """Read the command line."""
    parser = sidebyside.options(__doc__)
    parser.add_argument("--model", default="llama", choices=("llama", "gpt2"))
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--words", type=int, default=512, help="size of the vocabulary")
    parser.add_argument("--length", type=int, default=128, help="words of a sequence")
    parser.add_argument("--precision", default="float32", choices=("float32", "bf16"))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; 1 if a budget was exceeded."""
    train_settings = functools.partial(train, parse(argv))
    preload = ("transformers.trainer", "transformers.models.llama.modeling_llama")
    return sidebyside.compare(train_settings, preload, BESIDE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
