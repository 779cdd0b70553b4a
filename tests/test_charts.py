"""Charts: what they show, the same each time, without matplotlib."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fxremat.base.errors import OptionError
from fxremat.inspect.drawings import charts, graphs
from fxremat.inspect.drawings.dot import to_dot
from fxremat.inspect.drawings.levels import baseline_levels, thinned
from fxremat.inspect.drawings.style import NODES
from fxremat.inspect.drawings.svg import to_svg
from fxremat.inspect.explain import Explainer
from fxremat.planning.planner import Planner
from fxremat.problem.context import Context
from fxremat.problem.types import Kind, Phase
from tests.problems import Draft
from tests.steps import curve, half

# Charts.


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_charts_are_the_same_each_time(tmp_path: Path, suffix: str) -> None:
    for name in ("one", "two"):
        charts.timeline_chart(half(), tmp_path / f"{name}t{suffix}")
        charts.frontier_chart(curve(), tmp_path / f"{name}f{suffix}", half())
    for kind in "tf":
        one, two = ((tmp_path / f"{n}{kind}{suffix}").read_bytes() for n in ("one", "two"))
        assert one == two
        assert one.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")


def test_charts_say_what_they_show(tmp_path: Path) -> None:
    charts.timeline_chart(half(), tmp_path / "t.svg")
    charts.frontier_chart(curve(), tmp_path / "f.svg", half())
    timeline, frontier = ((tmp_path / f"{n}.svg").read_text() for n in "tf")
    for word in ("saved", "recomputed", "gradients", "without recomputing", "budget", "forward"):
        assert f">{word}" in timeline.replace("> ", ">"), word
    for word in ("knee", "this plan", "full", "sqrt", "selective", "no plan can be here"):
        assert word in frontier, word


ELSEWHERE = """
import sys, matplotlib
from pathlib import Path
from fxremat.plans.plan import Plan
from fxremat.inspect.drawings import charts, graphs, dot, svg
folder = Path(sys.argv[1])
plan = Plan.load(folder / "plan.json")
matplotlib.rcParams["font.size"] = 31.0
charts.timeline_chart(plan, folder / "timeline.svg")
print(matplotlib.rcParams["font.size"], "matplotlib.pyplot" in sys.modules)
for make in (graphs.joint_graph, graphs.flow_network, graphs.backward_graph):
    graph = make(plan)
    (folder / f"{graph.name}.txt").write_text(dot.to_dot(graph) + svg.to_svg(graph))
"""


def test_another_process_draws_the_same(tmp_path: Path) -> None:
    """Whatever its hash seed and its user's settings for charts; these and windows stay alone."""
    half().save(tmp_path / "plan.json")
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["31.0", "False"]
    charts.timeline_chart(half(), tmp_path / "here.svg")
    assert (tmp_path / "timeline.svg").read_bytes() == (tmp_path / "here.svg").read_bytes()
    for make in (graphs.joint_graph, graphs.flow_network, graphs.backward_graph):
        graph = make(half())
        assert (tmp_path / f"{graph.name}.txt").read_text() == to_dot(graph) + to_svg(graph)


def test_charts_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [m for m in sys.modules if m.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    draws: list[Callable[[], None]] = [
        lambda: charts.timeline_chart(half(), tmp_path / "t.svg"),
        lambda: charts.frontier_chart(curve(), tmp_path / "f.svg"),
    ]
    for draw in draws:
        with pytest.raises(OptionError, match=r"pip install fxremat\[pictures\]"):
            draw()


def test_charts_refuse_bad_paths(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"an \.svg or a \.png"):
        charts.timeline_chart(half(), tmp_path / "t.pdf")
    with pytest.raises(OptionError, match="cannot be written"):
        charts.frontier_chart(curve(), tmp_path / "none" / "f.svg")


@pytest.mark.parametrize("most", [10, 37, 10_000])
def test_bands_add_up_to_the_levels(most: int) -> None:
    line = Explainer(half()).occupancy
    bands = thinned(line, most)
    assert len(bands.positions) <= max(most, 2)
    assert line.peak in bands.positions or max(line.levels[p] for p in bands.positions) == max(
        line.levels
    )
    for i, position in enumerate(bands.positions):
        total = sum(levels[i] for levels in bands.parts.values()) + bands.workspace[i]
        assert total == line.levels[position]


def test_the_baseline_stands_over_the_plan() -> None:
    plan = half()
    found = baseline_levels(Explainer(plan))
    assert max(n for _, n in found) == plan.baseline_peak
    positions = [p for p, _ in found]
    assert positions == sorted(set(positions))
    assert positions[-1] == len(plan.forward) + len(plan.backward_schedule) - 1


def test_inputs_and_tangents_have_words_for_their_kinds() -> None:
    assert {str(k) for k in Kind if k is not Kind.COMPUTED} <= set(NODES)


def test_a_plan_without_a_baseline_is_drawn_without_its_line(tmp_path: Path) -> None:
    """m may neither be saved nor be made again, so e, which is made of it, must be hoisted."""
    draft = Draft().value("x", 8, kind=Kind.INPUT).value("m", 8, unsaveable="may not")
    draft.value("e", 4).op("m = fm x", 1, fixed="may not").op("e = fe m", 1, Phase.DEFERRABLE)
    draft.value("g", 1).op("g = back e", 1, Phase.BACKWARD)
    planner = Planner(Context(draft.done(), {}), "toy")
    plan = planner.plan(planner.solver.baseline, None)
    assert baseline_levels(Explainer(plan)) == []
    charts.timeline_chart(plan, tmp_path / "chart.svg")
    assert "Memory over one step" in (tmp_path / "chart.svg").read_text()
