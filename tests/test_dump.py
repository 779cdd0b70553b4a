"""Dumps: everything that can be shown of a plan, in a new folder, as a whole or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import fxremat
from fxremat.base.errors import OptionError
from fxremat.inspect import dump
from fxremat.inspect.dump import check_folder, dump_plan
from fxremat.planning.planner import Planner
from fxremat.plans.plan import Plan
from fxremat.problem.context import Context
from fxremat.solver.pareto import Point
from fxremat.solver.seeds.cuts import baseline
from tests.problems import chain
from tests.steps import curve, half

ALWAYS = {
    "plan.json",
    "plan.txt",
    "report.html",
    "timeline.svg",
    "timeline.png",
    *(f"{name}.{suffix}" for name in dump.GRAPHS for suffix in ("dot", "svg")),
}
FRONTIER = {"frontier.svg", "frontier.png"}


def small() -> Plan:
    problem = chain()
    planner = Planner(Context(problem, {}), "toy")
    return planner.plan(Point.of(problem, baseline(problem)), None)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_all_of_it(tmp_path: Path) -> None:
    made = dump_plan(
        tmp_path / "new" / "deep",
        half(),
        joint="def joint(): ...",
        forward="def forward(): ...",
        backward="def backward(): ...\n",
        frontier=curve(),
    )
    assert made == tmp_path / "new" / "deep" / "graph_0"
    texts = {"joint.txt", "forward.txt", "backward.txt"}
    assert names(made) == ALWAYS | FRONTIER | texts
    assert all(path.stat().st_size for path in made.iterdir())
    assert names(made.parent) == {"graph_0"}
    assert Plan.load(made / "plan.json") == half()
    assert (made / "backward.txt").read_text() == "def backward(): ...\n"
    text = (made / "plan.txt").read_text()
    assert str(half()) in text
    assert fxremat.explain(half()) in text
    for path in made.glob("*.svg"):
        ET.parse(path)
    assert (made / "report.html").read_text().lstrip().lower().startswith("<!doctype html>")
    assert fxremat.to_dot(half()) == (made / "joint.dot").read_text()


def test_only_what_is_given(tmp_path: Path) -> None:
    assert names(dump_plan(tmp_path, small())) == ALWAYS


def test_numbers_go_on(tmp_path: Path) -> None:
    (tmp_path / "graph_1").mkdir()
    (tmp_path / "graph_2").write_text("a file of the user's")
    made = [dump_plan(tmp_path, small()).name for _ in range(2)]
    assert made == ["graph_0", "graph_3"]
    assert not names(tmp_path / "graph_1")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_half_a_dump_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(dump, "to_svg", fail)
    with pytest.raises((OptionError, KeyboardInterrupt)) as caught:
        dump_plan(tmp_path, small())
    assert names(tmp_path) == set()
    if isinstance(error, OSError):
        assert "No space left on device" in str(caught.value)
        assert str(tmp_path) in str(caught.value)


def test_a_race_for_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process takes the number between the look and the rename."""
    real = Path.rename

    def late(self: Path, target: Path) -> Path:
        if target.name == "graph_0":
            target.mkdir(exist_ok=True)
            (target / "theirs").touch()
        return real(self, target)

    monkeypatch.setattr(Path, "rename", late)
    assert dump_plan(tmp_path, small()).name == "graph_1"
    assert names(tmp_path / "graph_0") == {"theirs"}
    assert names(tmp_path) == {"graph_0", "graph_1"}


def test_several_at_once(tmp_path: Path) -> None:
    """The race is for names in a folder, so threads run it as processes do."""
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: dump_plan(tmp_path, small()), range(6)))
    assert names(tmp_path) == {f"graph_{i}" for i in range(6)} == {path.name for path in made}
    assert all(names(folder) == ALWAYS for folder in tmp_path.iterdir())


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")
    for act in (lambda: check_folder(taken), lambda: dump_plan(taken, small())):
        with pytest.raises(OptionError, match="cannot be written") as caught:
            act()
        assert str(taken) in str(caught.value)
        assert "File exists" in str(caught.value)
    with pytest.raises(OptionError, match="Not a directory"):
        check_folder(taken / "below")


def test_checking_leaves_an_empty_folder(tmp_path: Path) -> None:
    check_folder(tmp_path / "new")
    assert names(tmp_path / "new") == set()
