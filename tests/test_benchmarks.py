from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import (
    curve,
    families,
    gap,
    harness,
    planning_time,
    prediction,
    problems,
    scale,
    solver_table,
    zoo,
)
from benchmarks.llama import llama
from fxremat.floor import floor
from fxremat.problem import Problem
from fxremat.solvers.peak import PeakSolver
from fxremat.solvers.pool import Point

TINY = """
from benchmarks.zoo import chain, gpt

MODELS = {
    "chain": lambda: chain(depth=6, width=16, batch=64),
    "gpt": lambda: gpt(layers=2, width=16, length=16, batch=2, heads=2, words=20),
}
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.py"
    path.write_text(TINY)
    return path


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


def test_solver_table_falls_and_ends_above_the_floor(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    argv = ["--zoo", str(tiny), "--fractions", "0.7,1.0,0.05", "--effort", "0", "--json", str(out)]
    assert solver_table.main(argv) == 0
    found = json.loads(out.read_text())["curves"]
    assert list(found) == ["chain32", "gpt8"]
    for one in found.values():
        assert one["percent"]["1.0"] == pytest.approx(0, abs=1e-9)
        assert 0 < one["percent"]["0.7"] < 100
        assert one["percent"]["0.05"] is None
        assert one["floor"] <= one["lowest"] < one["baseline"]
    lines = capsys.readouterr().out.splitlines()
    top = lines.index("") + 1
    assert lines[top].split() == ["fraction", "chain32", "gpt8"]
    assert lines[top + 3].split() == ["0.05", "-", "-"]


def test_solver_table_without_decompositions_has_fewer_ops(tiny: Path) -> None:
    whole = solver_table.problem_of(solver_table.capture(tiny, "gpt", False), workspaces=True)
    parts = solver_table.problem_of(solver_table.capture(tiny, "gpt", True), workspaces=False)
    assert len(whole.ops) < len(parts.ops)
    assert any(op.workspace for op in whole.ops)
    assert not any(op.workspace for op in parts.ops)


CELL = gap.Cell("a", "aten", 0.8, 9, 5.0, False, 4.5, True, 4.0, 0.1, 0.2)


def test_gap_proves_the_optimum_of_a_small_chain(
    tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    argv = ["--zoo", str(tiny), "--models", "chain", "--graphs", "aten", "--fractions", "0.8,0.1"]
    assert gap.main([*argv, "--json", str(out)]) == 0
    near, never = json.loads(out.read_text())
    assert near["proved"]
    assert near["bound"] <= near["optimum"] <= near["ours"]
    assert 0 < near["optimum"] < 50
    assert never["proved"]
    assert never["ours"] is never["optimum"] is None
    lines = capfd.readouterr().out.splitlines()
    assert lines[2].split()[:6] == ["instance", "graph", "fraction", "ops", "ours", "optimum"]
    assert lines[3].split()[:3] == ["chain", "aten", "0.8"]
    assert "2 cells: 1 with a proved optimum, 1 proved infeasible, 0 late" in lines
    assert lines[-1] == "bounds above a plan, or optima above ours: none"


def test_gap_hides_what_is_printed_past_python(capfd: pytest.CaptureFixture[str]) -> None:
    with gap.silent():
        os.write(1, b"hidden")
    os.write(1, b"shown")
    assert capfd.readouterr().out == "shown"


@pytest.mark.parametrize(
    "wrong",
    [
        replace(CELL, bound=4.6),
        replace(CELL, optimum=5.1),
        replace(CELL, optimum=None),
        replace(CELL, ours=None, bound=float("inf")),
    ],
    ids=["bound above optimum", "optimum above ours", "plan said not to exist", "bound infinite"],
)
def test_gap_tells_a_contradiction(wrong: gap.Cell) -> None:
    assert CELL.valid
    assert not wrong.valid
    assert gap.summary([CELL, wrong])[-1].endswith(": a aten 0.8")


def test_gap_sums_up_proved_cells_alone() -> None:
    late = replace(CELL, ours=9.0, proved=False)
    text = "\n".join(gap.summary([CELL, replace(CELL, ours=4.5), late]))
    assert "3 cells: 2 with a proved optimum, 0 proved infeasible, 1 late" in text
    assert "mean 0.250 %, worst 0.500 %, none at 1 of 2 (50 %)" in text
    assert "where late: mean 4.500 %, worst 4.500 %" in text
    twice = "\n".join(gap.summary([CELL, replace(CELL, ours=4.5, repeats=True)]))
    assert "in 1 of these our plan runs an op more than once in a backward" in twice
    assert "the other 1: mean 0.500 %, worst 0.500 %" in twice
    missed = gap.summary([replace(CELL, ours=None)])
    assert "only the exact solver found a plan: a aten 0.8" in "\n".join(missed)


@pytest.mark.parametrize(
    ("cell", "short"),
    [
        (CELL, "5.00+0.50"),
        (replace(CELL, ours=4.5), "4.50"),
        (replace(CELL, proved=False), "5.00+0.50?"),
        (replace(CELL, ours=None), "MISSED"),
        (replace(CELL, ours=None, optimum=None), "none"),
        (replace(CELL, ours=None, optimum=None, proved=False), "-"),
    ],
)
def test_gap_in_short(cell: gap.Cell, short: str) -> None:
    assert gap.condensed([cell]) == [{"instance": "a", "aten 0.8": short}]


def test_scale_traces_once_and_measures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def small(layers: int) -> Problem:
        asked.append(layers)
        return problems.problem_of(problems.joint_of(zoo.chain(layers, 16, 64), True))

    monkeypatch.setattr(problems, "llama", small)
    monkeypatch.setattr(scale, "LIMITS", (0.8, None))
    cache, out = tmp_path / "cache", tmp_path / "out.json"
    before = [scale.traced(layers, cache) for layers in (2, 3)]
    assert scale.main(["--layers", "2,3", "--cache", str(cache), "--json", str(out)]) == 0
    assert asked == [2, 3]
    sizes = json.loads(out.read_text())
    assert [(s["ops"], s["trace"]) for s in sizes] == [(len(p.ops), t) for p, t in before]
    for one in sizes:
        assert [s["limit"] for s in one["solves"]] == ["0.8", "min"]
        assert all(s["percent"] is None or s["bound"] <= s["percent"] for s in one["solves"])
        assert one["points"] > 1
    assert sizes[1]["ops"] > 1.2 * sizes[0]["ops"]
    assert "2 -> 3" in capsys.readouterr().out


def test_scale_fits_the_exponent_of_growth() -> None:
    solve = scale.Solve("0.8", 1, 2.0, 1.0, 3.0)
    small = scale.Size(8, 100, None, (solve,), 5.0, 9)
    large = scale.Size(16, 200, 1.0, (replace(solve, seconds=12.0),), 10.0, 9)
    (row,) = scale.exponents([small, large])
    assert row["0.8"] == row["mean"] == pytest.approx(2)
    assert row["frontier"] == pytest.approx(1)
    assert "trace" not in row


@pytest.mark.parametrize("limit", ["0.8", "min"])
def test_scale_compares_within_the_same_limit(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problems.instance("chain6")
    asked: list[int] = []

    class Asked(PeakSolver):
        def solve(self, limit: int) -> Point | None:
            asked.append(limit)
            return self.baseline

    monkeypatch.setattr(scale, "PeakSolver", Asked)
    solve = scale.Solve(limit, 12345, 2.0, 1.0, 3.0)
    assert scale.best(problem, solve, 30.0) == replace(solve, best=0.0)
    top = Asked(problem).baseline.peak
    assert asked == [12345 if limit == "min" else int(0.8 * top)]


def test_curve_of_a_tiny_model(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.write_text(TINY.replace("depth=6", "depth=3"))
    out = tmp_path / "out.json"
    argv = ["--zoo", str(tiny), "--models", "chain", "--budgets", "3", "--json", str(out)]
    assert curve.main(argv) == 0
    one = json.loads(out.read_text())["chain"]
    assert [a["peak"] <= a["budget"] for a in one["answers"]] == [True] * 3
    assert one["answers"][0]["percent"] == pytest.approx(0, abs=1e-9)
    assert one["answers"][2]["peak"] == one["lowest"] >= one["floor"]
    assert one["points"] > 3
    assert capsys.readouterr().out.splitlines()[-1].split()[2] == "3/3"
    with pytest.raises(SystemExit, match="no model 'gpd'; there are chain, gpt, densenet"):
        curve.main(["--zoo", str(tiny), "--models", "gpd"])


def test_curve_tells_what_rises_and_falls() -> None:
    def of(*answers: tuple[int, int | None, float | None, float]) -> curve.Curve:
        return curve.Curve(9, 1, 2, tuple(curve.Answer(*a, 0.1) for a in answers), 2, 0.1)

    assert of((9, 8, 1.0, 0.5), (5, 5, 2.0, 2.0)).valid
    rising = of((9, 4, 1.0, 0.5), (5, 5, 2.0, 2.0))
    falling = of((9, 8, 1.0, 0.5), (5, 5, 0.9, 0.5))
    assert (rising.rises, rising.falls, falling.rises, falling.falls) == (1, 0, 0, 1)
    assert not rising.valid
    assert not falling.valid
    assert not of((9, 8, 1.0, 0.5), (5, 6, 2.0, 2.0)).valid
    assert not of((9, 8, 1.0, 0.5), (5, 5, 2.0, 2.1)).valid
    assert not of((9, 8, 1.0, 0.5), (5, None, None, 2.0)).valid


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
