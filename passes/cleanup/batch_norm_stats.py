"""Arguments that an op takes but does not read are dropped, so that nothing is kept for them.

The backward of a training batch norm is handed the running statistics, which only evaluation
reads. Dropping them keeps a few small tensors from being saved, and lets the batch norm itself be
rematerialized: its form without statistics (:mod:`passes.recompute.forms`) does not yield them.
"""

from __future__ import annotations

import torch
from torch import fx

__all__ = ["drop_unread"]

_BATCH_NORM_BACKWARD = torch.ops.aten.native_batch_norm_backward.default
_RUNNING, _TRAINING = (3, 4), 7  # argument positions


def drop_unread(graph: fx.Graph) -> None:
    """Replace unread arguments by None, in place. Results stay the same bit for bit."""
    for node in graph.find_nodes(op="call_function", target=_BATCH_NORM_BACKWARD):
        if node.args[_TRAINING] is True:
            for position in _RUNNING:
                node.update_arg(position, None)
