"""What ranks leave for each other in the store of their process group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from fxremat.base.errors import RankError

__all__ = ["OWN", "Store", "room", "wait", "write_first"]

Store = Any  # torch.distributed.Store, which torch does not export to type checkers
OWN = "or give the backend ranks='own', and every rank plans for itself"

PATIENCE = timedelta(seconds=60)  # then it is said who is waited for
MOMENT = timedelta(milliseconds=1)
log = logging.getLogger(__name__)


def room(store: Store, name: str) -> Store:
    """A part of a store with keys of its own."""
    distributed: Any = dist
    return distributed.PrefixStore(name, store)


def write_first(store: Store, key: str, value: str) -> str:
    """Leave a value, unless another rank has left one before; what is there then."""
    return bytes(store.compare_set(key, "", value)).decode()


def wait(store: Store, keys: Sequence[str], timeout: timedelta, what: Callable[[], str]) -> None:
    """Wait until something is left under all of the keys.

    Args:
        store: where.
        keys: under what.
        timeout: how long to wait.
        what: says what has not happened, for instance "rank 1 has not come".

    Raises:
        RankError: if it is not there in time.
    """
    try:
        try:
            store.wait(keys, min(timeout, PATIENCE))
        except dist.DistStoreError:
            log.warning("%s yet; waiting for %.0f s in all", what(), timeout.total_seconds())
            store.wait(keys, max(timeout - PATIENCE, MOMENT))
    except dist.DistStoreError as error:
        raise RankError(
            f"{what()} within {timeout.total_seconds():.0f} s, the timeout of the process group. "
            "All ranks must compile the same training graphs, in the same order. Let them run the "
            f"same code, give init_process_group(timeout=...) more if a rank is slow, {OWN}"
        ) from error
