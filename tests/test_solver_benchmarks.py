"""The benchmarks of the solver: against proved optima, and over many limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import curve, gap, zoo
from benchmarks.problems import joint_of, problem_of

PLACE = {"instance": "a", "graph": "aten", "fraction": 0.8}
PLANS = {"ours": 5.0, "optimum": 4.5, "bound": 4.0, "repeats": False, "proved": True}


def cell(**more: Any) -> dict[str, Any]:
    return gap.judged({**PLACE, **PLANS, **more})


def test_gap_proves_the_optimum_of_a_small_chain(
    tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    argv = ["--zoo", str(tiny), "--models", "chain", "--graphs", "aten", "--fractions", "0.8,0.1"]
    assert gap.main([*argv, "--json", str(out), "--out", str(tmp_path)]) == 0
    near, never = json.loads(out.read_text())
    assert near["proved"]
    assert near["bound"] <= near["optimum"] <= near["ours"]
    assert 0 < near["optimum"] < 50
    assert never["proved"]
    assert never["ours"] is never["optimum"] is None
    lines = capfd.readouterr().out.splitlines()
    assert lines[1].split()[:6] == ["instance", "graph", "fraction", "ops", "ours", "optimum"]
    assert lines[2].split()[:3] == ["chain", "aten", "0.8"]
    assert "2 cells: 1 with a proved optimum, 1 proved infeasible, 0 late" in lines
    assert lines[-1] == "bounds above a plan, or optima above ours: none"


@pytest.mark.parametrize(
    "wrong",
    [
        cell(bound=4.6),
        cell(optimum=5.1),
        cell(optimum=None),
        cell(ours=None, bound=None),
    ],
    ids=["bound above optimum", "optimum above ours", "plan said not to exist", "bound infinite"],
)
def test_gap_tells_a_contradiction(wrong: Any) -> None:
    assert cell()["valid"]
    assert not wrong["valid"]
    assert gap.summary([cell(), wrong])[-1].endswith(": a aten 0.8")


def test_gap_sums_up_proved_cells_alone() -> None:
    late = cell(ours=9.0, proved=False)
    text = "\n".join(gap.summary([cell(), cell(ours=4.5), late]))
    assert "3 cells: 2 with a proved optimum, 0 proved infeasible, 1 late" in text
    assert "mean 0.250 %, worst 0.500 %, none at 1 of 2 (50 %)" in text
    assert "where late: mean 4.500 %, worst 4.500 %" in text
    twice = "\n".join(gap.summary([cell(), cell(ours=4.5, repeats=True)]))
    assert "in 1 of these our plan runs an op more than once in a backward" in twice
    assert "the other 1: mean 0.500 %, worst 0.500 %" in twice
    missed = gap.summary([cell(ours=None)])
    assert "only the exact solver found a plan: a aten 0.8" in "\n".join(missed)


@pytest.mark.parametrize(
    ("made", "short"),
    [
        (cell(), "5.00+0.50"),
        (cell(ours=4.5), "4.50"),
        (cell(proved=False), "5.00+0.50?"),
        (cell(ours=None), "MISSED"),
        (cell(ours=None, optimum=None), "none"),
        (cell(ours=None, optimum=None, proved=False), "-"),
    ],
)
def test_gap_in_short(made: Any, short: str) -> None:
    assert gap.condensed([made]) == [{"instance": "a", "aten 0.8": short}]


def test_curve_of_a_tiny_model(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.write_text(tiny.read_text().replace("depth=6", "depth=3"))
    out = tmp_path / "out.json"
    argv = ["--zoo", str(tiny), "--models", "chain", "--limits", "3", "--effort", "0"]
    assert curve.main([*argv, "--json", str(out), "--out", str(tmp_path)]) == 0
    (one,) = json.loads(out.read_text())
    assert [a["peak"] <= a["limit"] for a in one["answers"]] == [True] * 3
    assert one["answers"][0]["percent"] == pytest.approx(0, abs=1e-9)
    assert one["answers"][2]["peak"] == one["lowest"] >= one["floor"]
    assert one["points"] > 3
    assert capsys.readouterr().out.splitlines()[-1].split()[3] == "3/3"


def test_limits_are_fractions_and_the_least_peak() -> None:
    problem = problem_of(joint_of(zoo.chain(3, 16, 64), True))
    found = curve.curve(problem, "0.8,0.01,min", effort=0)
    near, never, least = found["answers"]
    assert near["bound"] <= near["percent"] < least["percent"]
    assert never["peak"] is None
    assert least["peak"] == least["limit"] == found["lowest"]
    row = {"model": "tiny", "trace": 0.1, **found}
    assert curve.judged(row)["valid"]
    assert curve.columns([row])[-3:] == ["0.8", "0.01", "min"]
    assert (curve.shown(row)["0.01"], curve.shown(row)["found"]) == ("-", "2/3")


def of(*answers: tuple[int, int | None, float | None, float]) -> dict[str, Any]:
    keys = ("limit", "peak", "percent", "bound")
    return {"lowest": 2, "answers": [dict(zip(keys, a, strict=True)) for a in answers]}


def test_curve_tells_what_rises_and_falls() -> None:
    assert curve.judged(of((9, 8, 1.0, 0.5), (5, 5, 2.0, 2.0)))["valid"]
    rising = curve.judged(of((9, 4, 1.0, 0.5), (5, 5, 2.0, 2.0)))
    falling = curve.judged(of((9, 8, 1.0, 0.5), (5, 5, 0.9, 0.5)))
    assert (rising["rises"], rising["falls"]) == (1, 0)
    assert (falling["rises"], falling["falls"]) == (0, 1)
    assert not rising["valid"]
    assert not falling["valid"]


@pytest.mark.parametrize("last", [(5, 6, 2.0, 2.0), (5, 5, 2.0, 2.1), (5, None, None, 2.0)])
def test_curve_tells_a_broken_limit_a_bound_above_and_a_missing_plan(last: Any) -> None:
    assert not curve.judged(of((9, 8, 1.0, 0.5), last))["valid"]
    assert curve.judged(of((9, 8, 1.0, 0.5), (1, None, None, 2.0)))["valid"]  # below the least peak
