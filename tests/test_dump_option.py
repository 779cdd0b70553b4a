"""``backend(dump=...)``: each graph that is compiled leaves what can be shown of it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fxremat
from fxremat.base.errors import OptionError
from fxremat.plans.plan import Plan
from tests.steps import Blocks, blocks

DRAWN = [f"{n}.{e}" for n in ("joint", "network", "forward", "backward") for e in ("dot", "svg")]
FILES = {*DRAWN, "plan.json", "plan.txt", "report.html", "timeline.svg", "frontier.png"}
TEXTS = {"joint.txt", "forward.txt", "backward.txt"}


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = blocks()[0], nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        loss: Tensor = self.first(x)
        torch._dynamo.graph_break()
        made: Tensor = loss * self.second(x).tanh().mean()
        return made


def trained(folder: Path, model: nn.Module, inner: str, budget: object = 0.7) -> fxremat.Backend:
    torch.compiler.reset()
    backend = fxremat.backend(budget, inner=inner, effort=0, dump=folder)
    torch.compile(model, backend=backend)(blocks()[1]).backward()
    return backend


# Dynamo looks at the gradient of what goes from one graph to the next.
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_each_graph_has_its_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="fxremat"):
        backend = trained(tmp_path / "dump", Broken(), "eager", "min")
    folders = sorted((tmp_path / "dump").iterdir())
    assert [f.name for f in folders] == ["graph_0", "graph_1"]
    for folder, plan in zip(folders, backend.plans, strict=True):
        assert {f.name for f in folder.iterdir()} >= FILES | TEXTS
        assert Plan.load(folder / "plan.json") == plan
        assert (folder / "forward.txt").read_text().splitlines()[-1].startswith("return ")
        assert f"plan, report and drawings are in {folder}" in caplog.text
    decided = [r for r in caplog.messages if r.startswith("peak ")]
    assert len(decided) == 2


def test_what_was_dumped_can_be_applied(tmp_path: Path) -> None:
    model, _ = blocks()
    first = trained(tmp_path, model, "eager")
    again = fxremat.backend(plan=tmp_path / "graph_0" / "plan.json", inner="eager")
    torch.compiler.reset()
    torch.compile(model, backend=again)(blocks()[1]).backward()
    assert again.plans == first.plans


def test_a_warm_start_leaves_what_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code from Inductor's cache comes without its graphs as text; the rest is there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    model = Blocks(depth=1)
    cold = trained(tmp_path / "cold", model, "inductor", None)
    warm = trained(tmp_path / "warm", model, "inductor", None)
    assert warm.plans == cold.plans
    for name in ("cold", "warm"):
        assert {f.name for f in (tmp_path / name / "graph_0").iterdir()} >= FILES


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="the folder cannot be written"):
        fxremat.backend(0.5, dump=tmp_path / "file" / "dump")
    with pytest.raises(OptionError, match="dump=3: not a folder"):
        fxremat.backend(0.5, dump=3)
