"""What tests of libraries share: a small GPT-2, its data, and what training gave."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import fxremat

WORDS, LENGTH, BATCH = 64, 16, 4
SIZES = {"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": WORDS, "n_positions": LENGTH}


def gpt2() -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**SIZES, bos_token_id=0, eos_token_id=0)
    )
    return model


def rows(count: int) -> list[dict[str, Tensor]]:
    """Sequences of words, with some labels that do not count."""
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(0, WORDS, (count, LENGTH), generator=generator)
    labels = torch.where(words % 7 == 0, -100, words)
    return [{"input_ids": w, "labels": n} for w, n in zip(words, labels, strict=True)]


Results = tuple[list[float], list[Tensor]]


def assert_equal(ours: Results, theirs: Results) -> None:
    assert len(theirs[0]) > 1
    assert ours[0] == theirs[0]
    assert all(torch.equal(a, b) for a, b in zip(ours[1], theirs[1], strict=True))


def assert_remat(plan: fxremat.Plan) -> None:
    assert plan.budget is not None
    assert plan.predicted_peak <= plan.budget < plan.baseline_peak
    assert plan.recomputed
