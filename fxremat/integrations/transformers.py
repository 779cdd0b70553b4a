"""A memory budget for the ``Trainer`` of Hugging Face transformers, in one line.

::

    trainer = Trainer(model, args, train_dataset=data, callbacks=[RematCallback("6GiB")])

It takes the place of ``activation_checkpointing=True`` (``gradient_checkpointing=True`` in older
versions). While the Trainer trains, the model's forward and the loss in it run as one compiled
graph that returns the loss alone. Evaluation and generation run the model as it is.

``torch_compile_backend="fxremat"`` does not work: accelerate accepts only backends that it knows.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from fxremat.backends.backend import Backend, backend
from fxremat.base.budget import BudgetLike
from fxremat.base.errors import OptionError
from fxremat.options import BackendOptions
from fxremat.plans.plan import Plan
from passes.torch_internals import is_compiled

try:
    from transformers import (
        PreTrainedModel,
        Trainer,
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )
except ImportError as error:
    raise ImportError(
        f"fxremat.integrations.transformers needs transformers, which cannot be imported ({error}):"
        " pip install 'fxremat[libraries]'"
    ) from error

__all__ = ["LossOnly", "RematCallback", "remat"]

Call = Callable[..., Any]
REMEDY = (
    "use fxremat.integrations.transformers.remat(trainer, budget) instead of RematCallback: it "
    "compiles trainer.compute_loss, with the model in it"
)


class RematCallback(TrainerCallback):
    """Keep the peak of a training step within a budget.

    Attributes:
        backend: the backend; its ``plans`` say what was decided.
        dynamic: as given.

    Args:
        budget: as for :func:`fxremat.backend`.
        dynamic: as for :func:`torch.compile`. Plans are made for the first shape seen; ``False``
            makes one for each shape.
        options: as for :func:`fxremat.backend`.

    Raises:
        OptionError: if an option makes no sense; when the Trainer is made or begins to train, if
            something else compiles the model, several GPUs share one process, or the loss is
            computed outside of the model.
        BudgetError: if the budget makes no sense.

    Example:
        >>> RematCallback(0.5, inner="eager").backend
        fxremat.backend(50% of the baseline peak, plans=0)
    """

    def __init__(
        self,
        budget: BudgetLike = None,
        *,
        dynamic: bool | None = None,
        **options: Unpack[BackendOptions],
    ) -> None:
        self.backend: Backend = backend(budget, **options)
        self.dynamic = dynamic
        self._put_back: Callable[[], None] = _nothing

    @property
    def plans(self) -> list[Plan]:
        """One plan for each graph compiled so far; training again compiles again."""
        return self.backend.plans

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any
    ) -> None:
        """Refuse what cannot be had before anything runs."""
        _check_arguments(args, loss_in_model=True)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **rest: Any,
    ) -> None:
        """Compile the model's forward, in place."""
        assert model is not None  # the Trainer gives it
        _check_arguments(args, loss_in_model=True)
        self._take_back()  # training before may have ended in an error
        _check_model(model)
        _resolve_loss(model)
        self._put_back = _compile_forward(model, self.backend, self.dynamic)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any
    ) -> None:
        """Give the model its own forward back."""
        self._take_back()

    def _take_back(self) -> None:
        put_back, self._put_back = self._put_back, _nothing
        put_back()


def remat(
    trainer: Trainer,
    budget: BudgetLike = None,
    *,
    dynamic: bool | None = None,
    **options: Unpack[BackendOptions],
) -> Backend:
    """Keep the peak of a step within a budget where the loss is computed outside the model.

    For label smoothing, ``compute_loss_func``, or a ``compute_loss`` of your own:
    ``trainer.compute_loss`` is compiled, with the model in it. For good: training again needs no
    second call.

    Args:
        trainer: what will train.
        budget: as for :func:`fxremat.backend`.
        dynamic: as for :class:`RematCallback`.
        options: as for :func:`fxremat.backend`.

    Returns:
        The backend; its ``plans`` say what was decided.

    Raises:
        OptionError: if an option makes no sense, something else compiles the model, several GPUs
            share one process, or the Trainer has a budget already.
        BudgetError: if the budget makes no sense.
    """
    model = trainer.model
    assert model is not None  # it is None only while the Trainer is being made
    _check_arguments(trainer.args)
    _check_model(model)
    if any(isinstance(c, RematCallback) for c in trainer.callback_handler.callbacks):
        raise OptionError("remat(trainer) and RematCallback were both given; keep one of them")
    if "compute_loss" in vars(trainer):
        raise OptionError("trainer.compute_loss was replaced already; call remat(trainer) once")
    made = backend(budget, **options)
    compute = trainer.compute_loss
    run = _compiled(lambda m, inputs, n: compute(m, inputs, num_items_in_batch=n), made, dynamic)

    @functools.wraps(compute)
    def compute_loss(
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        if return_outputs or not _trains(model):
            return compute(model, inputs, return_outputs, num_items_in_batch)
        return run(model, inputs, num_items_in_batch)

    trainer.compute_loss = compute_loss  # type: ignore[method-assign]
    _resolve_loss(model)
    return made


class LossOnly(dict[str, Tensor]):
    """The outputs of a model, of which only the loss is there.

    Others would be held to the end of the step, and get a gradient of zeros there. For logits these
    are two tensors of batch x length x vocabulary.

    Raises:
        KeyError: if another output is asked for as an item; the message says why it is missing.
        AttributeError: the same for an attribute.
    """

    def __missing__(self, name: object) -> Any:
        raise KeyError(_not_returned(name))

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(_not_returned(name))

    def get(self, name: str, default: Any = None) -> Any:
        """The loss; ``default`` is not heeded, so that logits do not come out as None."""
        return self[name]


def _not_returned(name: object) -> str:
    return (
        f"{name!r}: while RematCallback is at work, the model returns only its loss in training, "
        f"since other outputs would be held to the end of the step. Where they are needed, {REMEDY}"
    )


def _loss_of(outputs: Any) -> Tensor:
    """The loss, from where a Trainer takes it among a model's outputs: "loss", or the first."""
    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs[0]
    if not isinstance(loss, Tensor) or loss.ndim:
        raise OptionError(
            "the model returns no loss, so it is computed outside of it, where the budget would "
            f"not count what it holds; {REMEDY}"
        )
    return loss


def _nothing() -> None:
    pass


def _trains(model: nn.Module) -> bool:
    return model.training and torch.is_grad_enabled()


def _compile_forward(
    model: nn.Module, backend: Backend, dynamic: bool | None
) -> Callable[[], None]:
    """Let the instance return its loss from compiled code; what is returned takes that back.

    The new forward is bound, so that a copy of the model (an average of the weights, say) runs with
    the weights of the copy.
    """
    before = vars(model).get("forward")  # None is the forward of the class
    function = _unbound_forward(model)
    run = _compiled(lambda *args, **kwargs: _loss_of(function(*args, **kwargs)), backend, dynamic)

    @functools.wraps(function)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not _trains(self):
            return function(self, *args, **kwargs)
        return LossOnly(loss=run(self, *args, **kwargs))

    def put_back() -> None:
        if before is None:
            del model.forward
        else:
            model.forward = before

    model.forward = types.MethodType(forward, model)
    return put_back


def _unbound_forward(model: nn.Module) -> Call:
    """The model's forward as a function whose first argument is the model."""
    forward: Any = model.forward
    if getattr(forward, "__self__", None) is model:
        function: Call = forward.__func__
        return function
    return lambda _, *args, **kwargs: forward(*args, **kwargs)


def _compiled(function: Call, backend: Backend, dynamic: bool | None) -> Call:
    """A compiled function that warns if its first call makes several graphs of a fraction."""
    compiled = torch.compile(function, backend=backend, dynamic=dynamic)
    started = False

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal started
        before = len(backend.plans)
        made = compiled(*args, **kwargs)
        count = len(backend.plans) - before
        if not started and count > 1 and backend.options.budget.fraction is not None:
            warnings.warn(
                f"the model was compiled as {count} graphs: a budget of {backend.options.budget} "
                "is meant for each of them, not for the step; give one in bytes, or find the "
                "breaks with TORCH_LOGS=graph_breaks",
                stacklevel=2,
            )
        started = True
        return made

    return run


def _check_arguments(args: TrainingArguments, loss_in_model: bool = False) -> None:
    if args.torch_compile:
        raise OptionError(
            f"torch_compile=True (backend {args.torch_compile_backend!r}) and fxremat would both "
            "compile the model; leave torch_compile out. What compiles the graphs after planning "
            "is fxremat's option inner='inductor' or 'eager'"
        )
    if args.n_gpu > 1:
        raise OptionError(
            f"{args.n_gpu} GPUs in one process make the Trainer use DataParallel, whose copies of "
            "the model would all run with the weights of one; start a process for each GPU, with "
            "torchrun, or show this one a single GPU with CUDA_VISIBLE_DEVICES"
        )

    if loss_in_model and args.label_smoothing_factor:
        raise OptionError(
            f"label_smoothing_factor={args.label_smoothing_factor} makes the Trainer compute the "
            f"loss outside of the model, where the budget would not count what it holds; {REMEDY}"
        )


def _check_model(model: nn.Module) -> None:
    if is_compiled(model):
        raise OptionError(
            "the model is compiled already; give the Trainer the model that was not, and fxremat "
            "compiles it when training begins"
        )


def _resolve_loss(model: nn.Module) -> None:
    """Let a model look up its loss function now: it may log while it does, and break the graph."""
    if isinstance(model, PreTrainedModel):
        model.loss_function = model.loss_function
