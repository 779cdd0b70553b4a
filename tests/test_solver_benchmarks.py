from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import (
    curve,
    gap,
    problems,
    scale,
    solver_table,
    zoo,
)
from fxremat.problem.types import Problem
from fxremat.solver.pareto import Point
from fxremat.solver.peak_solver import PeakSolver


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
    tiny.write_text(tiny.read_text().replace("depth=6", "depth=3"))
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
