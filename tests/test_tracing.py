"""Tracing a step on fake tensors: the backend's graph, without a run and without memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import (  # type: ignore[import-untyped]
    aot_module_simplified,
    default_partition,
    make_boxed_func,
)
from torch import Tensor, fx, nn
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional

import fxremat
from fxremat.backends import backend, inductor
from fxremat.base.errors import GraphError, OptionError
from fxremat.frontend.trace import trace_joint
from passes.analysis.joint import JointGraph
from passes.printer import render


class Small(nn.Module):
    """A bit of everything: convolution, batch norm, dropout, resampling, attention, two results."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = functional.interpolate(self.norm(self.conv(x)).relu(), scale_factor=2)
        rows = functional.dropout(y.mean(2), 0.5).transpose(1, 2)
        seen = functional.scaled_dot_product_attention(rows, rows, rows)
        return self.head(seen).logsumexp(-1).sum(), seen


def batch() -> Tensor:
    return torch.ones(2, 3, 8, 8)


def traced(module: nn.Module, *args: Any, **options: Any) -> str:
    joint, _ = trace_joint(module, args, **({"decompositions": False} | options))
    return render(joint)


def ours(monkeypatch: pytest.MonkeyPatch, where: Any, inner: str) -> tuple[str, int]:
    """What the backend would plan when it compiles the small module for real."""
    found: list[tuple[str, int]] = []

    def plan_joint(joint: fx.GraphModule, outputs: int, *_: Any, **__: Any) -> Any:
        found.append((render(joint), outputs))
        raise RuntimeError("planned")

    monkeypatch.setattr(where, "plan_joint", plan_joint)
    with pytest.raises(RuntimeError, match="planned"):
        torch.compile(Small(), backend=fxremat.backend(inner=inner), dynamic=False)(batch())
    (only,) = found
    return only


def test_the_graph_is_the_eager_backends_own(monkeypatch: pytest.MonkeyPatch) -> None:
    joint, outputs = trace_joint(Small(), (batch(),), decompositions=False)
    assert (render(joint), outputs) == ours(monkeypatch, backend, "eager")


@pytest.mark.filterwarnings("default")  # Inductor warns of what it does not find on this machine
def test_with_joint_passes_it_is_the_inductor_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    joint, outputs = trace_joint(Small(), (batch(),), decompositions=True, joint_passes=True)
    assert (render(joint), outputs) == ours(monkeypatch, inductor, "inductor")


def test_decomposed_it_is_what_aot_autograd_traces_with_inductors_table() -> None:
    found: list[str] = []

    def partition(joint: fx.GraphModule, inputs: Any, **more: Any) -> Any:
        found.append(render(joint))
        return default_partition(joint, inputs, **more)

    def backend(graph: fx.GraphModule, inputs: Any) -> Any:
        return aot_module_simplified(
            graph,
            inputs,
            fw_compiler=lambda half, _: make_boxed_func(half.forward),
            partition_fn=partition,
            decompositions=select_decomp_table(),
            keep_inference_input_mutations=True,
        )

    torch.compile(Small(), backend=backend)(batch())
    assert [traced(Small(), batch(), decompositions=True)] == found


def on_meta(make: Callable[[], Any]) -> Any:
    with torch.device("meta"):
        return make()


def on_fakes(make: Callable[[], Any]) -> Any:
    with FakeTensorMode():
        return make()


def real(make: Callable[[], Any]) -> Any:
    return make()


@pytest.mark.parametrize("module", [real, on_meta, on_fakes])
@pytest.mark.parametrize("args", [real, on_meta, on_fakes])
def test_weights_and_arguments_may_be_real_meta_or_fake(module: Any, args: Any) -> None:
    assert traced(module(Small), args(batch)) == traced(Small(), batch())


def test_nothing_of_the_models_size_is_allocated() -> None:
    module = on_meta(lambda: nn.Sequential(nn.Linear(10**6, 10**6), nn.Linear(10**6, 1)))
    joint, _ = trace_joint(module, (on_meta(lambda: torch.ones(8, 10**6)),), decompositions=True)
    values = [n.meta["val"] for n in joint.graph.nodes if "val" in n.meta]
    assert max(v.untyped_storage().nbytes() for v in values) == 4 * 10**12
    assert all(isinstance(v, FakeTensor) and v.device.type == "cpu" for v in values)


def test_nothing_runs_and_the_module_is_left_alone() -> None:
    module = Small()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    drawn = torch.get_rng_state()
    traced(module, batch())
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())
    meta = on_meta(Small)
    weights = [id(p) for p in meta.parameters()]
    traced(meta, batch())
    assert [id(p) for p in meta.parameters()] == weights
    assert all(p.is_meta for p in meta.parameters())


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.last.weight = self.first.weight
        self.register_buffer("scale", torch.ones(4))
        self.shift = torch.ones(4)  # neither parameter nor buffer
        self.first.bias.requires_grad_(False)

    def forward(self, x: Tensor, *, gain: Tensor) -> Tensor:
        out: Tensor = self.last(self.first(x)) * self.scale + self.shift
        return out * gain


def test_ties_buffers_frozen_weights_and_keywords_survive_meta() -> None:
    texts = []
    for make in (real, on_meta):
        x, gain = make(lambda: torch.ones(2, 4)), make(lambda: torch.ones(4))
        found = trace_joint(make(Tied), (x,), {"gain": gain}, decompositions=False)
        texts.append(render(found[0]))
        _, gradients = JointGraph.from_module(*found).outputs()
        assert len(gradients) == 2  # the tied weight and the last bias
    assert texts[0] == texts[1]


def test_sizes_stay_numbers_when_the_batch_changes() -> None:
    for count in (4, 6, 8):
        joint, _ = trace_joint(Small(), (batch().repeat(count, 1, 1, 1),), decompositions=False)
        assert not any(isinstance(n.meta.get("val"), torch.SymInt) for n in joint.graph.nodes)


def test_a_caller_without_gradients_gets_the_same() -> None:
    with torch.no_grad():
        found = traced(Small(), batch())
    assert found == traced(Small(), batch())


class Branching(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y * 2 if y.sum() > 0 else y


class Detached(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Branching(8, 8), r"as one graph: Data-dependent branching\. Explanation: .*dynamic cont"),
        (Detached(8, 8), "nothing in the step needs a gradient; give a module with trainable"),
        (nn.Linear(8, 8).requires_grad_(False), "nothing in the step needs a gradient"),
        (nn.Linear(9, 8), r"as one graph: .*same reduction dim, but got \[4, 8\] X \[9, 8\]"),
    ],
    ids=["branch", "detached", "frozen", "shape"],
)
def test_what_cannot_be_traced_is_refused(module: nn.Module, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        trace_joint(module, (torch.ones(4, 8),), decompositions=False)


def test_a_module_without_tensors_is_refused() -> None:
    with pytest.raises(GraphError, match="calls no op on a tensor"):
        trace_joint(nn.Identity(), (3,), decompositions=False)


def test_joint_passes_need_decompositions() -> None:
    with pytest.raises(OptionError, match="give decompositions=True"):
        trace_joint(Small(), (batch(),), decompositions=False, joint_passes=True)
