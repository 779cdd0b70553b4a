"""Charts: what they show, the same each time."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import altair as alt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fxremat.base.errors import OptionError
from fxremat.base.units import format_bytes
from fxremat.inspect.drawings import charts, graphs
from fxremat.inspect.drawings.dot import to_dot
from fxremat.inspect.drawings.flows import flow_network
from fxremat.inspect.drawings.frontier import frontier_chart
from fxremat.inspect.drawings.levels import bands, baseline_levels, stretches
from fxremat.inspect.drawings.style import NODES
from fxremat.inspect.drawings.svg import to_svg
from fxremat.inspect.drawings.timeline import timeline_chart
from fxremat.inspect.explain import Explainer
from fxremat.planning.planner import Planner
from fxremat.problem.context import Context
from fxremat.problem.liveness import Holding
from fxremat.problem.types import Kind, Phase
from tests.problems import Draft
from tests.steps import curve, half

# Charts.


def fields(chart: alt.LayerChart) -> list[dict[str, Any]]:
    """The rows that the layers of a chart share."""
    rows: list[dict[str, Any]] = json.loads(chart.to_dict()["data"]["values"])
    return rows


@pytest.mark.parametrize("by", ["kind", "module"])
def test_the_timeline_has_the_peak_of_the_plan(by: Literal["kind", "module"]) -> None:
    line = Explainer(half()).occupancy
    chart = timeline_chart(half(), by=by)
    *rows, end = fields(chart)
    assert max(row["bytes"] for row in rows) == half().predicted_peak
    assert [row["bytes"] for row in rows] == list(line.levels)  # few ops: each stands for itself
    assert [row["p2"] for row in rows] == [row["p"] for row in rows[1:]] + [end["p"]]
    assert end["p"] == len(line.ops)
    assert max(row["before"] for row in rows) * 1024 == half().baseline_peak
    for row in rows:
        assert sum(n for k, n in row.items() if k.isdigit()) * 1024 == row["bytes"]
    assert end["t"] == pytest.approx(
        1e3 * (half().step_seconds + half().recompute_seconds), rel=1e-5
    )


def test_the_frontier_has_all_plans() -> None:
    spec = frontier_chart(curve(), half()).to_dict()
    points = next(layer for layer in spec["layer"] if layer.get("mark", {}).get("type") == "point")
    rows = json.loads(points["data"]["values"])
    ours = [row["bytes"] for row in rows if row["what"] == "fxremat"]
    assert ours == [p.predicted_peak for p in curve()]
    labels = {name for row in rows for name in row["label"].split(" (")[0].split(", ")} - {""}
    assert labels == set(curve().strategies)
    knee, this = rows[-2:]
    assert (knee["bytes"], this["bytes"]) == (curve().knee.predicted_peak, half().predicted_peak)
    assert knee["what"].startswith("knee: ")
    assert this["what"].startswith("this plan: ")


def test_labels_do_not_cover_each_other() -> None:
    spec = frontier_chart(curve(), half()).to_dict()
    (text,) = [
        layer
        for layer in spec["layer"]
        if layer.get("encoding", {}).get("text", {}).get("field") == "label"
    ]
    rows = json.loads(text["data"]["values"])
    line = 14 * text["encoding"]["y"]["scale"]["domain"][1] / 1.03 / charts.HEIGHT
    for one, two in itertools.combinations(rows, 2):
        apart = one["end"] <= two["peak"] or two["end"] <= one["peak"]
        assert apart or abs(one["time"] - two["time"]) >= line * 0.999


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_charts_are_the_same_each_time(tmp_path: Path, suffix: str) -> None:
    for name in ("one", "two"):
        charts.save_chart(timeline_chart(half()), tmp_path / f"{name}t{suffix}")
        charts.save_chart(frontier_chart(curve(), half()), tmp_path / f"{name}f{suffix}")
    for kind in "tf":
        one, two = ((tmp_path / f"{n}{kind}{suffix}").read_bytes() for n in ("one", "two"))
        assert one == two
        assert one.startswith(b"\x89PNG" if suffix == ".png" else b"<svg")


def test_charts_say_what_they_show(tmp_path: Path) -> None:
    charts.save_chart(timeline_chart(half()), tmp_path / "t.svg")
    charts.save_chart(frontier_chart(curve(), half()), tmp_path / "f.svg")
    timeline, frontier = ((tmp_path / f"{n}.svg").read_text() for n in "tf")
    for word in ("saved", "recomputed", "gradients", "without recomputing", "forward", "backward"):
        assert f"{word}</text>" in timeline, word
    for word in (">budget ", ">floor ", f">peak {format_bytes(half().predicted_peak)}<"):
        assert word in timeline, word
    for word in ("knee: ", "this plan: ", "full", "sqrt", "selective", "no plan can be here"):
        assert word in frontier, word


ELSEWHERE = """
import json, sys
from pathlib import Path
from fxremat.plans.plan import Plan
from fxremat.inspect.drawings import charts, flows, graphs, dot, svg
from fxremat.inspect.drawings.timeline import timeline_chart
folder = Path(sys.argv[1])
plan = Plan.load(folder / "plan.json")
charts.save_chart(timeline_chart(plan), folder / "timeline.svg")
for make in (graphs.joint_graph, flows.flow_network, graphs.backward_graph):
    graph = make(plan)
    (folder / f"{graph.name}.txt").write_text(dot.to_dot(graph) + svg.to_svg(graph))
print(json.dumps(timeline_chart(plan, by="module").to_dict()))
"""


def test_another_process_draws_the_same(tmp_path: Path) -> None:
    """Whatever its hash seed."""
    half().save(tmp_path / "plan.json")
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == timeline_chart(half(), by="module").to_dict()
    charts.save_chart(timeline_chart(half()), tmp_path / "here.svg")
    assert (tmp_path / "timeline.svg").read_bytes() == (tmp_path / "here.svg").read_bytes()
    for make in (graphs.joint_graph, flow_network, graphs.backward_graph):
        graph = make(half())
        assert (tmp_path / f"{graph.name}.txt").read_text() == to_dot(graph) + to_svg(graph)


def test_charts_refuse_bad_paths(tmp_path: Path) -> None:
    chart = timeline_chart(half())
    with pytest.raises(OptionError, match=r"an \.svg or a \.png"):
        charts.save_chart(chart, tmp_path / "t.pdf")
    with pytest.raises(OptionError, match="cannot be written"):
        charts.save_chart(chart, tmp_path / "none" / "f.svg")


@pytest.mark.parametrize("most", [10, 37, 500])
@given(data=st.data())
def test_stretches_are_few_and_fair(most: int, data: st.DataObject) -> None:
    """They cover all ops in order; none that holds several is long, by ops or by time."""
    some = st.floats(0, 1e3, allow_subnormal=False)
    seconds = data.draw(st.lists(some, max_size=60)) * data.draw(st.integers(1, 30))
    found = stretches(seconds, most)
    assert len(found) <= max(most, 1)
    assert [p for a, b in found for p in range(a, b)] == list(range(len(seconds)))
    for a, b in found:
        if b - a > 1:
            assert b - a <= 4 * len(seconds) / most + 1
            assert math.fsum(seconds[a:b]) <= 4 * math.fsum(seconds) / most * (1 + 1e-9)


def test_bands_add_up_to_the_levels() -> None:
    line = Explainer(half()).occupancy
    levels = bands(line, 7, lambda one: list(Holding).index(one.holding))
    assert levels.sum(axis=0).tolist() == list(line.levels)
    assert levels[-1].tolist() == list(line.workspace)


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
    charts.save_chart(timeline_chart(plan), tmp_path / "chart.svg")
    assert "Memory over one step" in (tmp_path / "chart.svg").read_text()
