"""The models of the benchmarks, and what all benchmarks share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import harness, hugging_face, planning, zoo
from benchmarks.llama import llama
from benchmarks.problems import joint_of, problem_of
from fxremat.problem.types import Problem
from fxremat.solver.bounds.peak import floor
from fxremat.solver.peak_solver import PeakSolver

TINY: dict[str, Any] = {
    "chain": lambda: zoo.chain(depth=3, width=8, batch=4),
    "gpt": lambda: zoo.gpt(layers=1, width=8, length=4, batch=1, heads=2, words=9),
    "gpt_fused": lambda: zoo.gpt(1, 8, 4, 1, 2, 9, fused=True),
    "moe": lambda: zoo.gpt(1, 8, 4, 1, 2, 9, fused=True, experts=2),
    "mixer": lambda: zoo.mixer(depth=2, width=8, batch=1, size=8),
    "resnet": lambda: zoo.resnet(blocks=(1, 1), width=4, batch=2, size=8),
    "unet": lambda: zoo.unet(width=4, depth=2, batch=1, size=8),
}
SIZED = {**TINY, **{k: v for k, v in zoo.SMALL.items() if not k.startswith("chain")}}


@pytest.mark.parametrize("name", SIZED)
def test_every_parameter_of_a_model_gets_a_gradient(name: str) -> None:
    module, args = SIZED[name]()
    loss = module(*args)
    assert loss.shape == ()
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


def test_written_out_and_fused_attention_agree() -> None:
    written, fused = zoo.Attention(8, 2, 5, fused=False), zoo.Attention(8, 2, 5, fused=True)
    fused.load_state_dict(written.state_dict())
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(written(x), fused(x))


def test_channels_last_is_the_same_network() -> None:
    torch.manual_seed(0)
    module, (images, classes) = zoo.resnet(blocks=(1,), width=4, batch=2, size=8)
    wanted = module(images, classes)
    last, (given, _) = zoo.channels_last((module, (images, classes)))
    formats = [p for p in last.parameters() if p.dim() == 4] + [given]
    assert all(t.is_contiguous(memory_format=torch.channels_last) for t in formats)
    torch.testing.assert_close(last(given, classes), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.FAMILIES)
def test_the_flag_is_that_of_the_libraries(name: str) -> None:
    """Only Hugging Face's models have a flag, and with it they run and give the same loss."""
    module, args = harness.build(None, name)
    plain = module.eval()(*args)
    assert hugging_face.flagged(module) == (name in hugging_face.FLAGGED)
    torch.testing.assert_close(module(*args), plain)


def room(problem: Problem) -> float:
    """The peak without recomputing over that below which no plan can go."""
    return PeakSolver(problem, effort=0).baseline.peak / floor(problem)


QUICK = "two_branch3"
LARGE = [name for name in {**zoo.GRAPHS, **zoo.SMALL} if name != QUICK]


@pytest.mark.parametrize("name", [QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in LARGE)])
def test_a_models_problem_has_memory_to_save(name: str) -> None:
    whole, parts = (problem_of(joint_of(zoo.MODELS[name](), d)) for d in (False, True))
    assert len(whole.ops) < len(parts.ops)
    assert room(whole) > 1.3
    assert room(parts) > 1.3


def test_workspaces_are_counted_if_asked_for(tiny: Path) -> None:
    joint = joint_of(harness.build(tiny, "gpt"), False)
    assert any(op.workspace for op in problem_of(joint, workspaces=True).ops)
    assert not any(op.workspace for op in problem_of(joint).ops)


def test_llama_learns_with_weights_and_grows_by_a_constant_number_of_ops() -> None:
    small = {"width": 16, "heads": 2, "hidden": 24, "words": 11, "length": 8, "batch": 2}
    module, _ = llama(layers=1, **small)
    module = module.to_empty(device="cpu").float()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    text = torch.randint(11, (2, 8))
    module(text, text).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    one, two, three = (len(problem_of(joint_of(llama(n, **small), True)).ops) for n in (1, 2, 3))
    assert three - two == two - one > 50


def fails(case: dict[str, Any]) -> dict[str, Any]:
    if "exit" in case:
        raise SystemExit(case["exit"])
    raise ValueError(f"{case['word']}\nand more")


@pytest.mark.slow
def test_a_forked_case_that_fails_is_reported() -> None:
    assert harness.run_forked(fails, {"word": "no"})["error"] == "ValueError: no"
    assert harness.run_forked(fails, {"exit": 3})["error"] == "exit 3"


def test_an_unknown_model_is_named(tiny: Path) -> None:
    known = harness.load_zoo(tiny)
    with pytest.raises(SystemExit, match="no model 'gpd'; there are chain, gpt"):
        harness.chosen("chain,gpd", known)
    assert harness.chosen(None, known) == ["chain", "gpt"]
    assert harness.chosen(None, known, ["gpt"]) == ["gpt"]


def test_results_are_kept_until_settings_change(tmp_path: Path) -> None:
    made: list[str] = []

    def rows_of(name: str) -> list[dict[str, Any]]:
        made.append(name)
        return [{"x": name}]

    def run(*words: str, pairs: int = 1) -> list[dict[str, Any]]:
        args = harness.parser("").parse_args(["--out", str(tmp_path / "deep"), *words])
        return harness.collect(args, "out", ["a", "b"], rows_of, pairs=pairs)

    assert run("--minutes", "-1") == []
    assert run() == [{"x": "a"}, {"x": "b"}]
    assert made == ["a", "b"]
    assert run("--json", str(tmp_path / "rows.json")) == [{"x": "a"}, {"x": "b"}]
    assert made == ["a", "b"]
    run(pairs=2)
    assert made == ["a", "b"] * 2
    run("--again", pairs=2)
    assert made == ["a", "b"] * 3
    assert json.loads((tmp_path / "rows.json").read_text()) == [{"x": "a"}, {"x": "b"}]
    assert harness.read(tmp_path / "deep" / "out.json") == [{"x": "a"}, {"x": "b"}]
    assert harness.read(tmp_path / "none.json") == []


@pytest.mark.slow
def test_planning_time_is_set_beside_torchs(tiny: Path, tmp_path: Path) -> None:
    argv = ["--zoo", str(tiny), "--models", "chain", "--budget", "0.8", "--cold"]
    assert planning.main([*argv, "--out", str(tmp_path)]) == 0
    (row,) = harness.read(tmp_path / "planning.json")
    assert 0 < row["torch 0.5"] < row["compile"]
    assert row["fxremat"] == pytest.approx(sum(row[stage] for stage in planning.STAGES))
    assert 0 < row["share"] < 100
    assert row["plans"] >= 1
    assert (tmp_path / "planning.png").exists()
