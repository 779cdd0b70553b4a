"""The phases of a training step: where an op runs when nothing is recomputed."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Phase"]


class Phase(StrEnum):
    """Where an op runs when nothing is recomputed.

    ``DEFERRABLE`` ops depend on the inputs of the step alone but are read only by the backward;
    torch's partitioner calls them unclaimed. ``REPLAY_SUPPORT`` ops serve later runs of others
    alone, for instance by taking a copy of what the forward overwrites.
    """

    FORWARD = "forward"
    REPLAY_SUPPORT = "replay_support"
    DEFERRABLE = "deferrable"
    BACKWARD = "backward"
