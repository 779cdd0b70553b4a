"""The command line: outputs, files, errors of one line, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fxremat
from fxremat.cli import commands
from fxremat.cli.bench import Row
from fxremat.cli.parser import main
from fxremat.plans.plan import Plan
from tests.steps import curve, half

TRAIN = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.layers = nn.Sequential(*(self.block() for _ in range(depth)))

    def block(self):
        return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, x):
        return self.layers(x).square().mean()


def make():
    return Model(), torch.randn(64, 16)


def by_name():
    return Model(), (), {"x": torch.randn(64, 16)}


def reads():
    return Model(int(torch.tensor(3).item())), torch.randn(64, 16)


def meta():
    with torch.device("meta"):
        return make()


def wrong():
    return 3


def fails():
    return 1 / 0


def prints():
    import sys
    print("hello", sys.argv[1:])
    return make()


def leaves():
    raise SystemExit(3)


def breaks():
    class Broken(Model):
        def forward(self, x):
            print("a graph break")
            return super().forward(x)

    return Broken(), torch.randn(64, 16)
"""
FAST = ["--inner", "eager", "--device", "h100", "--effort", "0"]


@pytest.fixture
def train(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(TRAIN)
    return str(tmp_path / "train.py")


@pytest.fixture
def saved(tmp_path: Path) -> str:
    half().save(tmp_path / "half.json")
    return str(tmp_path / "half.json")


def test_plan_prints_and_writes(
    train: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    assert main(["plan", f"{train}:make", *FAST, "--budget", "0.5", "-o", str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("peak ")
    assert "planning ..." in shown.err
    plan = Plan.load(path)
    assert plan.budget == plan.baseline_peak // 2
    assert str(plan) in shown.out


def test_json_is_the_plan_and_quiet_is_quiet(
    train: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [
        "plan",
        f"{train}:by_name",
        *FAST,
        "--strategy",
        "every",
        "-k",
        "2",
        "--json",
        "--quiet",
    ]
    assert main(args) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert Plan.from_json(shown.out).recomputed


def test_what_a_factory_prints_is_not_our_output(
    train: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", f"{train}:prints", *FAST, "--json", "--quiet"]) == 0
    shown = capsys.readouterr()
    Plan.from_json(shown.out)
    assert shown.err.splitlines()[0] == "hello []"


def test_other_files_are_told_apart(
    tmp_path: Path, saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"curve": curve().to_json().encode(), "empty": b"", "binary": b"\xff\xfe\x00"}
    said = {"curve": "a frontier, not a plan", "empty": "nor any JSON", "binary": "codec can't"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        assert main(["explain", str(tmp_path / name), "--quiet"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert said[name] in line
        assert str(tmp_path / name) in line


def test_options_of_the_step_arrive(train: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["plan", f"{train}:reads", *FAST, "--json", "--optimizer", "adamw", "--accumulates"]
    assert main([*args, "--policy", "aten.gelu=recompute"]) == 0
    plan = Plan.from_json(capsys.readouterr().out)
    held = plan.context.resident
    assert held is not None
    assert (held.optimizer_name, held.accumulates, plan.context.device) == ("AdamW", True, "h100")
    assert any(name.startswith("gelu") for name in plan.recomputed)


def test_frontier(train: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "curve.json"
    assert main(["frontier", f"{train}:make", *FAST, "-o", str(path)]) == 0
    text = capsys.readouterr().out
    assert "<- knee" in text
    assert "selective" in text
    assert main(["show", str(path)]) == 0
    assert capsys.readouterr().out == text
    assert main(["show", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert sum(p["knee"] for p in data["frontier"]) == 1
    assert set(data["strategies"]) >= {"none", "full"}


def test_show(saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    html, dot = tmp_path / "plan.html", tmp_path / "plan.dot"
    assert main(["show", saved, "--frontier", "--html", str(html), "--dot", str(dot)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(str(half()))
    assert "<- knee" in text
    assert html.read_text().lower().startswith("<!doctype html>")
    assert dot.read_text().startswith("digraph")
    assert main(["show", saved, "--json"]) == 0
    assert capsys.readouterr().out == half().to_json() + "\n"


def test_pictures(saved: str, tmp_path: Path) -> None:
    svg, chart = tmp_path / "plan.svg", tmp_path / "plan.png"
    assert main(["show", saved, "--svg", str(svg), "--chart", str(chart)]) == 0
    assert "<svg" in svg.read_text()
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_diff_and_explain(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", saved, saved]) == 0
    assert "the same" in capsys.readouterr().out
    assert main(["diff", saved, saved, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["same_graph"] is True
    assert main(["explain", saved]) == 0
    assert capsys.readouterr().out == fxremat.explain(half()) + "\n"
    name = half().saved[0].name
    assert main(["explain", saved, name, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["choice"]) == (name, "saved")
    assert told["flip"]["choice"] == "recomputed"
    assert main(["explain", saved, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["largest"]) == 10


def test_bench_runs_for_real(train: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["bench", f"{train}:make", "--inner", "eager", "--budgets", "0.6,1KiB", "--pairs", "1"]
    assert main([*args, "--json"]) == 1  # since one of the budgets cannot be had
    eager, ours, refused = json.loads(capsys.readouterr().out)
    assert (eager["run"], ours["run"], refused["run"]) == ("eager", "0.6", "1KiB")
    assert ours["measured"] == ours["predicted"] <= ours["limit"]
    assert ours["gradients"] == 0.0
    assert eager["measured"] > ours["measured"]
    assert "no plan found within 1024 bytes" in refused["error"]


def test_bench_prints_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [Row("eager", measured=3 * 2**20, time=1.0), Row("0.5", error="no plan")]
    monkeypatch.setattr(commands, "bench", lambda *_: iter(rows))
    assert main(["bench", "a.py:make", "--budgets", "0.5"]) == 1
    _, eager, ours, error = capsys.readouterr().out.splitlines()
    assert eager.split() == ["eager", "-", "-", "3.00", "1.00", "-", "-"]
    assert ours.split() == ["0.5", *"------"]
    assert error == "0.5: no plan"
    rows = [Row("eager", measured=3 * 2**20), Row("0.5", limit=10, predicted=9, measured=10)]
    assert main(["bench", "a.py:make", "--budgets", "0.5"]) == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["plan", "train.py"], "no factory is named; write file.py:factory"),
        (["plan", "nix.py:make"], "there is no file 'nix.py'"),
        (["plan", "nix.nix:make"], "there is no module 'nix.nix'"),
        (["plan", "TRAIN:mak"], "has no function 'mak'; near it are make"),
        (["plan", "TRAIN:wrong"], "the factory returned a int; return (model, args)"),
        (["plan", "TRAIN:fails"], "ZeroDivisionError: division by zero (train.py:"),
        (["plan", "TRAIN:leaves"], "SystemExit: 3 (train.py:"),
        (["plan", "TRAIN:breaks", *FAST], "cannot be traced as one graph"),
        (["plan", "TRAIN:make", *FAST, "--budget", "7KiB"], "no plan found within 7168 bytes"),
        (["plan", "TRAIN:make", *FAST, "--budget", "x"], "budget 'x'"),
        (["plan", "TRAIN:make", "--device", "h10"], "did you mean 'h100'"),
        (["plan", "TRAIN:make", *FAST, "--policy", "mm"], "write 'aten.mm=save', say"),
        (["bench", "TRAIN:meta"], "tensors without data"),
        (["show", "nix.json"], "nix.json: No such file or directory"),
        (["diff", "nix.json", "nix.json"], "nix.json: No such file or directory"),
        (["explain", "SAVED", "output"], "no value 'output'"),
        (["explain", "SAVED", "nix"], "the plan has no value 'nix'"),
    ],
)
def test_errors_are_one_line(
    args: list[str], said: str, train: str, saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [a.replace("TRAIN", train).replace("SAVED", saved) for a in args]
    assert main([*named, "--quiet"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("fxremat: ")
    assert said in line


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["show", "plan.json", "--html", "/nix/plan.html"], "there is no folder /nix"),
        (["plan", "a:b", "-o", "nix/plan.json"], "there is no folder nix"),
        (["show", "plan.json", "--chart", "c.gif"], "a chart is an .svg or a .png file"),
        (["bench", "a:b", "--budgets", "0.5,foo"], "budget 'foo': not a size"),
    ],
)
def test_what_cannot_be_is_said_before_any_work(
    args: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(args)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "args", [[], ["nix"], ["plan"], ["plan", "a:b", "--budget", "1", "--memory", "2"]]
)
def test_a_command_line_that_makes_no_sense(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(args)
    assert caught.value.code == 2
    assert "usage: fxremat" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "frontier", "show", "diff", "explain", "bench"])
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert f"example:\n  fxremat {command} " in capsys.readouterr().out


def test_what_nobody_thought_of_is_one_line_too(
    saved: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(Plan, "load", fail)
    assert main(["diff", saved, saved]) == 1
    assert capsys.readouterr().err == "fxremat: RuntimeError: two lines; --debug shows where\n"
    with pytest.raises(RuntimeError):
        main(["diff", saved, saved, "--debug"])


def test_as_a_module_and_debug_shows_where(train: str) -> None:
    command = [sys.executable, "-m", "fxremat", "plan", f"{train}:fails", "--debug"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_the_path_is_left_as_it_was(
    train: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies beside a target is found, also while it is traced, and not afterwards."""
    (tmp_path / "beside_it.py").write_text("def scale(x):\n    return 2 * x\n")
    with Path(train).open("a") as file:
        file.write(
            "\n\nclass Late(Model):\n"
            "    def forward(self, x):\n"
            "        from beside_it import scale\n"
            "        return scale(super().forward(x))\n"
            "\n\ndef late():\n    return Late(), torch.randn(64, 16)\n"
        )
    before = list(sys.path)
    assert main(["plan", f"{train}:late", *FAST, "--quiet"]) == 0
    assert sys.path == before
    assert main(["plan", f"{train}:fails", *FAST, "--quiet"]) == 1
    assert sys.path == before
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "beside_it:scale", "--quiet"]) == 1
    assert sys.path == before
