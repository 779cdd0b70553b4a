"""Steps with accelerate, Lightning and diffusers, and what the examples of libraries measure."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import fxremat
from tests.libraries import BATCH, Results, assert_equal, assert_remat, gpt2, rows

pytestmark = pytest.mark.filterwarnings(
    "ignore",  # the libraries warn of what changes from version to version of theirs
    "error:the (step exceeds|model was compiled as)",  # but these are ours
)


BOTH = [False, pytest.param(True, marks=pytest.mark.slow)]


@pytest.mark.parametrize("checkpointing", BOTH)
def test_accelerate(checkpointing: bool) -> None:
    accelerate = pytest.importorskip("accelerate")
    batch = torch.utils.data.default_collate(rows(BATCH))

    def train(backend: Any) -> Results:
        accelerator = accelerate.Accelerator(cpu=True)
        model = gpt2().train()
        model.loss_type = "ForCausalLM"
        if checkpointing:
            model.activation_checkpointing_enable()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = accelerator.prepare(model, optimizer)

        def run() -> Any:
            return model(**batch, use_cache=False).loss

        if backend is not None:
            run = torch.compile(run, backend=backend)
        losses = []
        torch.manual_seed(1)
        for _ in range(3):
            loss = run()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses, [p.detach().clone() for p in model.parameters()]

    backend = fxremat.backend(0.6, inner="eager")
    assert_equal(train(backend), train(None))
    (plan,) = backend.plans
    assert_remat(plan)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_lightning(checkpointing: bool) -> None:
    pytest.importorskip("lightning")
    import lightning_module as example

    x = torch.randn(3 * 32, 16, generator=torch.Generator().manual_seed(0))
    data = torch.utils.data.TensorDataset(x, x.roll(1, 1))

    def train(backend: Any) -> Results:
        torch.manual_seed(0)
        net = example.Net(4, 16, checkpointing=checkpointing, backend=backend)
        losses = example.fit(net, data, 32)
        return losses, [p.detach().clone() for p in net.parameters()]

    backend = fxremat.backend(0.6, inner="eager")
    assert_equal(train(backend), train(None))
    (plan,) = backend.plans
    assert_remat(plan)


def test_compiling_after_lightning_is_imported() -> None:
    """It makes torch.compile keep a deep copy of what it is given."""
    pytest.importorskip("lightning")
    backend = fxremat.backend(0.9, inner="eager")
    net = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(6)))
    torch.compile(net, backend=backend)(torch.randn(64, 8)).sum().backward()
    assert len(backend.plans) == 1


@pytest.mark.parametrize("checkpointing", BOTH)
def test_diffusers(checkpointing: bool) -> None:
    pytest.importorskip("diffusers")
    import diffusion as example

    torch.manual_seed(0)
    unet = example.make_unet(8, 8)
    if checkpointing:
        unet.enable_gradient_checkpointing()
    noisy, noise = torch.randn(8, 3, 8, 8), torch.randn(8, 3, 8, 8)
    times = torch.arange(8)
    loss = functools.partial(example.loss_of(unet), noisy, noise, times)

    def step(run: Any) -> Results:
        unet.zero_grad()
        losses = [run(), run()]
        sum(losses).backward()
        grads = [p.grad for p in unet.parameters() if p.grad is not None]
        return [value.item() for value in losses], [g.clone() for g in grads]

    backend = fxremat.backend(0.7, inner="eager")
    assert_equal(step(torch.compile(loss, backend=backend)), step(loss))
    (plan,) = backend.plans
    assert_remat(plan)


# ------------------------------------------------------------------------------------------- peaks

LIBRARIES = ("transformers.trainer", "lightning", "diffusers.models.unets.unet_2d")
SMALL = ["--steps=2", "--pairs=0"]
GPT = ["--layers=2", "--width=32", "--length=16", "--batch=4", *SMALL]
HUGGINGFACE = [*GPT, "--words=64"]
UNET = ["--size=8", "--width=8", "--batch=8", *SMALL]
LIGHTNING = ["--depth=8", "--width=16", "--batch=256", *SMALL]


@pytest.fixture(scope="module")
def _one_thread() -> Iterator[None]:
    """Children have one thread, as the tests have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


def measured(name: str, arguments: Sequence[str], budget: str = "0.6") -> Any:
    """A row of an example's table, from a process that has profiled nothing else."""
    import sidebyside

    example = importlib.import_module(name)
    train = functools.partial(example.train, example.parse(arguments))
    return sidebyside.in_process(train, sidebyside.Way(budget=budget), LIBRARIES)


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize(
    ("library", "example", "arguments", "beside"),
    [
        # accelerate divides the loss once more, outside of what is compiled
        ("transformers", "huggingface", HUGGINGFACE, 4),
        ("lightning", "lightning_module", LIGHTNING, 0),
        pytest.param("diffusers", "diffusion", UNET, 0, marks=pytest.mark.slow),
        pytest.param("accelerate", "accelerate_loop", GPT, 0, marks=pytest.mark.slow),
        pytest.param(
            "transformers",
            "huggingface",
            [*HUGGINGFACE, "--model=gpt2"],
            4,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_peak_is_the_predicted_one(
    library: str, example: str, arguments: list[str], beside: int
) -> None:
    pytest.importorskip(library)
    row = measured(example, arguments)
    assert row.peak == row.predicted + beside
    assert row.predicted <= row.budget


@pytest.mark.slow
@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize(
    ("library", "name", "arguments"),
    [
        ("transformers", "huggingface", HUGGINGFACE),
        ("accelerate", "accelerate_loop", GPT),
        ("lightning", "lightning_module", LIGHTNING),
        ("diffusers", "diffusion", UNET),
    ],
)
def test_examples_compare(
    library: str, name: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(library)
    example = importlib.import_module(name)
    assert example.main([*arguments, "--pairs=1"]) == 0
    table, closing = capsys.readouterr().out.strip().rsplit("\n", 1)
    lines = [line.split() for line in table.splitlines()[-4:]]
    assert [line[0] for line in lines] == ["eager", "checkpointing", "fxremat", "fxremat"]
    assert len({line[-1] for line in lines}) == 1  # the losses
    assert float(lines[0][1]) > float(lines[1][1])
    assert closing.startswith("In short: ")
