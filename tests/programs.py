"""Random small training programs: a list of steps over a growing list of values.

All values are float64 matrices of one shape, so that any step can follow any other. What a step
does in between may have any shape, dtype or layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

ROWS, COLS = 8, 6


@dataclass
class State:
    """What a running program has at hand.

    Attributes:
        weights: square matrices that need gradients, used by any number of steps.
        buffers: matrices that need none and may be overwritten.
        more: further outputs.
    """

    weights: list[Tensor]
    buffers: list[Tensor]
    more: list[Tensor]


Unary = Callable[[Tensor, State], Tensor]
Binary = Callable[[Tensor, Tensor, State], Tensor]


def _stay(x: Tensor) -> Tensor:
    """Keep numbers small, or long programs would overflow."""
    return x.clamp(-3, 3)


def _chunks(x: Tensor, s: State) -> Tensor:
    a, b, c = x.chunk(3, 1)
    return torch.cat([c.sin(), a * b, b], 1)


def _unbound(x: Tensor, s: State) -> Tensor:
    rows = x.unbind(0)
    return torch.stack([rows[i - 1] * (i + 1) for i in range(ROWS)]) / ROWS


def _topped(x: Tensor, s: State) -> Tensor:
    values, index = x.topk(3, 1)
    s.more.append(index)
    return torch.cat([values, x.gather(1, index).flip(1)], 1)


def _sorted(x: Tensor, s: State) -> Tensor:
    values, index = x.sort(1)
    return values.scatter(1, index, x.cos())


def _best(x: Tensor, s: State) -> Tensor:
    best, at = x.max(0)
    return x - best + at


def _normed(x: Tensor, s: State) -> Tensor:
    return functional.layer_norm(x, (COLS,), s.weights[0][0], s.weights[1][0])


def _batch_normed(x: Tensor, s: State) -> Tensor:
    mean, var = s.buffers[0][0], s.buffers[1][1]
    return functional.batch_norm(x, mean, var, training=True, momentum=0.3)


def _conved(x: Tensor, s: State) -> Tensor:
    kernel = s.weights[0][:3, :3].reshape(1, 1, 3, 3)
    return functional.conv2d(x.view(1, 1, ROWS, COLS), kernel, padding=1).view(ROWS, COLS)


def _pooled(x: Tensor, s: State) -> Tensor:
    y, at = functional.max_pool2d(x[None, None], 2, return_indices=True)
    return functional.max_unpool2d(y, at, [2, 2])[0, 0]


def _attended(x: Tensor, s: State) -> Tensor:
    q = x.view(1, 2, ROWS // 2, COLS)
    drop = 0.2 if x.shape[0] > 4 else 0.0
    return functional.scaled_dot_product_attention(q, q.sin(), q, dropout_p=drop).view(ROWS, COLS)


def _single(x: Tensor, s: State) -> Tensor:
    return (x.float().exp() * 0.5).double().log1p()


def _complex(x: Tensor, s: State) -> Tensor:
    made: Tensor = torch.fft.ifft(torch.fft.fft(x, dim=0) * (1 + 0.5j), dim=0).real.clone()
    return made


def _masked(x: Tensor, s: State) -> Tensor:
    y = x.clone()
    y[x > 0] = 0.5
    return y + x


def _row_written(x: Tensor, s: State) -> Tensor:
    y = x * 2
    y[0] = x[1].sin()
    y[:, 1:3].mul_(x[:, :2].cos())
    return y


def _flat_written(x: Tensor, s: State) -> Tensor:
    y = x * 2
    flat = y.view(-1)
    flat[::2].add_(1)
    flat.sigmoid_()
    return y * x


def _twice_written(x: Tensor, s: State) -> Tensor:
    y = x.sin()
    z = y * y
    y.add_(x)  # y itself was not saved: its product with itself is read through z alone
    return z + y.tanh_()


def _buffer_read(x: Tensor, s: State) -> Tensor:
    return x * s.buffers[0].exp()


def _buffer_counted(x: Tensor, s: State) -> Tensor:
    y = x * s.buffers[0].sin()
    s.buffers[0].mul_(0.9).add_(0.05)
    return y.cos()


def _averaged(x: Tensor, s: State) -> Tensor:
    s.buffers[1].copy_(0.5 * s.buffers[1] + 0.5 * x.detach().tanh())
    return x + s.buffers[1].clone()


def _viewed_buffer(x: Tensor, s: State) -> Tensor:
    y = x + s.buffers[1].t().reshape(ROWS, COLS).cos()
    s.buffers[1].t()[0].zero_()
    return y.sin()


def _checkpointed(x: Tensor, s: State) -> Tensor:
    def inside(h: Tensor, w: Tensor) -> Tensor:
        return functional.dropout(functional.gelu(h @ w), 0.3).sin()

    y: Tensor = checkpoint(inside, x, s.weights[2], use_reentrant=False)
    return y


def _detached(x: Tensor, s: State) -> Tensor:
    return x * x.detach().exp().clamp(0, 2)


def _untracked(x: Tensor, s: State) -> Tensor:
    with torch.no_grad():
        scale = x.abs().mean() + functional.dropout(x, 0.5).mean()
    return x / (1 + scale.abs())


def _reported(x: Tensor, s: State) -> Tensor:
    s.more.append(x.argmax(1))
    s.more.append(x.t()[1:])
    return x.logsumexp(1, keepdim=True) - x


def _empty(x: Tensor, s: State) -> Tensor:
    none = x[:0].sin()
    return torch.cat([x.cos(), none], 0)


def _indexed(x: Tensor, s: State) -> Tensor:
    order = (x.detach()[:, 0] * 10).long().abs() % ROWS
    return x.index_select(0, order) + x.new_zeros(ROWS, COLS).index_add(0, order, x.sin())


def _solved(x: Tensor, s: State) -> Tensor:
    gram = s.weights[0] @ s.weights[0].t() + 4 * torch.eye(COLS, dtype=x.dtype)
    made: Tensor = torch.linalg.solve(gram, x.t()).t()
    return made


def _looped(x: Tensor, s: State) -> Tensor:
    for w in s.weights:
        x = (x @ w).tanh()
    return x


ONE: dict[str, Unary] = {
    "sin": lambda x, s: x.sin(),
    "gelu": lambda x, s: functional.gelu(x),
    "relu": lambda x, s: functional.relu(x),
    "sigmoid": lambda x, s: x.sigmoid(),
    "exp": lambda x, s: _stay(x).exp() / 8,
    "softmax": lambda x, s: x.softmax(1),
    "log_softmax": lambda x, s: x.log_softmax(0) / 4,
    "centred": lambda x, s: x - x.mean(0),
    "std": lambda x, s: x / (x.std(1, keepdim=True) + 1),
    "cumsum": lambda x, s: x.cumsum(1) / COLS,
    "cumprod": lambda x, s: _stay(x).cumprod(0).tanh(),
    "matmul": lambda x, s: x @ s.weights[0],
    "linear": lambda x, s: functional.linear(x, s.weights[1], s.weights[0][0]),
    "einsum": lambda x, s: torch.einsum("ij,kj->ik", x, s.weights[2]),
    "loop": _looped,
    "transposed": lambda x, s: x.t().contiguous().view(ROWS, COLS),
    "strided": lambda x, s: x.as_strided((ROWS, COLS), (1, ROWS)) * 1.5,
    "rolled": lambda x, s: x.roll(2, 1),
    "expanded": lambda x, s: x[:1].expand(ROWS, COLS) + x[:, :1].expand(ROWS, COLS),
    "padded": lambda x, s: functional.pad(x[1:], (0, 0, 1, 0)),
    "dropout": lambda x, s: functional.dropout(x, 0.4),
    "rand": lambda x, s: x * torch.rand_like(x),
    "bernoulli": lambda x, s: x * torch.bernoulli(x.sigmoid()),
    "uniform": lambda x, s: x + torch.empty_like(x).uniform_(),
    # AOTAutograd draws in another order than eager where the input is not contiguous
    "rrelu": lambda x, s: functional.rrelu(x.contiguous(), training=True),
    "chunks": _chunks,
    "unbound": _unbound,
    "topk": _topped,
    "sort": _sorted,
    "max": _best,
    "layer_norm": _normed,
    "batch_norm": _batch_normed,
    "conv": _conved,
    "pool": _pooled,
    "attention": _attended,
    "float32": _single,
    "complex": _complex,
    "masked": _masked,
    "row_written": _row_written,
    "flat_written": _flat_written,
    "buffer_read": _buffer_read,
    "buffer_counted": _buffer_counted,
    "averaged": _averaged,
    "viewed_buffer": _viewed_buffer,
    "checkpointed": _checkpointed,
    "detached": _detached,
    "untracked": _untracked,
    "reported": _reported,
    "empty": _empty,
    "indexed": _indexed,
    "solved": _solved,
}
TWO: dict[str, Binary] = {
    "add": lambda x, y, s: x + y,
    "mul": lambda x, y, s: _stay(x) * _stay(y),
    "maximum": lambda x, y, s: torch.maximum(x, y),
    "where": lambda x, y, s: torch.where(x > y, x.sin(), y),
    "gated": lambda x, y, s: x * y.sigmoid(),
    "product": lambda x, y, s: (x @ y.t()).softmax(1) @ y,
    "copied": lambda x, y, s: (x * 1).copy_(y.cos()) + x,
    "addcmul": lambda x, y, s: torch.addcmul(x, y.tanh(), y.sin(), value=0.1),
    "stacked": lambda x, y, s: torch.stack([x, y]).amax(0),
    "interleaved": lambda x, y, s: torch.cat([x, y], 1)[:, ::2],
}

Step = tuple[str, int, int]


@dataclass(frozen=True)
class Program:
    """Steps, each with the places of its arguments, counted back from the last value."""

    steps: tuple[Step, ...]

    def __call__(
        self, x: Tensor, y: Tensor, weights: list[Tensor], buffers: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """The loss, and further outputs."""
        state, made = State(weights, buffers, []), [x, y]
        unread: list[Tensor | None] = [x, y]
        for name, first, second in self.steps:
            at = len(made) - 1 - first % len(made)
            unread[at] = None
            if name in ONE:
                made.append(ONE[name](made[at], state))
            else:
                other = len(made) - 1 - second % len(made)
                unread[other] = None
                made.append(TWO[name](made[at], made[other], state))
            unread.append(made[-1])
        loss = x.new_zeros(())
        for end in unread:  # AOTAutograd drops what nothing reads, random draws included
            if end is not None:
                loss = loss + (end.cos() * end).sum()
        return loss, state.more


def arguments() -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Leaves x and y, three weights, two buffers."""
    torch.manual_seed(0)

    def leaf(*shape: int) -> Tensor:
        return (0.5 * torch.randn(shape, dtype=torch.float64)).requires_grad_()

    weights = [leaf(COLS, COLS) for _ in range(3)]
    buffers = [torch.rand(ROWS, COLS, dtype=torch.float64) for _ in range(2)]
    return leaf(ROWS, COLS), leaf(ROWS, COLS), weights, buffers


def outcome(run: Callable[..., tuple[Tensor, list[Tensor]]]) -> list[Tensor]:
    """All that a step of a program leaves behind: outputs, gradients, buffers, the random state."""
    x, y, weights, buffers = arguments()
    torch.manual_seed(1)
    loss, more = run(x, y, weights, buffers)
    loss.backward()
    grads = [a.grad for a in (x, y, *weights) if a.grad is not None]
    return [loss.detach(), *(m.detach() for m in more), *grads, *buffers, torch.rand(2)]


@st.composite
def programs(draw: st.DrawFn, most: int = 9) -> Program:
    """Programs of 2 to ``most`` steps, mostly deep ones."""
    names = st.sampled_from((*ONE, *TWO))
    near = st.sampled_from((0, 0, 0, 1, 2, 5))
    steps = draw(st.lists(st.tuples(names, near, near), min_size=2, max_size=most))
    return Program(tuple(steps))
