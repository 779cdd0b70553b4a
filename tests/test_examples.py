from __future__ import annotations

import re

import pytest

import accumulate
import quickstart
import train_gpt

TINY = ["--steps=3", "--layers=3", "--width=32", "--heads=2", "--length=64", "--batch=4"]
Cells = dict[str, str]


def printed_rows(text: str) -> dict[str, Cells]:
    """The table in the output of train_gpt: for each run its cells by column."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    first = next(i for i, line in enumerate(lines) if line[0] == "run")
    header, *body = lines[first:]
    rows = {}
    for line in body:
        if len(line) != len(header):
            break
        rows[line[0]] = dict(zip(header, line, strict=True))
    return rows


def train(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict[str, Cells], str]:
    assert train_gpt.main([*TINY, *arguments]) == 0
    text = capsys.readouterr().out
    return printed_rows(text), text.splitlines()[-1]


def test_train_gpt_compares(capsys: pytest.CaptureFixture[str]) -> None:
    rows, closing = train(capsys, "--budget", "0.6")
    assert list(rows) == ["eager", "fxremat none", "fxremat 0.6", "torch 0.60"]

    ours, free = rows["fxremat 0.6"], rows["fxremat none"]
    assert float(ours["measured"]) <= float(ours["budget"])
    assert float(ours["measured"]) <= float(ours["predicted"]) <= float(ours["budget"])
    assert float(ours["budget"]) == pytest.approx(0.6 * float(ours["baseline"]), abs=0.01)
    assert float(ours["measured"]) < float(free["measured"])
    assert float(free["measured"]) == pytest.approx(float(free["predicted"]), rel=0.02)
    for row in (ours, free):
        assert row["loss start"] == rows["eager"]["loss start"]
        assert row["loss end"] == rows["eager"]["loss end"]
    assert closing.startswith(f"In short: with fxremat a step holds at most {ours['measured']} MiB")
    assert "its loss is eager's exactly" in closing


def test_train_gpt_learns(capsys: pytest.CaptureFixture[str]) -> None:
    rows, _ = train(capsys, "--budget", "min", "--no-compare", "--steps", "20", "--rate", "0.01")
    (row,) = rows.values()
    assert float(row["loss end"]) < float(row["loss start"]) - 1.0


def test_train_gpt_takes_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    rows, _ = train(capsys, "--budget", "1.5MiB", "--no-compare")
    assert rows["fxremat 1.5MiB"]["budget"] == "1.50"
    assert (
        float(rows["fxremat 1.5MiB"]["measured"]) <= 1.5 < float(rows["fxremat 1.5MiB"]["baseline"])
    )


@pytest.mark.parametrize(
    ("budget", "error"),
    [("-1", "BudgetError: "), ("1KiB", "BudgetError: ")],
    ids=["when the backend is made", "when the model is compiled"],
)
def test_train_gpt_says_why_a_budget_cannot_be_had(
    capsys: pytest.CaptureFixture[str], budget: str, error: str
) -> None:
    assert train_gpt.main([*TINY, f"--budget={budget}"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert error in captured.err


@pytest.mark.slow
def test_train_gpt_with_inductor(capsys: pytest.CaptureFixture[str]) -> None:
    rows, _ = train(capsys, "--budget", "0.6", "--inner", "inductor")
    ours = rows["fxremat 0.6"]
    assert float(ours["measured"]) <= float(ours["predicted"]) <= float(ours["budget"])
    assert float(ours["loss end"]) == pytest.approx(float(rows["eager"]["loss end"]), abs=1e-3)


def test_quickstart(capsys: pytest.CaptureFixture[str]) -> None:
    assert quickstart.main([]) == 0
    mib = {k: float(v) for k, v in re.findall(r"(\w+):\s+([\d.]+) MiB", capsys.readouterr().out)}
    assert mib["fxremat"] == mib["plan"] <= mib["budget"] < mib["eager"]


def test_accumulate_keeps_to_its_advice(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--memory=3MiB", "--target=16", "--depth=3", "--width=32", "--length=32"]
    assert accumulate.main([*small, "--updates=2"]) == 0
    text = capsys.readouterr().out
    assert "<- fastest" in text
    mib = {k: float(v) for k, v in re.findall(r"(\w+):\s+([\d.]+) MiB", text)}
    assert mib["measured"] <= mib["advice"] <= 3.0
