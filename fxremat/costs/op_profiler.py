"""Running single ops on made-up tensors: the bytes they hold meanwhile, and their time.

On CPU the allocator's events are read from one profiler session over all ops, with an allocation
of a distinctive size before and after each to tell them apart; ``torch.autograd.profiler`` starts
in milliseconds where ``torch.profiler`` takes a second. On CUDA the caching allocator keeps the
peak itself; reading it resets the peak statistics of the device.

Nothing else of the caller's state moves: random numbers, gradient mode, autocast, fake modes.
Random ops draw from a copy of the generator's state.
"""

from __future__ import annotations

import gc
import statistics
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd.profiler import profile
from torch.fx import Node

from fxremat.costs.devices import seconds_of
from fxremat.costs.tensor_meta import (
    hint,
    layout,
    outside_fakes,
    span,
    storage_bytes,
    values_given,
)
from passes.node_utils import tensors_in
from passes.torch_internals import storage_key

__all__ = ["Measurement", "run_all"]

# Allocated and freed before and after each op. Odd, so that no tensor of wider elements than
# bytes has this size.
SENTINEL = 1_000_003
TILE = 4096


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run of an op was seen to do.

    Attributes:
        workspace: bytes held at the peak beyond inputs and outputs.
        seconds: median time of three runs, or None where it was not timed.
        out_bytes: bytes of each new storage among the outputs, in order; empty where they are
            taken to be as traced, since the op was not run.
        known: False if the workspace is a guess: the op could not be run, or it holds more or less
            for other values of its inputs.
    """

    workspace: int
    seconds: float | None = None
    out_bytes: tuple[int, ...] = ()
    known: bool = True


def run_all(
    todo: Mapping[str, Node], device: torch.device, *, timed: bool = False
) -> dict[str, Measurement]:
    """Run each node's op, inputs made and freed one op at a time; what fails is left out.

    Args:
        todo: nodes by signature; their ops must not write into their inputs.
        device: where to run; on CPU no profiler may be running.
        timed: time each op as well, in runs of their own.
    """
    with _quiet(device):
        spent = {key: _time(node, device) if timed else None for key, node in todo.items()}
        seen = _on_cuda(todo, device) if device.type == "cuda" else _on_cpu(todo, device)
    return {key: replace(found, seconds=spent[key]) for key, found in seen.items()}


@contextmanager
def _quiet(device: torch.device) -> Iterator[None]:
    """Real tensors, the random state put back, no warnings."""
    cuda = [device] if device.type == "cuda" else []
    with outside_fakes(), torch.random.fork_rng(devices=cuda), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage is collected while one op runs: that would free other people's tensors."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _on_cpu(todo: Mapping[str, Node], device: torch.device) -> dict[str, Measurement]:
    """Workspace and output bytes of each op that ran, from one profiler session.

    The first run of an op holds what later ones do (seen on convolutions, norms and attention),
    so there is no run to warm up.
    """
    ran: list[tuple[str, tuple[int, ...] | None]] = []
    with profile(use_kineto=True, profile_memory=True) as session:
        for key, node in todo.items():
            call = _prepare(node, device)
            if call is not None:
                with _uncollected():
                    _mark()
                    made = call.attempt()
                    _mark()
                ran.append((key, call.new_bytes(made)))
                del made
    records = session.kineto_results.events()
    memory = [(e.start_ns(), e.nbytes()) for e in records if e.name() == "[memory]"]
    spaces = _spaces([size for _, size in sorted(memory, key=lambda m: m[0])])
    if len(spaces) != len(ran):  # some op allocates as much as a sentinel
        return {}
    pairs = zip(ran, spaces, strict=True)
    return {k: Measurement(space, None, out) for (k, out), space in pairs if out is not None}


def _mark() -> None:
    torch.empty(SENTINEL, dtype=torch.uint8, device="cpu")


def _spaces(sizes: list[int]) -> list[int]:
    """Workspaces from a list of allocations (positive) and frees, two sentinels around each op."""
    found: list[int] = []
    level = peak = 0
    inside = False
    for size in sizes:
        if size == SENTINEL:
            if inside:
                found.append(peak - level)
            inside, level, peak = not inside, 0, 0
        elif size != -SENTINEL:
            level += size
            peak = max(peak, level)
    return found


def _on_cuda(todo: Mapping[str, Node], device: torch.device) -> dict[str, Measurement]:
    """Workspace and output bytes of each op that ran, from the caching allocator's peak.

    Each op runs once before: libraries keep what they allocate on first use.
    """
    seen = {}
    for key, node in todo.items():
        call = _prepare(node, device)
        if call is None or call.attempt() is None:
            continue
        torch.cuda.synchronize(device)
        with _uncollected():
            torch.cuda.reset_peak_memory_stats(device)
            made = call.attempt()
            torch.cuda.synchronize(device)
            space = torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device)
        out = call.new_bytes(made)
        if out is not None:
            seen[key] = Measurement(space, None, out)
        del made
    return seen


def _time(node: Node, device: torch.device) -> float | None:
    """Median of three runs in seconds after one that does not count; None if the op fails."""
    call = _prepare(node, device)
    if call is None or call.attempt() is None:
        return None
    return statistics.median(seconds_of(call.attempt, device))


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of an op on made-up inputs."""

    target: Any
    args: Any
    kwargs: Any

    def attempt(self) -> tuple[Any, ...] | None:
        """The op's result in a tuple, or None if it fails.

        An op may raise anything at inputs that it was not meant for; it is estimated then.
        """
        try:
            return (self.target(*self.args, **self.kwargs),)
        except Exception:
            return None

    def new_bytes(self, made: tuple[Any, ...] | None) -> tuple[int, ...] | None:
        """Bytes of each storage among the outputs that is not an input's."""
        if made is None:
            return None
        old = {storage_key(t) for t in tensors_in((self.args, self.kwargs))}
        new = {storage_key(t): storage_bytes(t) for t in tensors_in(made)}
        return tuple(size for key, size in new.items() if key not in old)


def _prepare(node: Node, device: torch.device) -> _Call | None:
    """Make up inputs; None if that fails, for instance for want of memory."""
    made: dict[int, torch.Tensor] = {}  # by identity, so that what is given twice is made once

    def real(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in made:
                made[id(value)] = _tensor(value, device)
            return made[id(value)]
        return hint(value) if isinstance(value, torch.SymInt) else value

    try:
        return _Call(node.target, *values_given(node, real))
    except RuntimeError:
        return None


def _tensor(fake: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A real tensor of the same layout: floats in (0.1, 1), integers 0 (a valid index), bools."""
    size, stride, offset, count = layout(fake)
    count = max(count, offset + span(size, stride))
    flat = torch.empty(count, dtype=fake.dtype, device=device)
    if fake.dtype.is_floating_point or fake.dtype.is_complex or fake.dtype is torch.bool:
        _fill(flat)
    else:
        flat.zero_()
    return flat.as_strided(size, stride, offset)


def _fill(flat: torch.Tensor) -> None:
    """Random numbers, repeated every few thousand: to draw all would take longer than the op."""
    own = torch.Generator().manual_seed(0)
    drawn = torch.rand(TILE, generator=own, device="cpu")
    tile = drawn > 0.5 if flat.dtype is torch.bool else drawn * 0.9 + 0.1
    tile = tile.to(device=flat.device, dtype=flat.dtype)
    whole = flat.numel() // TILE * TILE
    flat[:whole].view(-1, TILE).copy_(tile)
    flat[whole:].copy_(tile[: flat.numel() - whole])
