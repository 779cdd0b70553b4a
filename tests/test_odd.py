"""Programs of kinds that a rewrite easily gets wrong, held against eager PyTorch.

Each program is made anew for each run: it returns a callable and its arguments. Compared are all
outputs, the gradients of all arguments and parameters, arguments and buffers after the step, and
the next random number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import fxremat

pytestmark = [
    pytest.mark.filterwarnings("ignore:no plan found within"),
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated"),
]

D = torch.float64
Made = tuple[Callable[..., Any], tuple[Any, ...]]


def leaf(*shape: int, dtype: torch.dtype = D) -> Tensor:
    return (0.5 * torch.randn(shape, dtype=dtype)).requires_grad_()


def deep(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(3):
        x = (x @ w).tanh().exp().sin()
    return x


# Shapes, dtypes and layouts.


def zero_rows() -> Made:
    return lambda x, w: (deep(x, w), deep(x[:0], w).sum()), (leaf(4, 6), leaf(6, 6))


def scalars() -> Made:
    return lambda x, s: ((x * s.exp()).sin() * s).sum() * s.tanh(), (leaf(4, 6), leaf())


def not_contiguous() -> Made:
    return lambda x, w: deep(x.t(), w).t(), (leaf(6, 4), leaf(6, 6).t().detach().requires_grad_())


def expanded() -> Made:
    return lambda x, w: deep(x.expand(5, 6), w) + x, (leaf(1, 6), leaf(6, 6))


def complex_numbers() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        z = torch.complex(x @ w, (x @ w).sin())
        z = (z * z.conj()).exp() * torch.fft.fft(z)
        made: Tensor = z.abs().log1p()
        return made

    return run, (leaf(4, 6), leaf(6, 6))


def half_precisions() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        h = (x.bfloat16() @ w.bfloat16()).tanh().half().exp().float()
        return (h.to(torch.float8_e4m3fn).to(torch.float32) + h).sin()

    return run, (leaf(4, 6, dtype=torch.float32), leaf(6, 6, dtype=torch.float32))


def autocast() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = (x @ w).relu() @ w
        return h.float().sin()

    return run, (leaf(4, 6, dtype=torch.float32), leaf(6, 6, dtype=torch.float32))


# Outputs and arguments.


def aliased_outputs() -> Made:
    def run(x: Tensor, w: Tensor) -> Any:
        h = deep(x, w)
        return h, h.view(-1), h.t()[1:], x, {"none": None, "w": w.t()}

    return run, (leaf(4, 6), leaf(6, 6))


def integers_out() -> Made:
    def run(x: Tensor, w: Tensor) -> Any:
        h = deep(x, w)
        return h.argmax(1), h.topk(2), h.detach(), (h > 0).sum()

    return run, (leaf(4, 6), leaf(6, 6))


def one_argument_twice() -> Made:
    x = leaf(6, 6)
    return lambda a, b: deep(a, b) * b.cos(), (x, x)


def an_argument_without_use() -> Made:
    return lambda x, w, unused: deep(x, w), (leaf(4, 6), leaf(6, 6), leaf(3))


@dataclass
class Pair:
    first: Tensor
    second: Tensor


pytree.register_dataclass(Pair, serialized_type_name="fxremat_tests.Pair")


def dataclass_out() -> Made:
    return lambda x, w: Pair(deep(x, w), x.exp()), (leaf(4, 6), leaf(6, 6))


def tied_weights() -> Made:
    table = nn.Embedding(8, 6, dtype=D)

    def run(at: Tensor, w: Tensor) -> Tensor:
        return deep(table(at), w) @ table.weight.t()

    return _Module(run, table=table), (torch.arange(5), leaf(6, 6))


class _Module(nn.Module):
    def __init__(self, run: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.run = run
        self.parts = nn.ModuleDict(parts)

    def forward(self, *args: Any) -> Any:
        return self.run(*args)


# Mutation.


class Average(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros(6, dtype=D))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        h = (x @ w).exp() * self.mean.cos()
        self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        self.count += 1
        return (h - self.mean).tanh() * self.mean.exp() / self.count


def running_average() -> Made:
    return Average(), (leaf(4, 6), leaf(6, 6))


def two_batch_norms_in_one() -> Made:
    norm = nn.BatchNorm1d(6, dtype=D)
    return _Module(lambda x, w: norm(norm(x @ w).exp()).sin(), norm=norm), (leaf(8, 6), leaf(6, 6))


def views_of_one_tensor_overwritten() -> Made:
    base = torch.rand(10, 6, dtype=D)

    def run(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        h = (a.sin().exp() @ w).sin()
        b.mul_(0.5)
        g = ((a + 1).sin() @ w).exp()
        a.add_(g.detach())
        return (h * g).sin() + b.sum()

    return run, (base[:6], base[4:], leaf(6, 6))


def an_overwritten_argument_returned() -> Made:
    def run(x: Tensor, w: Tensor, scale: Tensor) -> Any:
        h = deep(x, w) * scale.exp()
        scale.sub_(0.5)
        return h, scale

    return run, (leaf(4, 6), leaf(6, 6), torch.rand(6, dtype=D))


def a_list_filled_by_mask() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        h = deep(x, w)
        out = torch.zeros_like(h)
        out[h > 0] = h[h > 0].exp()
        out[:, 1] = h[:, 0].sin()
        return out.cumsum(0)

    return run, (leaf(4, 6), leaf(6, 6))


# Functions, ops and graphs of the user's own.


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: float) -> tuple[Tensor, Tensor]:
        kept = x.abs() < limit
        ctx.mark_non_differentiable(kept)
        ctx.save_for_backward(x, kept)
        ctx.limit = limit
        return x.clamp(-limit, limit), kept

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, None]:
        x, kept = ctx.saved_tensors
        return grad * kept + 0.01 * x.sign(), None


def function_of_ones_own() -> Made:
    def run(x: Tensor, w: Tensor) -> Any:
        a, kept = Clipped.apply((x @ w).exp(), 1.5)  # type: ignore[no-untyped-call]
        b, _ = Clipped.apply(a * 2, 1.0)  # type: ignore[no-untyped-call]
        return b.sin() @ w, kept

    return run, (leaf(4, 6), leaf(6, 6))


@torch.library.custom_op("fxremat_tests::split", mutates_args=())
def split(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[:, :3].sin(), x[:, 3:].cos()


@split.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0], 3), x.new_empty(x.shape[0], x.shape[1] - 3)


def _split_backward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return torch.cat([a * x[:, :3].cos(), -b * x[:, 3:].sin()], 1)


split.register_autograd(
    _split_backward,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


@torch.library.custom_op("fxremat_tests::accumulate", mutates_args=("total",))
def accumulate(x: Tensor, total: Tensor) -> None:
    total.add_(x.sum(0))


def ops_of_ones_own() -> Made:
    def run(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
        a, b = split((x @ w).exp())
        accumulate(x.detach(), total)
        return torch.cat([b, a], 1).tanh() * total.cos()

    return run, (leaf(4, 6), leaf(6, 6), torch.zeros(6, dtype=D))


def branches() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        h = deep(x, w)
        y: Tensor = torch.cond(
            h.sum() > 0, lambda a, b: (a @ b).sin(), lambda a, b: (a * 2) @ b.cos(), (h, w)
        )
        return y.exp()

    return run, (leaf(4, 6), leaf(6, 6))


@torch.compiler.nested_compile_region
def gate(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sigmoid() * x


def nested_regions() -> Made:
    return lambda x, w: gate(gate(gate(x, w).exp(), w), w), (leaf(4, 6), leaf(6, 6))


def nested_checkpoints() -> Made:
    def inner(h: Tensor, w: Tensor) -> Tensor:
        return functional.dropout((h @ w).exp(), 0.3).sin()

    def outer(h: Tensor, w: Tensor) -> Tensor:
        kept: Tensor = checkpoint(inner, h, w, use_reentrant=False)
        return kept.tanh() @ w

    def run(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(2):
            x = checkpoint(outer, x, w, use_reentrant=False)
        return x

    return run, (leaf(4, 6), leaf(6, 6))


def recurrent() -> Made:
    cell = nn.GRUCell(6, 6, dtype=D)

    def run(x: Tensor, w: Tensor) -> Tensor:
        h = torch.zeros(4, 6, dtype=D)
        for _ in range(4):
            h = cell(x @ w, h)
        return h

    return _Module(run, cell=cell), (leaf(4, 6), leaf(6, 6))


def attention() -> Made:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True, dtype=D)
    return _Module(lambda x: layer(layer(x)), layer=layer), (leaf(2, 5, 8),)


def gradients_inside() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        slope = torch.func.grad(lambda a: (a @ w).tanh().sum())(x)
        made: Tensor = (torch.func.vmap(lambda row: (row @ w).exp())(x) * slope).sin()
        return made

    return run, (leaf(4, 6), leaf(6, 6))


def without_gradients_inside() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        with torch.no_grad():
            scale = deep(x, w).abs().mean()
        return deep(x, w) / scale + x.detach().exp()

    return run, (leaf(4, 6), leaf(6, 6))


def linear_algebra() -> Made:
    def run(x: Tensor, w: Tensor) -> Tensor:
        gram = w @ w.t() + 3 * torch.eye(6, dtype=D)
        factor = torch.linalg.cholesky(gram)
        made: Tensor = torch.linalg.solve_triangular(factor, x.t(), upper=False) @ x
        return made + torch.logdet(gram)

    return run, (leaf(4, 6), leaf(6, 6))


def losses() -> Made:
    def run(x: Tensor, w: Tensor, at: Tensor) -> Tensor:
        h = deep(x, w)
        a = functional.cross_entropy(h, at, ignore_index=2, label_smoothing=0.1)
        return (
            a
            + functional.huber_loss(h, x)
            + functional.kl_div(h.log_softmax(1), x.softmax(1), reduction="batchmean")
        )

    return run, (leaf(4, 6), leaf(6, 6), torch.tensor([1, 2, 0, 5]))


PROGRAMS = (
    *(zero_rows, scalars, not_contiguous, expanded, complex_numbers, half_precisions, autocast),
    *(aliased_outputs, integers_out, one_argument_twice, an_argument_without_use, dataclass_out),
    *(tied_weights, running_average, two_batch_norms_in_one, views_of_one_tensor_overwritten),
    *(an_overwritten_argument_returned, a_list_filled_by_mask, function_of_ones_own),
    *(ops_of_ones_own, branches, nested_regions, nested_checkpoints, recurrent, attention),
    *(gradients_inside, without_gradients_inside, linear_algebra, losses),
)


def outcome(make: Callable[[], Made], backend: Any) -> list[Any]:
    torch.compiler.reset()
    torch.manual_seed(0)
    run, args = make()
    used = run if backend is None else torch.compile(run, backend=backend, fullgraph=True)
    outputs = [o for o in pytree.tree_leaves(used(*args)) if o is not None]
    flat = [o for one in outputs for o in (vars(one).values() if isinstance(one, Pair) else [one])]
    total = sum(o.abs().float().sum() for o in flat if o.requires_grad)
    total.backward()
    module = list(run.parameters()) + list(run.buffers()) if isinstance(run, nn.Module) else []
    leaves = [a for a in (*args, *module) if isinstance(a, Tensor)]
    grads = [a.grad for a in leaves if a.is_leaf and a.grad is not None]
    return [*(o.detach() for o in flat), *grads, *(a.detach() for a in leaves), torch.rand(2)]


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda m: m.__name__)
def test_a_step_is_that_of_eager(make: Callable[[], Made]) -> None:
    expected = outcome(make, None)
    for budget in (0.6, "min"):
        backend = fxremat.backend(budget, inner="eager", on_infeasible="closest")
        found = outcome(make, backend)
        assert backend.plans
        # Under autocast AOTAutograd casts in other places than eager does.
        close = (3e-2, 3e-2) if make is autocast else (1e-6, 1e-9)
        torch.testing.assert_close(found, expected, rtol=close[0], atol=close[1])


def test_outputs_that_alias_in_eager_alias_compiled() -> None:
    run, args = aliased_outputs()
    backend = fxremat.backend("min", inner="eager")
    h, flat, *_ = torch.compile(run, backend=backend, fullgraph=True)(*args)
    assert flat.data_ptr() == h.data_ptr()
    with torch.no_grad():
        h.zero_()
        assert float(flat.abs().sum()) == 0


@pytest.mark.parametrize("dynamic", [True, None])
def test_sizes_change_from_step_to_step(dynamic: bool | None) -> None:
    """The plan for the sizes seen first is valid for others; where guards fail, it is made anew."""
    w = leaf(6, 6)
    backend = fxremat.backend(0.6, inner="eager", on_infeasible="closest")
    torch.compiler.reset()

    def program(x: Tensor, w: Tensor) -> Tensor:
        return functional.dropout(deep(x, w), 0.2).sum()

    run = torch.compile(program, backend=backend, dynamic=dynamic)
    for rows in (8, 12, 5, 1, 8):
        found: list[list[Tensor]] = []
        for used in (run, program):
            torch.manual_seed(rows)
            x = leaf(rows, 6)
            w.grad = None
            used(x, w).backward()
            assert x.grad is not None
            assert w.grad is not None
            found.append([x.grad, w.grad.clone()])
        torch.testing.assert_close(found[0], found[1])
    assert len(backend.plans) <= 3


def test_gradients_add_up_over_two_forwards_and_evaluation_between() -> None:
    def train(rematerialized: bool) -> list[Tensor]:
        torch.compiler.reset()
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), nn.GELU(), nn.Linear(6, 6)).double()
        backend = fxremat.backend("min", inner="eager")
        run = torch.compile(net, backend=backend) if rematerialized else net
        first = run(torch.randn(4, 6, dtype=D)).sin().sum()
        second = run(torch.randn(4, 6, dtype=D)).cos().sum()
        net.eval()
        with torch.no_grad():
            seen = run(torch.ones(4, 6, dtype=D))
        net.train()
        second.backward()
        first.backward()
        return [seen, *(p.grad for p in net.parameters() if p.grad is not None)]

    torch.testing.assert_close(train(rematerialized=True), train(rematerialized=False))


def test_one_model_compiled_with_two_budgets() -> None:
    torch.compiler.reset()
    net, x = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)), torch.randn(4, 6)
    found: list[list[Any]] = []
    for backend in (fxremat.backend(1.0, inner="eager"), fxremat.backend("min", inner="eager")):
        net.zero_grad()
        torch.compile(net, backend=backend)(x).sin().sum().backward()
        assert len(backend.plans) == 1
        found.append([p.grad for p in net.parameters()])
    torch.testing.assert_close(found[0], found[1])


def test_two_backwards_with_the_graph_retained() -> None:
    def grads(program: Callable[..., Tensor]) -> list[Tensor | None]:
        torch.manual_seed(0)
        x, w = leaf(4, 6), leaf(6, 6)
        loss = program(x, w)
        loss.backward(retain_graph=True)
        loss.backward()
        return [x.grad, w.grad]

    def program(x: Tensor, w: Tensor) -> Tensor:
        return functional.dropout(deep(x, w), 0.4).exp().sum()

    torch.compiler.reset()
    backend = fxremat.backend("min", inner="eager")
    found = grads(torch.compile(program, backend=backend, fullgraph=True))
    torch.testing.assert_close(found, grads(program))


def test_a_gradient_of_a_gradient_is_refused() -> None:
    torch.compiler.reset()
    x, w = leaf(4, 6), leaf(6, 6)
    run = torch.compile(lambda x, w: deep(x, w).sum(), backend=fxremat.backend(0.8, inner="eager"))
    (grad,) = torch.autograd.grad(run(x, w), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        grad.sum().backward()


def test_recomputing_what_happens_once_is_refused() -> None:
    def program(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
        h = (x @ w).exp()
        accumulate(h.detach(), total)
        return (fxremat.recompute(total) * h).sin().sum()

    torch.compiler.reset()
    backend = fxremat.backend(None, inner="eager")
    run = torch.compile(program, backend=backend, fullgraph=True)
    with pytest.raises(Exception, match="raised") as caught:
        run(leaf(4, 6), leaf(6, 6), torch.zeros(6, dtype=D))
    error = caught.value.inner_exception  # type: ignore[attr-defined]
    assert isinstance(error, fxremat.InfeasibleError)
    assert any("fxremat.recompute() says so" in step for step in error.path)


def sizes_by_mask(x: Tensor, w: Tensor) -> Tensor:
    h = deep(x, w)
    return h[h > 0].exp().sin().sum() + torch.masked_select(h, h < 0).cos().sum() + h.sum()


def sizes_by_item(x: Tensor, w: Tensor) -> Tensor:
    h = deep(x, w)
    count = int(h.abs().sum().int().clamp(1, 3).item())
    torch._check(count >= 0)
    torch._check(count <= 3)
    return h[:count].exp().sin().sum()


@pytest.mark.parametrize("program", [sizes_by_mask, sizes_by_item])
def test_sizes_that_depend_on_data(program: Callable[[Tensor, Tensor], Tensor]) -> None:
    """They count with their bounds, so that the prediction is an upper one."""
    settings = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}

    def make() -> Made:
        return program, (leaf(4, 6), leaf(6, 6))

    expected = outcome(make, None)
    for budget in (None, "min"):
        backend = fxremat.backend(budget, inner="eager")
        with torch._dynamo.config.patch(settings):
            found = outcome(make, backend)
        assert len(backend.plans) == 1
        torch.testing.assert_close(found, expected)
