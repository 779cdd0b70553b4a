"""What a model returns while it trains within a budget: its loss, and nothing beside it.

Other outputs would be held to the end of the step, and get a gradient of zeros there. For logits
these are two tensors of batch x length x vocabulary.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fxremat.base.errors import OptionError

__all__ = ["REMEDY", "LossOnly", "loss_of"]

REMEDY = (
    "use fxremat.integrations.transformers.remat(trainer, budget) instead of RematCallback: it "
    "compiles trainer.compute_loss, with the model in it"
)


class LossOnly(dict[str, Tensor]):
    """The outputs of a model, of which only the loss is there.

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


def loss_of(outputs: Any) -> Tensor:
    """The loss among the outputs of a model, from where a Trainer takes it: "loss", or the first.

    Raises:
        OptionError: if there is none.
    """
    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs[0]
    if not isinstance(loss, Tensor) or loss.ndim:
        raise OptionError(
            "the model returns no loss, so it is computed outside of it, where the budget would "
            f"not count what it holds; {REMEDY}"
        )
    return loss
