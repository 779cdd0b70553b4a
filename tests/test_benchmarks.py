from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import (
    families,
    harness,
    planning_time,
    prediction,
    problems,
    zoo,
)
from benchmarks.llama import llama
from fxremat.problem.types import Problem
from fxremat.solver.bounds.peak import floor
from fxremat.solver.peak_solver import PeakSolver


def test_zoo_lists_a_finite_loss_for_each_model(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    assert zoo.main(["--zoo", str(tiny), "--json", str(out)]) == 0
    rows = json.loads(out.read_text())
    assert [row["model"] for row in rows] == ["chain", "gpt"]
    assert rows[0]["parameters"] == 6 * (16 * 16 + 16)
    assert all(0 < float(row["loss"]) < 10 for row in rows)
    assert rows[1]["loss"] in capsys.readouterr().out


@pytest.mark.parametrize(
    "make",
    [
        lambda: zoo.resnet(blocks=(1, 1), width=4, batch=2, size=8),
        lambda: zoo.unet(width=4, depth=2, batch=1, size=8),
        lambda: zoo.gpt(layers=1, width=8, length=4, batch=1, heads=2, words=9, fused=True),
    ],
    ids=["resnet", "unet", "gpt_fused"],
)
def test_every_parameter_of_a_zoo_model_gets_a_gradient(make: Any) -> None:
    module, args = make()
    loss = module(*args)
    assert loss.shape == ()
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


def test_written_out_and_fused_attention_agree() -> None:
    written, fused = zoo.Attention(8, 2, 5, fused=False), zoo.Attention(8, 2, 5, fused=True)
    fused.load_state_dict(written.state_dict())
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(written(x), fused(x))


@pytest.mark.parametrize("name", families.INSTANCES)
def test_every_parameter_of_a_small_instance_gets_a_gradient(name: str) -> None:
    module, args = families.INSTANCES[name]()
    loss = module(*args)
    assert loss.shape == ()
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


def room(problem: Problem) -> float:
    """The peak without recomputing over that below which no plan can go."""
    return PeakSolver(problem, effort=0).baseline.peak / floor(problem)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in families.MODELS if name != "gpt1"]


@pytest.mark.parametrize("name", ["gpt1", *SLOW])
def test_a_familys_problem_has_memory_to_save(name: str) -> None:
    whole, parts = problems.instance(name, decompose=False), problems.instance(name)
    assert len(whole.ops) < len(parts.ops)
    assert room(whole) > 1.3
    assert room(parts) > 1.3


def test_llama_learns_with_weights_and_grows_by_a_constant_number_of_ops() -> None:
    small = {"width": 16, "heads": 2, "hidden": 24, "words": 11, "length": 8, "batch": 2}
    module, _ = llama(layers=1, **small)
    module = module.to_empty(device="cpu").float()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    text = torch.randint(11, (2, 8))
    module(text, text).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    one, two, three = (
        len(problems.problem_of(problems.joint_of(llama(n, **small), True)).ops) for n in (1, 2, 3)
    )
    assert three - two == two - one > 50


def test_the_fixture_is_the_problem_of_a_big_model() -> None:
    problem = problems.load("llama7b")
    assert len(problem.ops) > 3500
    assert sum(v.nbytes for v in problem.values) > 2**37  # 128 GiB
    assert problem.step_seconds > 100
    assert 2 < room(problem) < 10


@pytest.mark.slow
def test_the_fixture_is_what_its_script_writes() -> None:
    assert problems.FIXTURES["llama7b"]() == problems.load("llama7b")


def test_writing_a_fixture_twice_gives_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(problems, "FOLDER", tmp_path / "fixtures")
    monkeypatch.setattr(problems, "FIXTURES", {"chain6": lambda: problems.instance("chain6")})
    written = []
    for _ in range(2):
        assert problems.main(["--write"]) == 0
        written.append((tmp_path / "fixtures" / "chain6.json.gz").read_bytes())
    assert written[0] == written[1]
    assert problems.load("chain6") == problems.instance("chain6")
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "chain6"
    with pytest.raises(SystemExit, match="no fixture 'chain7'; there are chain6"):
        problems.main(["chain7"])


def test_prediction_of_one_case(tiny: Path) -> None:
    case = {"zoo": str(tiny), "model": "chain", "inner": "eager", "cold": False, "pairs": 1}
    kept = prediction.run_case(case | {"budget": "0.7"})
    assert kept["status"] == "done"
    assert kept["kept"]
    assert kept["predicted"] <= kept["limit"] < kept["baseline"]
    assert kept["ratio"] >= 1
    assert kept["time"] > 0


def test_prediction_prints_a_budget_that_cannot_be_met(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--zoo", str(tiny), "--models", "chain", "--inner", "eager", "--budgets", "1B"]
    assert prediction.main([*argv, "--no-time"]) == 0
    text = capsys.readouterr().out
    assert "infeasible  least 0." in text
    assert text.splitlines()[-1] == "0 measured, 0 broke their budget, 1 infeasible, 0 failed"


def test_a_child_that_fails_is_reported() -> None:
    found = harness.run_child("benchmarks.nothing", {})
    assert found == {"status": "failed", "error": "exit 1"}


def test_an_unknown_model_is_named(tiny: Path) -> None:
    with pytest.raises(SystemExit, match=r"no model 'gpd' in .*there are chain, gpt"):
        zoo.main(["--zoo", str(tiny), "--models", "gpd"])


@pytest.mark.slow
def test_planning_time_compares_with_torch(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    argv = ["--zoo", str(tiny), "--models", "chain", "--budgets", "0.8", "--json", str(out)]
    assert planning_time.main(argv) == 0
    rows = json.loads(out.read_text())
    assert [row["planner"] for row in rows] == [
        "torch 1.0",
        "torch 0.5",
        "fxremat 0.8, first time",
        "fxremat 0.8",
    ]
    assert all(0 < row["planning"] < row["compile"] for row in rows)
    assert all(row["plans"] >= 1 for row in rows)
    assert rows[2]["planning"] == pytest.approx(sum(rows[2][s] for s in planning_time.STAGES))


def test_planning_time_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        planning_time.main(["--help"])
    assert stop.value.code == 0
    assert "--budgets" in capsys.readouterr().out
