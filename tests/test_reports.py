"""What a report holds: the plan's figures, and names that may hold anything."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import altair as alt
import pytest
import vl_convert

import fxremat
from fxremat.base.errors import OptionError
from fxremat.inspect.explain import Explainer
from fxremat.inspect.reports import to_html
from fxremat.inspect.reports.page import HOLDINGS, report_data
from fxremat.planning.planner import Planner
from fxremat.plans.plan import Plan
from fxremat.plans.words import words
from fxremat.problem.context import Context, Origin
from tests.problems import chain, nothing_needed
from tests.steps import curve, half


def data_in(page: str, name: str = "data") -> Any:
    pattern = rf'<script id="{name}" type="application/json">(.*?)</script>'
    found = re.search(pattern, page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_levels_and_intervals_are_those_of_the_plan() -> None:
    data = report_data(Explainer(half()))
    line = Explainer(half()).occupancy
    assert tuple(data["plan"]["levels"]) == line.levels
    assert max(data["plan"]["levels"]) == half().predicted_peak
    added = list(data["plan"]["workspace"])
    spans = data["intervals"]
    for value, start, end in zip(spans["value"], spans["start"], spans["end"], strict=True):
        for position in range(start, end + 1):
            added[position] += data["values"]["bytes"][value]
    assert added == list(data["plan"]["levels"])
    assert set(spans["holding"]) <= set(range(len(HOLDINGS)))


def test_values_are_those_of_the_plan() -> None:
    data = report_data(Explainer(half()))
    names, texts = data["values"]["name"], data["texts"]
    saved = {n for n, c in zip(names, data["values"]["choice"], strict=True) if texts[c] == "saved"}
    assert saved == {v.name for v in half().saved}


def test_charts_of_the_page_are_valid_and_those_of_the_plan() -> None:
    found = data_in(to_html(half(), curve(), worth=False), "charts")
    assert set(found) == {"timeline_kind", "timeline_module", "frontier"}
    for spec in found.values():
        assert alt.Chart.from_dict(spec).to_dict()["layer"]
        vl_convert.vegalite_to_vega(spec)
        assert not {"url"} & set(re.findall(r'"(\w+)":', json.dumps(spec)))
    rows = json.loads(found["timeline_kind"]["data"]["values"])
    assert max(row["bytes"] for row in rows) == half().predicted_peak
    assert "frontier" not in data_in(to_html(half(), worth=False), "charts")


def test_headline_and_notes() -> None:
    page = to_html(half(), curve(), "My step")
    said = words(half())
    assert "<title>My step</title>" in page
    for text in (said.peak, said.baseline, said.floor, said.time, "Whole step", "more would save"):
        assert text in page
    assert without_library(page).count("<tr><td") == 10  # the largest at the peak
    assert "more would save" not in to_html(half(), worth=False)


def test_compiled_code_with_another_peak_is_told_of() -> None:
    assert "the compiled code" in to_html(replace(half(), predicted_peak=1000), worth=False)


def test_each_module_has_its_drawing() -> None:
    page = to_html(half(), worth=False)
    paths = re.findall(r'<template data-path="([^"]*)"><svg', page)
    modules = {origin.module for origin in half().context.origins.values()} - {""}
    assert set(paths) >= {"", "layers", "mixes", *modules}
    assert len(paths) == len(set(paths))
    assert set(re.findall(r'data-module="([^"]*)"', page)) <= set(paths)


class Scripts(HTMLParser):
    """Counts elements, and collects what refers to other files."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ("src", "href") and v and not v.startswith("#")]


def without_library(page: str) -> str:
    """The page but for the library that draws the charts: that has addresses in its texts."""
    found = re.sub(r'<script id="vega">.*?</script>', "", page, flags=re.DOTALL)
    assert len(found) < len(page) - 500_000
    return found


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
    assert set(parser.tags) == set(plain.tags)
    for tag in ("script", "section", "table", "button"):
        assert parser.tags.count(tag) == plain.tags.count(tag)
    assert parser.links == []
    assert "<title>&lt;b&gt;&amp;&lt;/b&gt;</title>" in page
    modules = {data_in(page)["texts"][m] for m in data_in(page)["values"]["module"]}
    assert any(m.startswith("</script><img") for m in modules)


def test_the_page_needs_nothing_else() -> None:
    page = to_html(half(), curve(), worth=False)
    parser = Scripts()
    parser.feed(page)
    assert parser.links == []
    ours = without_library(page)
    assert not re.search(r"@import|url\((?!#a-)|fetch\(|XMLHttpRequest|import\(", ours)
    addresses = set(re.findall(r"https?://[^\s\"'<>\\\\]+", ours))
    assert addresses <= {
        "http://www.w3.org/2000/svg",
        "https://vega.github.io/schema/vega-lite/v6.4.1.json",
    }
    assert page.startswith("<!DOCTYPE html>")


def test_one_plan_gives_one_page() -> None:
    assert to_html(half(), curve()) == to_html(Plan.from_json(half().to_json()), curve())


def test_a_file(tmp_path: Path) -> None:
    fxremat.write_report(half(), tmp_path / "plan.html", curve())
    assert (tmp_path / "plan.html").read_text(encoding="utf-8") == to_html(half(), curve())
    with pytest.raises(OptionError, match="cannot be written"):
        fxremat.write_report(half(), tmp_path / "nowhere" / "plan.html")


@pytest.mark.parametrize("problem", [chain(), nothing_needed()])
def test_toy_plans(problem: Any) -> None:
    origins = {"fa": Origin("toy.fa", "", "block.0")}
    planner = Planner(Context(problem, origins), "toy")
    plan = planner.plan(planner.solver.baseline, None)
    data = data_in(to_html(plan, planner.frontier()))
    assert data["values"]["name"] == [v.name for v in problem.values]
    choices = [data["texts"][c] for c in data["values"]["choice"]]
    assert choices.count("saved") == len(plan.saved)
