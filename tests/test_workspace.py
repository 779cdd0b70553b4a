"""Workspaces against the allocator, read in another way."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
from collections.abc import Callable
from itertools import pairwise
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.profiler import ProfilerActivity

from fxremat.costs import op_profiler, workspace
from fxremat.costs.tensor_meta import signature, storage_bytes
from fxremat.costs.workspace import Measurement, estimate, excess, measure, timings
from passes.torch_internals import storage_key

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fxremat"


def traced(run: Callable[..., Any], *args: torch.Tensor) -> Graph:
    return make_fx(run, tracing_mode="fake")(*args).graph


def only(graph: Graph, packet: Any) -> Node:
    found: list[Node] = [
        n for n in graph.nodes if getattr(n.target, "overloadpacket", None) is packet
    ]
    assert len(found) == 1, graph
    return found[0]


def measured(graph: Graph, packet: Any) -> Measurement:
    return measure(graph.nodes, "cpu")[signature(only(graph, packet))]


def peak_beyond_output(run: Callable[[], torch.Tensor]) -> int:
    """The same by ``torch.profiler``, without sentinels, with the output's size known."""
    with torch.profiler.profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        kept = run()
    events = record.profiler.kineto_results.events()
    level = peak = 0
    for size in (e.nbytes() for e in events if e.name() == "[memory]"):
        level += size
        peak = max(peak, level)
    return peak - kept.untyped_storage().nbytes()


def log_softmax_backward(grad: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = aten._log_softmax_backward_data(grad.t(), out, 1, torch.float32)
    return made


def test_a_gradient_that_is_not_contiguous_is_copied() -> None:
    grad, out = torch.rand(300, 200), torch.rand(200, 300)
    found = measured(traced(log_softmax_backward, grad, out), aten._log_softmax_backward_data)
    want = peak_beyond_output(lambda: log_softmax_backward(grad, out))
    assert found.workspace == want >= 4 * 200 * 300
    assert found.out_bytes == (4 * 200 * 300,)
    assert found.out_bytes


def test_convolution_as_the_profiler_sees_it() -> None:
    x, w = torch.rand(2, 16, 40, 40), torch.rand(32, 16, 3, 3)
    run = torch.conv2d
    run(x, w)
    found = measured(traced(lambda x, w: run(x, w), x, w), aten.convolution)
    assert found.workspace == peak_beyond_output(lambda: run(x, w))


def test_ops_are_told_apart() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.sin(), log_softmax_backward(x, y), x[:3].cos(), torch.var_mean(x, 0)

    graph = traced(run, torch.rand(300, 200), torch.rand(200, 300))
    found = measure(graph.nodes, "cpu")
    sizes = {n.target: found[signature(n)] for n in graph.nodes if signature(n) in found}
    assert sizes[aten.sin.default] == Measurement(0, None, (240_000,))
    assert sizes[aten._log_softmax_backward_data.default].workspace >= 240_000
    assert sizes[aten.cos.default] == Measurement(0, None, (2_400,))
    assert sizes[aten.var_mean.correction].out_bytes == (800, 800)
    assert len(sizes) == 4


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(
    "loss", [F.mse_loss, F.smooth_l1_loss, F.soft_margin_loss, F.binary_cross_entropy]
)
def test_losses_return_storages_larger_than_traced(
    loss: Callable[..., torch.Tensor], reduction: str
) -> None:
    x, y = torch.rand(30, 20), torch.ones(30, 20)
    graph = traced(lambda x, y: loss(x, y, reduction=reduction), x, y)
    real = loss(x, y, reduction=reduction).untyped_storage().nbytes()
    assert real == 4 * 600
    nodes = [n for n in graph.nodes if n.op == "call_function"]
    want = 0 if reduction == "none" else 4 * 600 - 4
    for found in (measure(nodes, "cpu"), estimate(nodes)):  # here, and for a device that is not
        assert sum(excess(nodes, found).values()) == want


def test_the_second_of_several_results_may_be_larger_too() -> None:
    x = torch.rand(10, 3), torch.zeros(6, dtype=torch.long), torch.tensor([0, 2])
    graph = traced(lambda w, i, o: aten._embedding_bag.default(w, i, o, False, 1), *x)
    op = only(graph, aten._embedding_bag)
    real = [t.untyped_storage().nbytes() for t in aten._embedding_bag.default(*x, False, 1)]
    more = excess(graph.nodes, measure(graph.nodes, "cpu"))
    fake = [storage_bytes(t, 1, more.get(storage_key(t), 0)) for t in op.meta["val"]]
    assert fake == real
    assert more


def test_inside_a_fake_mode_it_still_runs_for_real() -> None:
    graph = traced(log_softmax_backward, torch.rand(30, 20), torch.rand(20, 30))
    with FakeTensorMode(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = measured(graph, aten._log_softmax_backward_data)
    assert found.workspace >= 2_400
    assert found.out_bytes == (2_400,)


def test_nothing_global_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = traced(lambda x: (torch.rand_like(x), x.bernoulli(), x.sin()), torch.rand(100))
    runs: list[object] = []
    attempt = op_profiler._Call.attempt
    monkeypatch.setattr(op_profiler._Call, "attempt", lambda c: runs.append(c.target) or attempt(c))  # type: ignore[func-returns-value]
    before = torch.get_rng_state(), torch.is_grad_enabled(), torch.get_default_dtype()
    measure(graph.nodes, "cpu", timed=True)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (torch.is_grad_enabled(), torch.get_default_dtype()) == before[1:]
    assert aten.rand_like.default in runs


def test_a_second_call_reads_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = traced(log_softmax_backward, torch.rand(30, 20), torch.rand(20, 30))
    first = measure(graph.nodes, "cpu")
    monkeypatch.setattr(op_profiler, "run_all", lambda *_, **__: pytest.fail("ran again"))
    assert measure(graph.nodes, "cpu") == first


def measure_beside(barrier: Barrier, cache: str, size: int) -> None:
    """Measure an op; what is kept is read before another process writes to it."""
    os.environ["XDG_CACHE_HOME"] = cache
    torch.set_num_threads(1)  # as here: part of the file's name
    run = op_profiler.run_all

    def wait_and_run(*args: Any, **options: Any) -> Any:
        barrier.wait()
        return run(*args, **options)

    with mock.patch.object(op_profiler, "run_all", wait_and_run):
        measure(traced(torch.sin, torch.rand(size)).nodes, "cpu")


def test_two_processes_keep_what_both_measure(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.test_workspace"])
    barrier = context.Barrier(2, timeout=300)
    args = [(barrier, str(folder.parent), size) for size in (1000, 2000)]
    processes = [context.Process(target=measure_beside, args=a) for a in args]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    monkeypatch.setattr(op_profiler, "run_all", lambda *_, **__: pytest.fail("ran again"))
    for size in (1000, 2000):
        assert len(measure(traced(torch.sin, torch.rand(size)).nodes, "cpu")) == 1


@pytest.mark.parametrize("text", ["{", "[1]", '{"format":1,"ops":[]}', '{"format":0,"ops":{}}'])
def test_a_corrupted_cache_is_measured_again(text: str, folder: Path) -> None:
    graph = traced(log_softmax_backward, torch.rand(30, 20), torch.rand(20, 30))
    first = measure(graph.nodes, "cpu")
    (file,) = folder.glob("*.json")
    file.write_text(text)
    assert measure(graph.nodes, "cpu") == first


def test_a_corrupted_entry_is_measured_again(folder: Path) -> None:
    graph = traced(log_softmax_backward, torch.rand(30, 20), torch.rand(20, 30))
    first = measure(graph.nodes, "cpu")
    (file,) = folder.glob("*.json")
    text, count = re.subn(r"\[\d+,null,\[2400\]\]", '["x",null,7]', file.read_text())
    assert count == 1
    file.write_text(text)
    assert measure(graph.nodes, "cpu") == first


def test_timed_once_asked() -> None:
    graph = traced(torch.sin, torch.rand(1000))
    assert timings(measure(graph.nodes, "cpu")) == {}
    (seconds,) = timings(measure(graph.nodes, "cpu", timed=True)).values()
    assert seconds > 0


def test_views_are_passed_over_and_writers_never_run() -> None:
    graph = traced(lambda x: (x.t(), aten.add_(x, 1)), torch.rand(4, 5))
    assert list(measure(graph.nodes, "cpu").values()) == [Measurement(0)]


def test_indices_are_valid_and_failures_estimated() -> None:
    def run(x: torch.Tensor, index: torch.Tensor) -> Any:
        return x[index], aten.embedding(x, index), torch.linalg.cholesky_ex(x, check_errors=True)

    graph = traced(run, torch.eye(50), torch.arange(6))
    found = measure(graph.nodes, "cpu")
    assert found[signature(only(graph, aten.index))].out_bytes
    assert found[signature(only(graph, aten.embedding))].out_bytes
    assert not found[signature(only(graph, aten.linalg_cholesky_ex))].out_bytes


def test_what_is_too_big_to_run_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = torch.rand(2, 16, 8, 8), torch.rand(32, 16, 3, 3)
    graph = traced(lambda x, w: torch.conv2d(x, w).sin(), x, w)
    monkeypatch.setattr(workspace, "LIMIT", 1000)
    made = 2 * 32 * 6 * 6
    guess = Measurement(4 * (x.numel() + w.numel() + made), known=False)
    assert measured(graph, aten.convolution) == guess
    assert measured(graph, aten.sin) == Measurement(0, known=False)


def test_another_device_and_a_running_profiler_mean_estimates() -> None:
    graph = traced(torch.sin, torch.rand(4))
    assert not any(m.out_bytes for m in measure(graph.nodes, "meta").values())
    with torch.autograd.profiler.profile():
        assert not any(m.out_bytes for m in measure(graph.nodes, "cpu").values())
    assert measured(graph, aten.sin).out_bytes


def test_collection_of_garbage_stops_for_no_longer_than_one_op_runs() -> None:
    """Between ops it goes on; after the last it is as it was, on or off."""
    seen: list[bool] = []

    class Watched(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(gc.isenabled())
            return func(*args, **(kwargs or {}))

    graph = make_fx(lambda x: x.sin().cos())(torch.ones(8)).graph
    todo = {n.name: n for n in graph.nodes if n.op == "call_function"}
    with Watched():  # type: ignore[no-untyped-call]
        found = op_profiler.run_all(todo, torch.device("cpu"))
    assert set(found) == set(todo)
    runs = [on for on, after in pairwise(seen) if on and not after]
    assert len(runs) == len(todo)
    assert gc.isenabled()
    gc.disable()
    try:
        op_profiler.run_all(todo, torch.device("cpu"))
        assert not gc.isenabled()
    finally:
        gc.enable()
