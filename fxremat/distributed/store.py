"""What ranks leave for each other in the store of their process group."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from fxremat.base.errors import RankError

__all__ = ["OWN", "Store", "room", "wait"]

Store = Any  # torch.distributed.Store, which torch does not export to type checkers
OWN = "or give the backend ranks='own', and every rank plans for itself"

PATIENCE = timedelta(seconds=60)  # then it is said who is waited for
MOMENT = timedelta(milliseconds=1)
log = logging.getLogger(__name__)


def room(store: Store, name: str) -> Store:
    """A part of a store with keys of its own."""
    distributed: Any = dist
    return distributed.PrefixStore(name, store)


def wait(store: Store, key: str, timeout: timedelta, what: str) -> bytes:
    """What another rank leaves under a key.

    Args:
        store: where.
        key: under what.
        timeout: how long to wait for it.
        what: event awaited; used in the timeout message.

    Raises:
        RankError: if nothing is left in time.
    """
    try:
        try:
            store.wait([key], min(timeout, PATIENCE))
        except dist.DistStoreError:
            log.warning("%s yet; waiting for %.0f s in all", what, timeout.total_seconds())
            store.wait([key], max(timeout - PATIENCE, MOMENT))
        return bytes(store.get(key))
    except dist.DistStoreError as error:
        raise RankError(
            f"{what} within {timeout.total_seconds():.0f} s, the timeout of the process group. All "
            "ranks must compile the same training graphs, in the same order. Let them run the "
            f"same code, give init_process_group(timeout=...) more if a rank is slow, {OWN}"
        ) from error
