"""What a report holds: the plan's figures, and names that may hold anything."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import fxremat
from fxremat.base.errors import OptionError
from fxremat.inspect.explain import Explainer
from fxremat.inspect.reports import to_html
from fxremat.inspect.reports.data import HOLDINGS, report_data
from fxremat.planning.planner import Planner
from fxremat.plans.plan import Plan
from fxremat.problem.context import Context, Origin
from tests.problems import chain, nothing_needed
from tests.steps import curve, half


def data_in(page: str) -> Any:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_levels_and_intervals_are_those_of_the_plan() -> None:
    data = report_data(Explainer(half()), worth=False)
    line = Explainer(half()).occupancy
    assert tuple(data["plan"]["levels"]) == line.levels
    assert max(data["plan"]["levels"]) == half().predicted_peak
    assert max(data["before"]["levels"]) == half().baseline_peak
    added = list(data["plan"]["workspace"])
    spans = data["intervals"]
    for value, start, end in zip(spans["value"], spans["start"], spans["end"], strict=True):
        for position in range(start, end + 1):
            added[position] += data["values"]["bytes"][value]
    assert added == list(data["plan"]["levels"])
    assert set(spans["holding"]) <= set(range(len(HOLDINGS)))


def test_values_and_cut_are_those_of_the_plan() -> None:
    data = report_data(Explainer(half()), worth=False)
    names, texts = data["values"]["name"], data["texts"]
    saved = {n for n, c in zip(names, data["values"]["choice"], strict=True) if texts[c] == "saved"}
    assert saved == {v.name for v in half().saved}
    assert {names[value] for value, _, _ in data["cut"]} == saved
    assert all(readers for _, _, readers in data["cut"])
    assert len(data["peak"]) == 10


def test_frontier_and_headline() -> None:
    data = report_data(Explainer(half()), curve(), "My step")
    assert data["title"] == "My step"
    assert len(data["frontier"]["points"]) == len(curve())
    assert data["frontier"]["points"][data["frontier"]["knee"]][0] == curve().knee.predicted_peak
    assert [s[0] for s in data["frontier"]["strategies"]] == list(curve().strategies)
    assert data["frontier"]["chosen"][0] == half().predicted_peak
    labels = [card[0] for card in data["cards"]]
    assert labels[-1] == "Whole step"
    assert any("more would save" in note for note in data["notes"])
    assert report_data(Explainer(half()), worth=False)["frontier"] is None


def test_compiled_code_with_another_peak_is_told_of() -> None:
    data = report_data(Explainer(replace(half(), predicted_peak=1000)), worth=False)
    assert any("the compiled code" in note for note in data["notes"])


class Scripts(HTMLParser):
    """Counts elements, and collects what refers to other files."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ("src", "href") and v and not v.startswith("#")]


def hostile() -> Plan:
    """A plan whose names are markup."""
    bad = "</script><img src=x onerror=alert(1)>\u2028\"'&<!--style--> \0"
    context = half().context
    origins = {n: replace(o, module=bad, code=bad, source=bad) for n, o in context.origins.items()}
    return replace(half(), context=replace(context, origins=origins))


def test_names_are_never_markup() -> None:
    page = to_html(hostile(), title="<b>&</b>", worth=False)
    parser, plain = Scripts(), Scripts()
    parser.feed(page)
    plain.feed(to_html(half(), worth=False))
    assert parser.tags == plain.tags
    assert "<title>&lt;b&gt;&amp;&lt;/b&gt;</title>" in page
    modules = {data_in(page)["texts"][m] for m in data_in(page)["values"]["module"]}
    assert any(m.startswith("</script><img") for m in modules)


def test_the_page_needs_nothing_else() -> None:
    page = to_html(half(), curve(), worth=False)
    parser = Scripts()
    parser.feed(page)
    assert parser.links == []
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|https?://(?!www\.w3\.org)", page)
    assert page.startswith("<!DOCTYPE html>")


def test_one_plan_gives_one_page() -> None:
    assert to_html(half(), curve()) == to_html(Plan.from_json(half().to_json()), curve())


def test_a_file(tmp_path: Path) -> None:
    fxremat.write_report(half(), tmp_path / "plan.html", curve())
    assert (tmp_path / "plan.html").read_text(encoding="utf-8") == to_html(half(), curve())
    with pytest.raises(OptionError, match="cannot be written"):
        fxremat.write_report(half(), tmp_path / "nowhere" / "plan.html")
    with pytest.raises(OptionError, match="holds no context"):
        to_html(replace(half(), context=None))


@pytest.mark.parametrize("problem", [chain(), nothing_needed()])
def test_toy_plans(problem: Any) -> None:
    origins = {"fa": Origin("toy.fa", "", "block.0")}
    planner = Planner(Context(problem, origins), "toy")
    plan = planner.plan(planner.solver.baseline, None)
    data = data_in(to_html(plan, planner.frontier()))
    assert data["values"]["name"] == [v.name for v in problem.values]
    assert len(data["cut"]) == len(plan.saved)
