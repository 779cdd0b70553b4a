"""Programs for two processes, for :mod:`tests.test_ranks`."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import fxremat
from fxremat.frontend.analyze import Prepared
from fxremat.planning import pipeline
from fxremat.planning.feedback import NO_FEEDBACK, Feedback
from fxremat.planning.select import decide
from fxremat.plans.plan import Plan
from tests.rank_models import (
    ROWS,
    SOON,
    WIDTH,
    Found,
    batches,
    differ,
    failure,
    net,
    peak,
    told,
    train,
)


def with_ddp(
    budget: object, inner: str, buckets: bool, inside: bool = False, measure: bool = True
) -> Found:
    """DDP: one graph, or one for each bucket; compiled from outside, or before it is wrapped."""
    width = 96 if buckets else WIDTH  # DDP's first bucket takes 1 MiB
    data = batches(3, width=width)

    def wrap(model: Any) -> DistributedDataParallel:
        return DistributedDataParallel(model, bucket_cap_mb=1)

    model = wrap(net(width=width))
    expected = train(model, model, data)
    backend = fxremat.backend(budget, inner=inner)
    with torch._dynamo.config.patch(optimize_ddp=buckets):
        if inside:
            model = wrap(torch.compile(net(width=width), backend=backend))
            run: Any = model
        else:
            model = wrap(net(width=width))
            run = torch.compile(model, backend=backend)
        found = train(model, run, data)
        measured = peak(run, model, data[0]) if measure else None
    return {"differ": differ(found, expected), "plans": told(backend.plans), "measured": measured}


def ddp() -> Found:
    """One graph at half of its peak."""
    return with_ddp(0.5, "eager", buckets=False)


def ddp_inside() -> Found:
    """The same, compiled before it is wrapped."""
    return with_ddp(0.5, "eager", buckets=False, inside=True)


def ddp_buckets() -> Found:
    """Several graphs, with a budget for all of them."""
    return with_ddp("46MiB", "eager", buckets=True)


def with_fsdp(budget: object, by_block: bool, **options: Any) -> Found:
    """FSDP2: blocks compiled, or the model as a whole, which breaks at the hooks of the blocks."""
    data = batches(3)
    backend = fxremat.backend(budget, inner="eager", **options)

    def make(compiled: bool) -> tuple[nn.Module, Any]:
        model: Any = net()
        for block in model.blocks:
            if compiled and by_block:
                block.compile(backend=backend)
            fully_shard(block)
        fully_shard(model)
        outside = compiled and not by_block
        return model, torch.compile(model, backend=backend) if outside else model

    expected = train(*make(False), data)
    model, run = make(True)
    found = train(model, run, data)
    measured = peak(run, model, data[0])
    return {"differ": differ(found, expected), "plans": told(backend.plans), "measured": measured}


def fsdp() -> Found:
    """Blocks compiled one by one, with a limit on what each keeps for its backward."""
    return with_fsdp(None, by_block=True, regions={"*": 0.3})


def fsdp_whole() -> Found:
    """The model compiled as a whole."""
    return with_fsdp(0.7, by_block=False)


def inductor() -> Found:
    """Inductor: rank 0 alone has compiled the graph before, then both have."""
    found: Found = {}
    for name in ("cold", "cache of rank 0", "warm"):
        if name == "cache of rank 0" and dist.get_rank():
            os.environ["XDG_CACHE_HOME"] += "-emptied"
            os.environ["TORCHINDUCTOR_CACHE_DIR"] += "-emptied"
        torch.compiler.reset()
        found[name] = with_ddp(0.6, "inductor", buckets=False, measure=name == "cold")
    return found


def shared_out() -> Any:
    """The model with its linear layers shared out over the ranks."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    shares = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    model: Any = net()
    for block in model.blocks:
        for mix in block.layers:
            parallelize_module(mix, mesh, shares)
    return model


def with_tensor_parallel(inner: Any) -> Found:
    """Tensor parallelism: collectives stand in the graphs."""
    data = batches(3)
    for x in data:
        dist.broadcast(x, 0)
    model = shared_out()
    expected = train(model, model, data)
    model = shared_out()
    backend = fxremat.backend(0.5, inner=inner)
    run = torch.compile(model, backend=backend, fullgraph=True)
    found = train(model, run, data)
    return {
        "differ": differ(found, expected),
        "plans": told(backend.plans),
        "measured": peak(run, model, data[0]),
    }


def tensor_parallel() -> Found:
    """Run op by op."""
    seen = Seen()
    return {**with_tensor_parallel(seen), "collectives": seen.collectives}


def tensor_parallel_inductor() -> Found:
    """Run by Inductor, which orders what it generates."""
    return with_tensor_parallel("inductor")


class Seen:
    """An inner compiler that runs op by op and notes the collectives of each graph."""

    def __init__(self) -> None:
        self.collectives: list[list[str]] = []

    def __call__(self, module: Any, inputs: Sequence[Any]) -> Any:
        from passes.analysis.effects import communicates
        from passes.torch_internals import run_op_by_op

        self.collectives.append([n.name for n in module.graph.nodes if communicates(n)])
        return run_op_by_op(module, inputs)


def step(budget: object = 0.5, rows: int = ROWS, **options: Any) -> tuple[Any, Callable[..., Any]]:
    """A backend, and a step with it on a batch of some rows."""
    torch.compiler.reset()  # or it would be a recompilation
    backend = fxremat.backend(budget, inner="eager", **options)
    run = torch.compile(net(depth=1), backend=backend, dynamic=False)

    def once(count: int = rows) -> None:
        run(batches(1, count)[0]).backward()

    return backend, once


def odd_decide(ready: Prepared, feedback: Feedback = NO_FEEDBACK, held: int = 0) -> Plan:
    """Plans that are another rank's own: each rank aims at a share of its own."""
    share = 0.5 + 0.2 * dist.get_rank()
    options = replace(ready.options, budget=fxremat.Budget(fraction=share))
    return decide(replace(ready, options=options), feedback, held)


def failing_decide(ready: Prepared, feedback: Feedback = NO_FEEDBACK, held: int = 0) -> Plan:
    """The rank that comes first cannot plan."""
    raise fxremat.BudgetError("no plan found", asked=1, least=2)


def agreement() -> Found:
    """All that ranks can say to each other, one after the other."""
    world: Any = dist.group.WORLD
    rank, store = dist.get_rank(), world.get_group_store()
    long = store.timeout
    found: Found = {}

    backend, once = step()
    with mock.patch.object(pipeline, "decide", odd_decide):
        once()
    found["same"] = told(backend.plans)

    backend, once = step(ranks="own")
    with mock.patch.object(pipeline, "decide", odd_decide):
        once()
    found["own"] = told(backend.plans)

    backend, once = step()
    once(ROWS + 64 * rank)
    found["sizes"] = told(backend.plans)
    begin = time.perf_counter()
    if rank:  # a batch of another size comes to one rank alone
        once(ROWS // 2)
    found["alone"] = {"seconds": time.perf_counter() - begin, "plans": len(backend.plans)}

    backend, once = step()
    once()
    with mock.patch.object(pipeline, "decide", odd_decide):
        once(ROWS // 4)  # a recompilation on all ranks
    found["again"] = told(backend.plans)

    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU() if rank else nn.GELU())
    unlike = torch.compile(model, backend=fxremat.backend(None, inner="eager"))
    found["unlike"] = failure(lambda: unlike(torch.ones(4, 8)))

    _, once = step(0.5 + 0.1 * rank)
    found["options"] = failure(once)

    _, once = step()
    with mock.patch.object(pipeline, "decide", failing_decide):
        found["fails"] = failure(once)

    store.set_timeout(SOON)
    _, once = step()
    if rank:  # it comes too late
        dist.barrier()
    found["missing"] = failure(once)
    if not rank:
        dist.barrier()
    store.set_timeout(long)
    return found


PROGRAMS: dict[str, Callable[[], Found]] = {
    "ddp": ddp,
    "ddp_inside": ddp_inside,
    "ddp_buckets": ddp_buckets,
    "fsdp": fsdp,
    "fsdp_whole": fsdp_whole,
    "inductor": inductor,
    "tensor_parallel": tensor_parallel,
    "tensor_parallel_inductor": tensor_parallel_inductor,
    "agreement": agreement,
}


def on_rank(name: str, rank: int, port: int, folder: str) -> Found:
    """Run a program on one rank of two, with caches of its own; what it found.

    Args:
        name: one of PROGRAMS.
        rank: 0 or 1.
        port: of a TCPStore that another process serves, as ``torchrun`` does.
        folder: for the caches.
    """
    os.environ |= {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **{n: f"{folder}/{n}-{rank}" for n in ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR")},
    }
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = PROGRAMS[name]()
    found["warnings"] = [str(w.message) for w in said if "fxremat" in w.filename]
    dist.barrier()
    dist.destroy_process_group()
    return found
