"""What people do by hand, applied to a module: checkpointing of blocks, whole or selective."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
    """A module whose activations are recomputed, all or all but the results of ``KEPT``."""

    def __init__(self, inner: nn.Module, selective: bool) -> None:
        super().__init__()
        self.inner = inner
        self.selective = selective

    def forward(self, *args: Any) -> Any:
        """What the inner module gives."""
        if not self.selective:
            return checkpoint(self.inner, *args, use_reentrant=False)
        contexts = partial(create_selective_checkpoint_contexts, _policy)
        return checkpoint(self.inner, *args, use_reentrant=False, context_fn=contexts)


def _policy(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def checkpointed(module: nn.Module, k: int = 1, selective: bool = False) -> bool:
    """Checkpoint every ``k`` blocks of a module, in place; False if that cannot be done.

    Blocks are the members of the list of modules that holds most parameters. Several together can
    only be checkpointed in an ``nn.Sequential``, since only there it is known what runs in between.
    """
    name, found = _blocks(module)
    if found is None or (k > 1 and not isinstance(found, nn.Sequential)):
        return False
    members = list(found)
    if k == 1:
        for index, member in enumerate(members):
            found[index] = Checkpointed(member, selective)
        return True
    groups = [members[i : i + k] for i in range(0, len(members), k)]
    parts = (Checkpointed(nn.Sequential(*group), selective) for group in groups)
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, nn.Sequential(*parts))
    return len(groups) > 1


def _blocks(module: nn.Module) -> tuple[str, nn.ModuleList | nn.Sequential | None]:
    lists = [
        (name, m)
        for name, m in module.named_modules()
        if isinstance(m, (nn.ModuleList, nn.Sequential)) and len(m) > 1
    ]
    size: Callable[[nn.Module], int] = lambda m: sum(p.numel() for p in m.parameters())  # noqa: E731
    alike = [(n, m) for n, m in lists if len({type(b) for b in m}) == 1] or lists
    return max(alike, key=lambda pair: (size(pair[1]), len(pair[1])), default=("", None))


def every(module: nn.Module) -> list[int]:
    """For which numbers of blocks a module can be checkpointed."""
    _, found = _blocks(module)
    if found is None:
        return []
    return [k for k in (1, 2, 4) if k == 1 or (isinstance(found, nn.Sequential) and k < len(found))]
