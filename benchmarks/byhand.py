"""What people do by hand, applied to a module: checkpointing of blocks, whole or selective."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

__all__ = ["checkpointed", "every"]

aten = torch.ops.aten
KEPT = {
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.convolution.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
}


class Checkpointed(nn.Module):
    """Modules run one after the other whose activations are recomputed.

    Attributes:
        members: the modules; all get the same further arguments.
        selective: whether the results of ``KEPT`` are saved nonetheless.
    """

    def __init__(self, members: list[nn.Module], selective: bool) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.selective = selective
        if hasattr(members[0], "attention_type"):  # read by the loops of transformers
            self.attention_type = members[0].attention_type

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the modules give."""
        if not self.selective:
            return checkpoint(self._run, *args, use_reentrant=False, **kwargs)
        contexts = partial(create_selective_checkpoint_contexts, _policy)
        return checkpoint(self._run, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    def _run(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        for member in self.members:
            x = member(x, *args, **kwargs)
        return x


def _policy(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def checkpointed(module: nn.Module, k: int = 1, selective: bool = False) -> bool:
    """Checkpoint every ``k`` blocks of a module, in place; False if that cannot be done.

    Blocks are members of the list of modules that holds most parameters: those of the type that
    holds most of them. Several together are run one after the other, which is what most lists are
    for; where a model does something else with its list, it fails when it is run.
    """
    name, found = _blocks(module)
    if found is None or (k > 1 and k >= _count(found)):
        return False
    kind = _kind(found)
    parts: list[nn.Module] = []
    for chosen, run in groupby(found, lambda member: type(member) is kind):
        members = list(run)
        if not chosen:
            parts += members
            continue
        groups = (members[i : i + k] for i in range(0, len(members), k))
        parts += (Checkpointed(group, selective) for group in groups)
    parent, _, last = name.rpartition(".")
    made = nn.Sequential(*parts) if isinstance(found, nn.Sequential) else nn.ModuleList(parts)
    setattr(module.get_submodule(parent), last, made)
    return True


def every(module: nn.Module) -> list[int]:
    """For which numbers of blocks a module is checkpointed in comparisons."""
    _, found = _blocks(module)
    if found is None:
        return []
    many = _count(found)
    return [k for k in sorted({1, 2, 4, round(many**0.5)}) if k == 1 or 2 * k <= many]


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _kind(found: nn.ModuleList | nn.Sequential) -> type[nn.Module]:
    sizes: Counter[type[nn.Module]] = Counter()
    for member in found:
        sizes[type(member)] += _size(member)
    return sizes.most_common(1)[0][0]


def _count(found: nn.ModuleList | nn.Sequential) -> int:
    kind = _kind(found)
    return sum(type(member) is kind for member in found)


def _blocks(module: nn.Module) -> tuple[str, nn.ModuleList | nn.Sequential | None]:
    lists = (
        (name, m)
        for name, m in module.named_modules()
        if isinstance(m, (nn.ModuleList, nn.Sequential)) and len(m) > 1 and _count(m) > 1
    )
    return max(lists, key=lambda pair: (_size(pair[1]), len(pair[1])), default=("", None))
