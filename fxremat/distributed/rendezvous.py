"""Several processes that train one model: the same plan on all of them.

Two ranks may plan one graph differently: a measured profile, a workspace or a time limit is enough.
So the first rank to come to a graph decides, and the others take its plan, each with its own
prediction and held to its own budget (:mod:`fxremat.distributed.agreement`).

Before that, the ranks *meet*: each waits until all have come to their next graph. If the ops or
the options differ, every rank raises a :class:`RankError`. If only sizes or numbers differ (a
shorter batch), the ranks of each size agree among themselves. Their plans may differ, which is
harmless: no plan moves a collective past another.

A *recompilation* is no meeting: a batch of an odd size may come to one rank alone, while the others
wait for it in a collective.

All goes through the store of the default process group, never through a collective: a collective
within a compilation hangs, or corrupts another one, as soon as a rank doesn't take part. A rank
that is waited for in vain is an error after the timeout of the process group
(``init_process_group(timeout=...)``), which is as long as a collective would have waited for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from itertools import zip_longest
from typing import Any

import torch.distributed as dist
from torch import fx

from fxremat.base.errors import RankError
from fxremat.distributed.agreement import OWN, FirstWriter, Store, room, wait, write_first
from fxremat.distributed.graph_fingerprint import GraphFingerprint, graph_fingerprint, hashed
from fxremat.options import Options
from fxremat.planning.peers import Peers, SingleProcess
from passes.torch_internals import is_recompile

__all__ = ["meet"]

OF_A_PROCESS = ("plan", "ranks", "dump")  # options that may differ; plans are compared by graph
ROOM = "fxremat"  # prefix of all keys
AGREED = "agreed"
NAMED = 8  # so many of the missing ranks are named


def meet(module: fx.GraphModule, inputs: Sequence[Any], options: Options) -> Peers:
    """Meet the other ranks about a training graph that is to be compiled.

    Args:
        module: the graph that Dynamo captured.
        inputs: its inputs.
        options: the backend's.

    Returns:
        What agrees with them; :class:`SingleProcess` where there is no process group, one of
        one rank, or a fake one, whose other ranks don't exist.

    Raises:
        RankError: on every rank, if their graphs or options differ, or one does not come.
    """
    group = dist.group.WORLD if dist.is_available() and dist.is_initialized() else None
    if group is None or group.size() < 2 or dist.get_backend() == "fake":
        return SingleProcess()
    store, rank = room(group.get_group_store(), ROOM), group.rank()
    graph, asked = graph_fingerprint(module, inputs), _asked(options)
    number = 0
    if not is_recompile():
        number = store.add(f"graphs of rank {rank}", 1)
        _meet(room(store, f"graph {number}"), number, rank, group.size(), graph, asked)
    key = f"graph {number} {hashed([graph.equal, asked])}"
    return FirstWriter(room(store, key), rank, store.timeout)


def _meet(
    store: Store, number: int, rank: int, size: int, graph: GraphFingerprint, asked: str
) -> None:
    """Wait until all ranks compile this graph, or raise the same error on all of them.

    The first to come says what it compiles, and the others compare. The verdict is the first that
    is written: an error of whoever finds a difference or has waited too long, or that all agree.
    """
    keys = [f"rank {r}" for r in range(size)]
    first = json.loads(write_first(store, "first", json.dumps([rank, graph.alike, asked])))
    if first[0] == rank:
        store.set("ops", json.dumps(graph.ops))
    error = _difference(store, number, rank, graph, asked, first)
    if error:
        write_first(store, "verdict", error)
    store.set(keys[rank], "has come")

    def missing() -> str:
        found = [str(r) for r, key in enumerate(keys) if not store.check([key])]
        named = ", ".join(found[:NAMED]) + (", ..." if len(found) > NAMED else "")
        return f"rank {named} has not come to compile its graph number {number}"

    if not error:
        try:
            wait(store, keys, store.timeout, missing)
        except RankError as late:
            error = str(late)
    verdict = write_first(store, "verdict", error or AGREED)
    if verdict != AGREED:
        raise RankError(verdict)


def _difference(
    store: Store, number: int, rank: int, graph: GraphFingerprint, asked: str, first: list[Any]
) -> str:
    """How a rank's options or graph differ from those of the first to come, or ""."""
    other, alike, theirs = first
    if theirs != asked:
        a, b = _first_pair(theirs.splitlines(), asked.splitlines())
        return (
            f"the backend of rank {other} was made with {a}, that of rank {rank} with {b}; give "
            f"all ranks the same options, {OWN}"
        )
    if alike == graph.alike:
        return ""
    a, b = _first_pair(json.loads(store.get("ops")), graph.ops)
    return (
        f"graph number {number} of rank {other} is not that of rank {rank}, so one plan cannot "
        "serve them all and their collectives might not match. Let all ranks run the same code "
        f"(no branch, print or log on a rank within what is compiled), {OWN}. Rank {other} has "
        f"{a}, where rank {rank} has {b}"
    )


def _first_pair(ours: Sequence[str], theirs: Sequence[str]) -> tuple[str, str]:
    return next((a, b) for a, b in zip_longest(ours, theirs, fillvalue="nothing") if a != b)


def _asked(options: Options) -> str:
    """The options that a plan depends on, one a line."""
    named = [f.name for f in fields(Options) if f.name not in OF_A_PROCESS]
    pairs = ((name, getattr(options, name)) for name in named)
    lines = [f"{n}={'a callable' if callable(v) else v}" for n, v in pairs]
    lines.append(f"plan={' '.join(p.graph for p in options.plan or ())}")
    return "\n".join(lines)
