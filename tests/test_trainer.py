"""The Trainer of transformers within a budget, by a callback or by its loss compiled."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxremat
from fxremat.base.errors import OptionError
from tests.libraries import BATCH, LENGTH, WORDS, Results, assert_equal, assert_remat, gpt2, rows

pytestmark = pytest.mark.filterwarnings(
    "ignore",  # the libraries warn of what changes from version to version of theirs
    "error:the (step exceeds|model was compiled as)",  # but these are ours
)
CHECKPOINTING = {"activation_checkpointing": True}


def remat_of() -> Any:
    pytest.importorskip("transformers")
    from fxremat.integrations import transformers

    return transformers


def trainer(
    folder: Path,
    model: Any = None,
    callbacks: Sequence[Any] = (),
    arguments: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    transformers = pytest.importorskip("transformers")
    settings = {
        "max_steps": 2,
        "per_device_train_batch_size": BATCH,
        "learning_rate": 0.1,
        "optim": "sgd",  # so that parameters tell of gradients, not of their signs
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        **(arguments or {}),
    }
    data = {"train_dataset": rows(4 * BATCH), "eval_dataset": rows(BATCH), **more}
    return transformers.Trainer(
        gpt2() if model is None else model,
        transformers.TrainingArguments(str(folder), **settings),
        callbacks=list(callbacks),
        **data,
    )


def results(made: Any, **more: Any) -> Results:
    """Train; all losses that were logged, and the parameters."""
    torch.manual_seed(1)
    made.train(**more)
    logged = [r[k] for r in made.state.log_history for k in ("loss", "eval_loss") if k in r]
    return logged, [p.detach().clone() for p in made.model.parameters()]


BETWEEN = {"gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 1}
CASES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "with reentrant checkpointing": {
        **CHECKPOINTING,
        "activation_checkpointing_kwargs": {"use_reentrant": True},
    },
    "accumulating, evaluating between": BETWEEN,
    "with a smaller last batch": {"per_device_train_batch_size": 6, "max_steps": 4},
}


def check_case(arguments: dict[str, Any], folder: Path, plans: int = 1) -> None:
    shapes = []

    def note(prediction: Any) -> dict[str, float]:
        shapes.append(prediction.predictions.shape)
        return {}

    callback = remat_of().RematCallback(0.6, inner="eager")
    made = trainer(folder, callbacks=[callback], arguments=arguments, compute_metrics=note)
    ours = results(made)
    assert_equal(ours, results(trainer(folder, arguments=arguments)))

    assert len(callback.plans) == plans
    assert_remat(callback.plans[0])
    assert "forward" not in vars(made.model)
    # Evaluation gets the logits that training goes without.
    assert shapes == ([(BATCH, LENGTH, WORDS)] * 2 if "eval_steps" in arguments else [])


def test_callback_with_checkpointing_trains_as_without_it(tmp_path: Path) -> None:
    check_case(CHECKPOINTING, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_callback_trains_as_without_it(case: str, tmp_path: Path) -> None:
    check_case(CASES[case], tmp_path, plans=2 if "smaller" in case else 1)


def test_training_that_was_cut_off_is_resumed(tmp_path: Path) -> None:
    """With a new Trainer and a new plan; accumulating, evaluating and saving between."""
    remat = remat_of()
    arguments = {**BETWEEN, "max_steps": 3, "save_strategy": "steps", "save_steps": 1}
    plain = results(trainer(tmp_path / "plain", arguments=arguments))

    class CutOff(remat.RematCallback):  # type: ignore[name-defined,misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            if state.global_step == 2:
                raise KeyboardInterrupt

    first = trainer(tmp_path / "ours", callbacks=[CutOff(0.6, inner="eager")], arguments=arguments)
    with pytest.raises(KeyboardInterrupt):
        results(first)
    callback = remat.RematCallback(0.6, inner="eager")
    again = trainer(tmp_path / "ours", callbacks=[callback], arguments=arguments)
    assert_equal(results(again, resume_from_checkpoint=True), plain)
    assert len(plain[0]) == 6  # of training and of evaluation
    assert_remat(callback.plans[0])


def soft_loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    logits, after = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    total = nn.functional.cross_entropy(logits, after, reduction="sum", label_smoothing=0.2)
    loss: Tensor = total / num_items_in_batch
    return loss


def check_outside(folder: Path, arguments: dict[str, Any], more: dict[str, Any]) -> None:
    made = trainer(folder, arguments=arguments, **more)
    backend = remat_of().remat(made, 0.6, inner="eager")
    assert_equal(results(made), results(trainer(folder, arguments=arguments, **more)))
    (plan,) = backend.plans
    assert_remat(plan)


def test_label_smoothing(tmp_path: Path) -> None:
    check_outside(tmp_path, {"label_smoothing_factor": 0.2}, {})


@pytest.mark.slow
def test_a_loss_function_outside_the_model(tmp_path: Path) -> None:
    check_outside(tmp_path, {}, {"compute_loss_func": soft_loss})


@pytest.mark.slow
def test_remat_of_a_trainer_with_its_loss_in_the_model(tmp_path: Path) -> None:
    check_outside(tmp_path, CHECKPOINTING, {})


@pytest.mark.slow
def test_mixed_precision(tmp_path: Path) -> None:
    """Eager's autocast keeps casts of weights from the first use on, compiled code does not."""
    callback = remat_of().RematCallback(0.6, inner="eager")
    made = trainer(tmp_path, callbacks=[callback], arguments={"bf16": True})
    ours, theirs = results(made), results(trainer(tmp_path, arguments={"bf16": True}))
    assert ours[0] == pytest.approx(theirs[0], abs=2e-3)
    assert all(torch.allclose(a, b, atol=2e-3) for a, b in zip(ours[1], theirs[1], strict=True))
    assert len(callback.plans) == 1


@pytest.mark.slow
def test_training_again(tmp_path: Path) -> None:
    callback = remat_of().RematCallback(0.6, inner="eager")
    made, plain = trainer(tmp_path, callbacks=[callback]), trainer(tmp_path)
    for _ in range(2):
        assert_equal(results(made), results(plain))


class Small(nn.Module):
    """A model of one's own that returns logits too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.head(self.embed(input_ids).tanh())
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


def test_a_copy_made_while_training_has_its_own_weights(tmp_path: Path) -> None:
    callback = remat_of().RematCallback(inner="eager")
    model = Small()
    made = trainer(tmp_path, model, callbacks=[callback])
    callback.on_train_begin(made.args, made.state, made.control, model=model)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.head.weight.mul_(3)
    batch = torch.utils.data.default_collate(rows(BATCH))
    for one in (model, other):
        wanted = Small.forward(one, **batch)
        assert torch.equal(one(**batch)["loss"], wanted["loss"])
        assert torch.equal(one.eval()(**batch)["logits"], wanted["logits"])
        one.train()
    assert not torch.equal(model(**batch)["loss"], other(**batch)["loss"])


@pytest.mark.slow
def test_logits_that_are_returned_cost_two_of_their_size() -> None:
    """Why the callback returns the loss alone: they are held, and get a gradient of zeros."""
    model = gpt2()
    model.loss_type = "ForCausalLM"
    batch = torch.utils.data.default_collate(rows(BATCH))
    peaks = []
    for pick in (lambda made: made, lambda made: made.loss):
        backend = fxremat.backend(inner="eager")
        run = torch.compile(
            lambda pick=pick: pick(model(**batch, use_cache=False)), backend=backend
        )
        run()
        peaks.append(backend.plans[0].baseline_peak)
    logits = BATCH * LENGTH * WORDS * 4
    assert peaks[0] - peaks[1] == 2 * logits


def test_what_compiles_as_well_is_refused(tmp_path: Path) -> None:
    remat = remat_of()
    with pytest.raises(OptionError, match=r"torch_compile=True.*'aot_eager'"):
        trainer(
            tmp_path,
            callbacks=[remat.RematCallback(0.6)],
            arguments={"torch_compile_backend": "aot_eager"},
        )
    in_place = gpt2()
    in_place.compile(backend="eager")
    with pytest.raises(OptionError, match="compiled already"):
        trainer(tmp_path, in_place, callbacks=[remat.RematCallback(0.6)]).train()
    with pytest.raises(OptionError, match="compiled already"):
        remat.remat(trainer(tmp_path, torch.compile(gpt2(), backend="eager")), 0.6)
    with pytest.raises(OptionError, match="keep one"):
        remat.remat(trainer(tmp_path, callbacks=[remat.RematCallback(0.6)]), 0.6)
    twice = trainer(tmp_path)
    remat.remat(twice, 0.6)
    with pytest.raises(OptionError, match="once"):
        remat.remat(twice, 0.6)


def test_accelerate_refuses_the_name(tmp_path: Path) -> None:
    """When it no longer does, say so in docs/libraries.md."""
    with pytest.raises(ValueError, match="not a valid DynamoBackend"):
        trainer(tmp_path, arguments={"torch_compile_backend": "fxremat"})


def test_several_gpus_in_one_process_are_refused(tmp_path: Path) -> None:
    remat, made = remat_of(), trainer(tmp_path)
    made.args._n_gpu = 2
    with pytest.raises(OptionError, match=r"2 GPUs in one process.*torchrun"):
        remat.remat(made, 0.6)


def test_label_smoothing_is_refused_by_the_callback(tmp_path: Path) -> None:
    callback = remat_of().RematCallback(0.6, inner="eager")
    with pytest.raises(OptionError, match=r"label_smoothing_factor=0.2.*remat\(trainer"):
        trainer(tmp_path, callbacks=[callback], arguments={"label_smoothing_factor": 0.2})


def test_a_loss_outside_is_refused_by_the_callback(tmp_path: Path) -> None:
    class Logits(Small):
        def forward(self, input_ids: Tensor, labels: Any = None) -> dict[str, Tensor]:
            return {"logits": self.head(self.embed(input_ids))}

    callback = remat_of().RematCallback(1.0, inner="eager")
    made = trainer(tmp_path, Logits(), callbacks=[callback], compute_loss_func=soft_loss)
    with pytest.raises(OptionError, match=r"returns no loss.*remat\(trainer"):
        made.train()


@pytest.mark.parametrize("how", ["['logits']", "[0]", ".logits", ".get('logits')"])
def test_asking_for_logits_says_where_they_went(how: str) -> None:
    outputs = remat_of().LossOnly(loss=torch.tensor(1.0))
    assert outputs.loss is outputs["loss"] is outputs.get("loss")
    with pytest.raises((KeyError, AttributeError), match="returns only its loss"):
        eval(f"outputs{how}")


def test_options_are_checked_at_once() -> None:
    with pytest.raises(OptionError, match="did you mean 'effort'"):
        remat_of().RematCallback(0.5, efort=1)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "fxremat.integrations.transformers"
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError, match=r"needs transformers.*pip install 'fxremat\[libraries\]"):
        importlib.import_module(name)


class Broken(Small):
    """Two graphs, with a break between them."""

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        hidden = self.embed(input_ids).tanh()
        torch._dynamo.graph_break()
        logits = self.head(hidden).flatten(0, 1)
        return {"loss": nn.functional.cross_entropy(logits, labels.flatten())}


def test_a_model_that_breaks_is_told_of(tmp_path: Path) -> None:
    callback = remat_of().RematCallback(1.0, inner="eager")
    with pytest.warns(UserWarning, match="compiled as 2 graphs.*TORCH_LOGS=graph_breaks"):
        trainer(tmp_path, Broken(), callbacks=[callback]).train()


def test_a_budget_in_bytes_may_be_for_several_graphs(tmp_path: Path) -> None:
    callback = remat_of().RematCallback("1MiB", inner="eager")
    trainer(tmp_path, Broken(), callbacks=[callback]).train()
    assert len(callback.plans) == 2
