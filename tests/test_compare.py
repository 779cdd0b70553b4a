"""What people do by hand, and how fxremat is set beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._functorch import config

from benchmarks import byhand, claims, compare, curve, gap, planning, tables, variants, zoo
from benchmarks.variants import run_case


def gradients(module: nn.Module, args: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    module(*args).backward()
    return [p.grad for p in module.parameters() if p.grad is not None]


@pytest.mark.parametrize(("k", "selective"), [(1, False), (2, False), (1, True)])
def test_checkpointed_blocks_give_the_same_gradients(k: int, selective: bool) -> None:
    torch.manual_seed(0)
    module, args = zoo.resnet(blocks=(4,), width=4, batch=2, size=8)
    torch.manual_seed(0)
    changed, _ = zoo.resnet(blocks=(4,), width=4, batch=2, size=8)
    assert byhand.every(changed) == [1, 2]
    assert byhand.checkpointed(changed, k, selective)
    found = [m for m in changed.modules() if isinstance(m, byhand.Checkpointed)]
    assert [len(m.members) for m in found] == [k] * (4 // k)
    assert all(isinstance(b, zoo.Residual) for m in found for b in m.members)
    for ours, right in zip(gradients(changed, args), gradients(module, args), strict=True):
        torch.testing.assert_close(ours, right, rtol=0, atol=0)


def test_a_model_without_blocks_cannot_be_checkpointed_by_hand() -> None:
    module = zoo.WithLoss(nn.Linear(4, 4), zoo.mean_of_squares)
    assert byhand.every(module) == []
    assert not byhand.checkpointed(module)


def test_a_variant_is_measured_beside_eager(tiny: Path) -> None:
    case = {"zoo": str(tiny), "model": "chain", "inner": "eager", "run": "fxremat 0.7", "pairs": 1}
    found = run_case(case)
    assert found["status"] == "done"
    assert found["peak"] <= found["limit"] < found["baseline"]
    assert found["gradients"] == 0
    assert found["time"] > 0


def test_what_cannot_be_is_a_row(tiny: Path) -> None:
    case = {"zoo": str(tiny), "model": "chain", "inner": "eager", "pairs": 0}
    assert run_case(case | {"run": "flag"})["status"] == "not possible"
    assert run_case(case | {"run": "every 9"})["status"] == "not possible"
    found = run_case(case | {"run": "fxremat 1"})
    assert found["status"] == "infeasible"
    assert found["least"] > 1


def row(run: str, peak: int, time: float, **more: Any) -> dict[str, Any]:
    return {"run": run, "status": "done", "peak": peak, "time": time, "share": peak / 100, **more}


def test_budgets_are_the_peaks_of_others_below_the_plain_one() -> None:
    rows = [row("eager", 100, 1.0), row("every 1", 40, 1.3), row("flag", 41, 1.3)]
    rows += [row("torch 0.5", 60, 1.2), row("torch 0.0", 130, 1.4), row("torch 0.7", 99, 1.4)]
    rows.append({"run": "selective", "status": "not possible"})
    assert compare.budgets(rows, 0.03) == [60, 40]


def test_a_row_is_set_beside_the_fastest_run_that_is_not_above_its_peak() -> None:
    ours = [row("fxremat 60", 58, 1.1), row("fxremat 40", 39, 1.2)]
    assert compare.best(row("torch", 60, 1.3), ours) == 1.1
    assert compare.best(row("torch", 50, 1.3), ours) == 1.2
    assert compare.best(row("torch", 30, 1.3), ours) is None


def test_summary_sums_extra_times_where_memory_is_saved() -> None:
    rows = [row("every 1", 40, 1.4, ours=1.1), row("every 1", 50, 1.2, ours=1.05)]
    rows += [row("every 1", 100, 1.2, ours=1.0), {"run": "every 1", "status": "not possible"}]
    (found,) = tables.summary(rows)
    assert found["families"] == "2 of 4"
    assert found["share of extra time"] == pytest.approx(0.25)
    assert found["fxremat faster"] == "2 of 2"


def test_each_budget_of_torch_has_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo shares code between equal backends: a variant must not be timed against itself."""
    seen: list[float] = []

    def compiler(graph: Any, _: Any) -> Any:
        seen.append(config.activation_memory_budget)
        return graph

    monkeypatch.setattr(variants, "lookup_backend", lambda _: compiler)
    module, x = nn.Linear(2, 2), torch.rand(2, 2)
    before = config.activation_memory_budget
    for name in ("torch 0.5", "torch 0.25"):
        variants._run_of({"run": name, "inner": "inductor"}, module, None)(x)
    assert seen == [0.5, 0.25]
    assert config.activation_memory_budget == before


def test_runs_are_counted_by_what_they_promised() -> None:
    kept = row("fxremat 0.5", 50, 1.0, predicted=50, kept=True)
    off = row("fxremat min", 40, 1.0, predicted=41, kept=None)
    above = row("fxremat 30", 31, 1.0, predicted=31, kept=False)
    text = compare.exact([row("eager", 100, 1.0), kept, off, above])
    assert text == "3 runs of fxremat: 2 to the byte as predicted, 1 above their budget"
    right = {"gradients": 0.0, "plain gradients": 0.0}
    assert [compare.broken(r | right) for r in (kept, off, above)] == [False, False, True]
    assert compare.broken(kept | {"gradients": 0.5, "plain gradients": 0.1})


@pytest.mark.slow
def test_compare_goes_on_from_its_results(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--zoo", str(tiny), "--models", "gpt", "--pairs", "1", "--out", str(tmp_path)]
    assert compare.main(argv) == 0
    first = json.loads((tmp_path / "compare-eager.json").read_text())["groups"]["gpt"]
    assert first[0]["run"] == "eager"
    assert {r["status"] for r in first} <= {"done", "not possible", "infeasible"}
    assert (tmp_path / "compare-eager.png").exists()
    capsys.readouterr()
    assert compare.main(argv) == 0
    assert "eager every" not in capsys.readouterr().err
    assert tables.main(["--from", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "| way | families |" in text
    assert "gpt, inner compiler `eager`:" in text


@pytest.mark.slow
def test_a_claim_is_predicted_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert claims.main(["--only", "chain16", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == "met"
    assert (tmp_path / "chains.png").exists()
    assert tables.main(["--from", str(tmp_path), "claims"]) == 0
    assert "| met |" in capsys.readouterr().out


@pytest.mark.parametrize("main", [m.main for m in (claims, compare, curve, gap, planning, tables)])
def test_commands_explain_themselves(main: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "python -m benchmarks." in capsys.readouterr().out


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(SystemExit, match="no table 'sumary'; there are readme, summary"):
        tables.main(["sumary"])
