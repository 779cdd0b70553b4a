"""What a training step holds besides activations: parameters, gradients, optimizer state.

The state of an optimizer is not guessed from its name. The optimizer is made over tensors without
data, takes two steps there, and its state and the temporaries of the second step are added up. One
that reads values takes its steps over real tensors, one parameter of each size at a time.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fxremat.base.errors import OptionError
from fxremat.costs.tensor_meta import storage_bytes
from fxremat.problem.context import Resident
from passes.torch_internals import StorageWeakRef, storage_key

__all__ = ["Optimizer", "resident"]

Optimizer = str | type[torch.optim.Optimizer] | Callable[[list[nn.Parameter]], Any] | None


def resident(
    module: nn.Module,
    arguments: object,
    optimizer: Optimizer = None,
    *,
    rounding: int = 1,
    foreach: bool = False,
    accumulates: bool = False,
) -> Resident:
    """Add up what a step holds besides the peak of its plan.

    Args:
        module: with real, "meta" or fake tensors.
        arguments: what the module is called with, nested.
        optimizer: a class, its name in ``torch.optim``, a callable that takes the list of
            parameters and returns an optimizer, or None for none.
        rounding: granularity of the allocator in bytes.
        foreach: whether the optimizer updates all parameters at once where it can choose, as torch
            does on GPUs.
        accumulates: gradients of earlier steps are there while a step runs.

    Raises:
        OptionError: for an optimizer that is none of these, or that cannot be tried out.
    """
    trained = [p for p in module.parameters() if p.requires_grad]
    state, peak, name = 0, 0, ""
    if optimizer is not None:
        state, peak, name = _optimizer(trained, optimizer, rounding, foreach)
    return Resident(
        parameters=_sum(module.parameters(), rounding),
        buffers=_sum(module.buffers(), rounding),
        inputs=_sum(_tensors(arguments), rounding),
        gradients=sum(storage_bytes(torch.empty_like(p, device="meta"), rounding) for p in trained),
        optimizer=state,
        optimizer_peak=peak,
        optimizer_name=name,
        accumulates=accumulates,
    )


def _optimizer(
    trained: list[nn.Parameter], spec: Optimizer, rounding: int, foreach: bool
) -> tuple[int, int, str]:
    """Bytes of an optimizer's state, of its step's temporaries, and its name."""
    make = _maker(spec)
    if not trained:
        raise OptionError("optimizer: the module has no parameters to train; leave it out")
    try:
        bare = [nn.Parameter(torch.empty_like(p, device="meta")) for p in trained]
        try:
            return _tried(make, bare, rounding, foreach)
        except RuntimeError:  # it reads values, as Adafactor does
            return _one_by_one(make, trained, rounding)
    except Exception as error:
        raise OptionError(
            f"optimizer={spec!r}: it cannot be tried out ({error}); give None and add its state by "
            "hand"
        ) from error


def _one_by_one(
    make: Callable[[list[nn.Parameter]], Any], trained: list[nn.Parameter], rounding: int
) -> tuple[int, int, str]:
    """The same with real tensors, for one parameter of each size at a time."""
    alike = Counter((tuple(p.shape), p.dtype) for p in trained)
    state, peak, name = 0, 0, ""
    for (shape, dtype), count in alike.items():
        one = nn.Parameter(torch.zeros(shape, dtype=dtype, device="cpu"))
        own, most, name = _tried(make, [one], rounding, False)
        state, peak = state + count * own, max(peak, most)
    return state, peak, name


def _tried(
    make: Callable[[list[nn.Parameter]], Any],
    parameters: list[nn.Parameter],
    rounding: int,
    foreach: bool,
) -> tuple[int, int, str]:
    for parameter in parameters:
        parameter.grad = torch.empty_like(parameter).zero_()
    made = make(parameters)
    for group in made.param_groups:
        if foreach and "foreach" in group and group["foreach"] is None:
            group["foreach"] = not group.get("fused")
    made.step()
    watch = _Allocations(rounding)
    with watch:
        made.step()
    state = list(_tensors(list(made.state.values())))
    return _sum(state, rounding), watch.peak, type(made).__name__


def _maker(spec: Optimizer) -> Callable[[list[nn.Parameter]], Any]:
    if isinstance(spec, str):
        classes = {
            name.lower(): kind
            for name, kind in vars(torch.optim).items()
            if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
        }
        del classes["optimizer"]
        if spec.lower() not in classes:
            near = difflib.get_close_matches(spec.lower(), classes, n=1, cutoff=0)[0]
            raise OptionError(
                f"optimizer={spec!r}: not in torch.optim; did you mean {classes[near].__name__!r}? "
                "Give a name, a class, or a callable that takes the parameters"
            )
        spec = classes[spec.lower()]
    if not callable(spec):
        raise OptionError(
            f"optimizer={spec!r}: a {type(spec).__name__} is none; give a name such as 'AdamW', a "
            "class, or a callable that takes the parameters"
        )
    return spec


class _Allocations(TorchDispatchMode):
    """Follows the bytes of new storages; ``peak`` is the most that were there at once."""

    def __init__(self, rounding: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._rounding = rounding
        self._live: dict[int, tuple[Any, int]] = {}  # by key: the storage, held weakly; its bytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self._live = {k: (ref, n) for k, (ref, n) in self._live.items() if not ref.expired()}
        given = {storage_key(t) for t in _tensors((args, kwargs))}
        made = func(*args, **(kwargs or {}))
        for tensor in _tensors(made):
            key = storage_key(tensor)
            if key not in given:
                held = StorageWeakRef(tensor.untyped_storage())
                self._live[key] = held, storage_bytes(tensor, self._rounding)
        self.peak = max(self.peak, sum(n for _, n in self._live.values()))
        return made


def _tensors(nested: object) -> Iterator[torch.Tensor]:
    return (t for t in pytree.tree_leaves(nested) if isinstance(t, torch.Tensor))


def _sum(tensors: Iterable[torch.Tensor], rounding: int) -> int:
    """Bytes of the storages of tensors, each once."""
    return sum({storage_key(t): storage_bytes(t, rounding) for t in tensors}.values())
