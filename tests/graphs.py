"""Named small joint graphs, traced from functions of a few ops without decompositions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from functorch.compile import (  # type: ignore[import-untyped]
    aot_function,
    default_partition,
    make_boxed_func,
)
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from passes.analysis.joint import JointGraph, Role
from passes.cleanup.clean import clean
from passes.phases import Phase

Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


@dataclass(frozen=True)
class Case:
    """A function to train and shapes of its arguments.

    Attributes:
        function: takes the arguments, returns one tensor or a tuple.
        shapes: shape of each argument.
        frozen: positions of arguments that need no gradient: buffers.
        dynamic: whether sizes are symbolic.
    """

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    frozen: tuple[int, ...] = ()
    dynamic: bool = False

    def arguments(self) -> list[Tensor]:
        """Fresh arguments, the same at every call."""
        generator = torch.Generator().manual_seed(0)
        made = [torch.rand(s, generator=generator) + 0.5 for s in self.shapes]
        return [t.requires_grad_(i not in self.frozen) for i, t in enumerate(made)]


def chain(x: Tensor) -> Tensor:
    return x.sin().exp().sigmoid()


def diamond(x: Tensor) -> Tensor:
    a = x.exp()
    return a.sin() * a.sigmoid()


def residual(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    x = x + (x @ w).relu()
    x = x + (x @ v).relu()
    return x.sin()


def deep(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x + x.tanh().sin()
    return x.exp()


def shared_view(x: Tensor, w: Tensor) -> Tensor:
    a = (x @ w).view(2, 2, 4)
    return a.transpose(0, 1).exp().sum(0) * a.select(0, 0).sin()


def two_outputs(x: Tensor) -> tuple[Tensor, Tensor]:
    a = x.sin()
    return a.exp(), a.sum()


def random_op(x: Tensor) -> Tensor:
    return (x * torch.rand_like(x)).exp().sin()


def reduction(x: Tensor) -> Tensor:
    return (x - x.mean(1, keepdim=True)).square().mean().log()


def batch_norm(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return F.batch_norm(x.sin(), mean, var, w, b, training=True).relu()


def mutation(x: Tensor, state: Tensor) -> Tensor:
    y = x * state.exp()
    state.mul_(2)
    return y.sin() * state


def dropout(x: Tensor, w: Tensor) -> Tensor:
    return F.dropout((x @ w).exp(), 0.5, True).sin().exp()


def pieces(x: Tensor) -> Tensor:
    a, b = x.exp().split(2)
    c, d = a.chunk(2, 1)
    e, f = b.unbind(0)
    total: Tensor = (c * d).sin().sum() + (e * f).sigmoid().sum()
    return total


def alias_of_input(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.view(-1), (x * y).sin().exp()


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q.sin(), k, v).exp()


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x.sin(), (4,), w, b).exp()


def pooled(x: Tensor) -> Tensor:
    return F.max_pool2d(x.sin(), 2).exp()


def spare_pool(x: Tensor) -> Tensor:
    """The result of a reduction whose indices nobody reads."""
    with torch.no_grad():
        top = x.max(1).values
    return (x * top.unsqueeze(1)).sin()


def either(x: Tensor) -> Tensor:
    """The derivative of square reads ``2 * x``, which depends on the input alone."""
    return x.sin().square().sum()


CASES: dict[str, Case] = {
    "chain": Case(chain, ((4, 4),)),
    "diamond": Case(diamond, ((4, 4),)),
    "residual": Case(residual, ((4, 4), (4, 4), (4, 4))),
    "deep": Case(deep, ((4, 4),)),
    "shared_view": Case(shared_view, ((4, 4), (4, 4))),
    "two_outputs": Case(two_outputs, ((4, 4),)),
    "random_op": Case(random_op, ((4, 4),)),
    "reduction": Case(reduction, ((4, 4),)),
    "batch_norm": Case(batch_norm, ((2, 3, 4, 4), (3,), (3,), (3,), (3,)), frozen=(3, 4)),
    "mutation": Case(mutation, ((4, 4), (4, 4)), frozen=(1,)),
    "dropout": Case(dropout, ((4, 4), (4, 4))),
    "pieces": Case(pieces, ((4, 4),)),
    "alias_of_input": Case(alias_of_input, ((4, 4), (4, 4))),
    "attention": Case(attention, ((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8))),
    "layer_norm": Case(layer_norm, ((4, 4), (4,), (4,))),
    "pooled": Case(pooled, ((1, 2, 4, 4),)),
    "spare_pool": Case(spare_pool, ((4, 4),)),
    "either": Case(either, ((4, 4),)),
    "dynamic": Case(residual, ((6, 4), (4, 4), (4, 4)), dynamic=True),
    "dynamic_view": Case(
        lambda x, w: (x @ w).view(-1, 2, 2).sin().sum(0).exp().mean(),
        ((6, 4), (4, 4)),
        dynamic=True,
    ),
}


class Logged(fx.Interpreter):
    """Runs a graph and notes the names of the calls in the order in which they run."""

    def __init__(self, module: fx.GraphModule, log: list[str]) -> None:
        super().__init__(module)
        self.log = log

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "call_function":
            self.log.append(n.name)
        return super().run_node(n)


def compiled(case: Case, partition: Partition, log: list[str] | None = None) -> Callable[..., Any]:
    """The function of a case, split by ``partition`` and run op by op."""
    noted: list[str] = [] if log is None else log

    def run(module: fx.GraphModule, inputs: Any) -> Any:
        return make_boxed_func(lambda *given: Logged(module, noted).run(*given))

    made: Callable[..., Any] = aot_function(
        case.function,
        run,
        partition_fn=partition,
        decompositions={},
        keep_inference_input_mutations=True,
        dynamic=case.dynamic,
    )
    return made


def joint_module(case: Case) -> tuple[fx.GraphModule, int]:
    """The joint graph of a case and how many of its outputs are the forward's."""
    found: list[tuple[fx.GraphModule, int]] = []

    def partition(module: fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
        found.append((module, kwargs["num_fwd_outputs"]))
        return default_partition(module, inputs, **kwargs)

    torch.manual_seed(0)
    compiled(case, partition)(*case.arguments())
    ((module, count),) = found
    return module, count


@cache
def joint(name: str, *, cleaned: bool = True) -> JointGraph:
    """The joint graph of a named case; as it is traced, or cleaned as for planning."""
    module, count = joint_module(CASES[name])
    return JointGraph.from_module(clean(module) if cleaned else module, count)


@dataclass(frozen=True)
class Step:
    """What one training step left behind.

    Attributes:
        outputs: what the function returned.
        gradients: gradients of the arguments; None for a buffer.
        arguments: contents of the arguments afterwards.
    """

    outputs: tuple[Tensor, ...]
    gradients: tuple[Tensor | None, ...]
    arguments: tuple[Tensor, ...]


def step(case: Case, function: Callable[..., Any] | None = None) -> Step:
    """Run one training step of a case, by its function or another."""
    arguments = case.arguments()
    torch.manual_seed(1)
    outputs = pytree.tree_leaves((function or case.function)(*arguments))
    generator = torch.Generator().manual_seed(2)
    tangents = [torch.rand(o.shape, generator=generator) for o in outputs]
    torch.autograd.backward(outputs, tangents)
    return Step(
        tuple(o.detach() for o in outputs),
        tuple(a.grad for a in arguments),
        tuple(a.detach() for a in arguments),
    )


def assert_same(got: Step, want: Step) -> None:
    """Assert that two steps left the same behind, bit for bit."""
    for kind in ("outputs", "gradients", "arguments"):
        pairs = zip(getattr(got, kind), getattr(want, kind), strict=True)
        for index, (a, b) in enumerate(pairs):
            assert (a is None) == (b is None), f"{kind} {index}"
            assert a is None or torch.equal(a, b), f"{kind} {index}"


def step_by_halves(case: Case, count: int, forward: Any, backward: Any) -> Step:
    """Run one training step of a case by its two halves, without autograd."""
    arguments = [a.detach() for a in case.arguments()]
    torch.manual_seed(1)
    returned = forward(*arguments)
    outputs, handed = returned[:count], returned[count:]
    tensors = [v for v in handed if isinstance(v, Tensor)]
    sizes = [v for v in handed if not isinstance(v, Tensor)]
    generator = torch.Generator().manual_seed(2)
    tangents = [torch.rand(o.shape, generator=generator) for o in outputs]
    gradients = backward(*sizes, *tensors, *tangents)
    return Step(tuple(outputs), tuple(gradients), tuple(arguments))


class Sketch:
    """A joint graph drawn by hand. Inputs are named as AOTAutograd names them."""

    def __init__(self, **inputs: Tensor) -> None:
        self.graph = fx.Graph()
        self.nodes: dict[str, fx.Node] = {}
        for name, value in inputs.items():
            self.nodes[name] = self.graph.placeholder(name)
            self.nodes[name].meta["val"] = value

    def __getitem__(self, name: str) -> fx.Node:
        return self.nodes[name]

    def call(self, name: str, target: Any, *args: Any, val: Any = None, **meta: Any) -> fx.Node:
        """Add a call; its traced value is ``val``, or what the target gives for its arguments."""
        node = self.graph.create_node("call_function", target, args, name=name)
        given = fx.map_arg(args, lambda n: n.meta["val"])
        node.meta.update(meta, val=target(*given) if val is None else val)
        self.nodes[name] = node
        return node

    def done(self, forward: list[Any], backward: list[Any]) -> JointGraph:
        self.graph.output([*forward, *backward])
        return JointGraph.from_module(fx.GraphModule({}, self.graph), len(forward))


def by_role(graph: JointGraph, role: Role) -> list[str]:
    """Names of the nodes that have a role."""
    return [name for name, found in graph.roles.items() if found is role]


def by_side(graph: JointGraph, side: Phase, *roles: Role) -> str:
    """Names of the nodes of a side that have one of some roles, ops by default."""
    kinds = roles or (Role.OP,)
    names = [n.name for n in graph.nodes if graph.roles[n.name] in kinds]
    return " ".join(name for name in names if graph.phases[name] is side)


def aliases(graph: JointGraph) -> dict[str, str]:
    """Storages of the nodes that have none of their own."""
    return {name: made for name, made in graph.storages.items() if name != made}


def plain_plan(graph: JointGraph) -> tuple[list[str], list[str]]:
    """Schedule and forward of the plan that recomputes nothing."""
    ops = [n.name for n in graph.nodes if graph.roles[n.name] in (Role.OP, Role.OUTPUT)]
    forward = [name for name in ops if graph.phases[name] is Phase.FORWARD]
    return [name for name in ops if graph.phases[name] is not Phase.FORWARD], forward
