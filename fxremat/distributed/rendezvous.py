"""Several processes that train one model: the same plan on all of them.

Two ranks may plan one graph differently: a measured profile, a workspace or a time limit is enough.
So rank 0 decides. Before a graph is planned the ranks *meet*: each tells what it is about to
compile, and rank 0 says whether it is the same everywhere.

* Where the graphs are equal, the first rank that has the graph plans it, and the others take its
  plan, each with its own prediction and held to its own budget.
* Where only sizes or numbers differ (a shorter batch), the ranks of each size agree among
  themselves. The plans may differ, which is harmless: no plan moves a collective past another.
* Where the ops differ, every rank raises a :class:`RankError`.

All goes through the store of the default process group, never through a collective: a collective
within a compilation hangs, or corrupts another one, as soon as a rank doesn't take part. A rank
that is waited for in vain is an error after the timeout of the process group
(``init_process_group(timeout=...)``), which is as long as a collective would have waited for it.

A *recompilation* is no meeting: a batch of an odd size may come to one rank alone, while the others
wait for it in a collective. There the first rank to plan a graph decides, and no rank ever waits.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import fx

from fxremat.base.errors import RankError
from fxremat.distributed.agreement import FirstWriter, Follower, Leader
from fxremat.distributed.graph_fingerprint import Likeness, likeness
from fxremat.distributed.store import OWN, Store, room, wait
from fxremat.options import Options
from fxremat.planning.peers import Peers, SingleProcess
from passes.torch_internals import is_recompile

__all__ = ["meet"]

OF_A_PROCESS = ("plan", "ranks", "dump")  # options that may differ; plans are compared by graph
ROOM = "fxremat"  # prefix of all keys
GRACE = timedelta(seconds=5)  # so that rank 0, which knows who is missing, is the first to say so


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
    mine, asked = likeness(module, inputs), _asked(options)
    shared: Store = group.get_group_store()  # that of init_process_group
    ours, timeout = room(shared, ROOM), shared.timeout
    if is_recompile():
        return FirstWriter(room(ours, f"again {mine.equal} {zlib.crc32(asked.encode())}"), timeout)
    number = ours.add(f"graphs of {group.rank()}", 1)
    table = _Table(room(ours, f"graph {number}"), group.rank(), group.size(), timeout)
    first = table.meet(mine, asked, number)
    kind = Leader if first == group.rank() else Follower
    return kind(room(table.store, f"from {first}"), timeout)


@dataclass(frozen=True)
class _Table:
    """Where all ranks meet about their graph of one number."""

    store: Store
    rank: int
    size: int
    timeout: timedelta

    def meet(self, mine: Likeness, asked: str, number: int) -> int:
        """The rank that plans for this one."""
        if self.rank:
            self.store.set(f"rank {self.rank}", json.dumps([mine.alike, mine.equal, asked]))
            what = f"rank 0 has not come to compile its graph number {number}"
            verdict = json.loads(wait(self.store, "verdict", self.timeout + GRACE, what))
        else:
            verdict = self._judge(mine, asked, number)
            self.store.set("verdict", json.dumps(verdict))
        if "first" in verdict:
            return int(verdict["first"][mine.equal])
        where = _difference(self.rank, mine.ops, verdict["ops"]) if "ops" in verdict else ""
        raise RankError(verdict["error"] + where)

    def _judge(self, mine: Likeness, asked: str, number: int) -> dict[str, Any]:
        """What rank 0 finds: for each kind of equal graphs its first rank, or an error."""
        first, unlike = {mine.equal: 0}, []
        for rank in range(1, self.size):
            what = f"rank {rank} has not come to compile its graph number {number}"
            try:
                alike, equal, theirs = json.loads(
                    wait(self.store, f"rank {rank}", self.timeout, what)
                )
            except RankError as error:
                return {"error": str(error)}
            if theirs != asked:
                return {"error": _odd_options(rank, theirs, asked)}
            first.setdefault(equal, rank)
            unlike += [rank] * (alike != mine.alike)
        if not unlike:
            return {"first": first}
        named = ", ".join(map(str, unlike[:8])) + (", ..." if len(unlike) > 8 else "")
        return {
            "error": f"graph number {number} of rank 0 is not that of rank {named}, so one plan "
            "cannot serve them all and their collectives might not match. Let all ranks run the "
            f"same code (no branch, print or log on a rank within what is compiled), {OWN}",
            "ops": mine.ops,
        }


def _difference(rank: int, mine: Sequence[str], theirs: Sequence[str]) -> str:
    """Where a rank's graph begins to differ from that of rank 0."""
    if not rank:
        return ""
    pairs = zip((*mine, "nothing"), (*theirs, "nothing"), strict=False)
    found = next(((a, b) for a, b in pairs if a != b), None)
    return "" if found is None else f". Rank 0 has {found[1]}, where rank {rank} has {found[0]}"


def _odd_options(rank: int, theirs: str, asked: str) -> str:
    pairs = zip(theirs.splitlines(), asked.splitlines(), strict=False)
    odd = next(((a, b) for a, b in pairs if a != b), (theirs, asked))
    return (
        f"the backend of rank {rank} was made with {odd[0]}, that of rank 0 with {odd[1]}; give "
        f"all ranks the same options, {OWN}"
    )


def _asked(options: Options) -> str:
    """The options that a plan depends on, one a line."""
    named = [f.name for f in fields(Options) if f.name not in OF_A_PROCESS]
    pairs = ((name, getattr(options, name)) for name in named)
    lines = [f"{n}={'a callable' if callable(v) else v}" for n, v in pairs]
    lines.append(f"plan={' '.join(p.graph for p in options.plan or ())}")
    return "\n".join(lines)
