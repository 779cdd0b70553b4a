"""Reports in a real headless browser: they load, draw, answer, and are legible."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fxremat
from fxremat.base.units import format_bytes
from fxremat.inspect.explain import Explainer
from fxremat.inspect.step import Choice
from fxremat.plans.frontier import Frontier
from fxremat.plans.plan import Plan
from tests.steps import curve, half
from tests.test_reports import hostile

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="no chromium with chromedriver is on this machine"
)
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield made
    made.quit()


def drawn(page: Any) -> bool:
    """Whether the charts are there: they are drawn after the page has loaded."""
    boxes = page.find_elements("css selector", "div.chart:not(#drawing)")
    return all(box.find_elements("css selector", "svg .role-mark") for box in boxes)


def bars(page: Any) -> list[tuple[str, float, float, float, float]]:
    """What the chart of memory stacks: name of the group, and edges, in units of the axes."""
    script = """
        const rows = [];
        const walk = (item) => {
          if (item.datum && item.datum.group && item.mark && item.mark.marktype === 'rect') {
            const d = item.datum;
            if (d.low !== undefined) rows.push([d.group, d.x, d.x2, d.low, d.high]);
          }
          (item.items || []).forEach(walk);
        };
        walk(document.querySelector('#memory-chart').view.scenegraph().root);
        return rows;
    """
    return [tuple(row) for row in page.execute_script(script)]


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Open:
    """Opens the report of a plan; whatever the page logs or fetches is an error."""

    def open_plan(plan: Plan, frontier: Frontier | None = None) -> Any:
        path = tmp_path / "plan.html"
        fxremat.write_report(plan, path, frontier)
        browser.get_log("performance")
        browser.get(path.as_uri())
        WebDriverWait(browser, 60).until(drawn)
        assert browser.get_log("browser") == []
        sent = [str(entry["message"]) for entry in browser.get_log("performance")]
        urls = {
            u for m in sent for u in re.findall(r'"url":"([^"]+)"', m) if "requestWillBeSent" in m
        }
        assert urls <= {path.as_uri()}
        return browser

    return open_plan


def test_it_loads_and_draws(opened: Open) -> None:
    page = opened(half(), curve())
    assert page.find_element("id", "title").text == "fxremat plan"
    assert format_bytes(half().predicted_peak) in page.find_element("id", "cards").text
    assert {group for group, *_ in bars(page)} >= {"saved", "recomputed", "gradients"}
    texts = [t.text for t in page.find_elements("css selector", "#curve-chart svg text")]
    assert {"selective", "by hand", "fxremat"} <= set(texts)
    points = page.find_elements("css selector", "#curve-chart .mark-symbol.role-mark path")
    assert len(points) >= len(curve()) + 2
    assert len(page.find_elements("css selector", "#drawing path.e-saved")) > 0
    assert len(page.find_elements("css selector", "#peak-table tbody tr")) == 10


def test_the_stack_is_as_high_as_the_peak(opened: Open) -> None:
    highest = max(high for *_, high in bars(opened(half())))
    assert highest * 1024 == half().predicted_peak


def test_bars_stand_where_ops_run(opened: Open) -> None:
    """Also in time: each is as wide as its op is long."""
    line = Explainer(half()).occupancy
    ops = Explainer(half()).problem.ops
    times = [0.0, *itertools.accumulate(1e3 * ops[op].seconds for op in line.ops)]
    spans = {(begin, end) for _, begin, end, *_ in bars(opened(half()))}
    shown, known = (
        list(itertools.chain(*some)) for some in (sorted(spans), itertools.pairwise(times))
    )
    assert shown == pytest.approx(known, rel=1e-4)


def test_hovering_and_keys_tell_what_is_live(opened: Open) -> None:
    page = opened(half())
    chart = page.find_element("id", "memory-chart")
    instant = page.find_element("id", "instant")
    line = Explainer(half()).occupancy
    assert format_bytes(line.levels[line.peak_position]) in instant.text
    ActionChains(page).move_to_element_with_offset(chart, -300, 0).perform()
    moved = instant.text
    assert "forward, op" in moved
    found = re.search(r"op (\d+) of (\d+)", moved)
    assert found is not None
    position = int(found[1]) - 1
    assert moved.startswith(format_bytes(line.levels[position]))
    largest = Explainer(half()).problem.values[line.at(position)[0].value].name
    assert largest in moved
    chart.send_keys(Keys.ARROW_RIGHT)
    assert f"op {position + 2} of" in instant.text


def test_the_chart_can_be_stacked_by_module_and_by_op(opened: Open) -> None:
    page = opened(half())
    page.find_element("css selector", "[data-by='module']").click()
    WebDriverWait(page, 60).until(lambda p: "layers.*.*" in {group for group, *_ in bars(p)})
    by_time = bars(page)
    button = page.find_element("css selector", "[data-axis='op']")
    button.click()
    WebDriverWait(page, 60).until(lambda p: bars(p) and bars(p) != by_time)
    count = len(Explainer(half()).occupancy.ops)
    assert {(begin, end) for _, begin, end, *_ in bars(page)} == {(i, i + 1) for i in range(count)}
    assert button.get_attribute("aria-pressed") == "true"


def test_a_click_on_a_value_finds_it_in_the_table(opened: Open) -> None:
    page = opened(half())
    link = page.find_element("css selector", "#instant button.link")
    name = link.text.split(" ")[0]
    link.click()
    assert name in names(page)
    assert all(name in shown for shown in names(page))


def names(page: Any) -> list[str]:
    rows = page.find_elements("css selector", "#values-table tbody tr")
    return [row.get_attribute("data-name") for row in rows]


def test_the_table_sorts_and_filters(opened: Open) -> None:
    page = opened(half())
    decisions = Explainer(half()).decisions
    decided = [v for v in decisions.values() if v.choice in (Choice.SAVED, Choice.RECOMPUTED)]
    order = {name: index for index, name in enumerate(decisions)}
    by_bytes = sorted(decided, key=lambda v: (-v.nbytes, order[v.name]))
    assert names(page) == [v.name for v in by_bytes][:100]
    page.find_element("css selector", "th button[data-column='name']").click()
    assert names(page) == sorted(v.name for v in decided)[:100]
    page.find_element("css selector", "th button[data-column='name']").click()
    assert names(page) == sorted((v.name for v in decided), reverse=True)[:100]
    Select(page.find_element("id", "choice")).select_by_value("recomputed")
    recomputed = {v.name for v in decided if v.choice is Choice.RECOMPUTED}
    assert set(names(page)) == recomputed
    page.find_element("id", "search").send_keys("GELU layers.1")
    known = half().context
    origins = {n: known.origin(n) for n in recomputed}
    wanted = {n for n, o in origins.items() if "gelu" in o.op and o.module.startswith("layers.1")}
    assert set(names(page)) == wanted
    assert page.find_element("id", "count").text.startswith(f"{len(wanted)} of {len(decisions)}")


def test_the_table_has_pages(opened: Open) -> None:
    page = opened(half())
    Select(page.find_element("id", "choice")).select_by_value("all")
    count = len(Explainer(half()).decisions)
    assert count > 100
    first = names(page)
    page.find_element("id", "next").click()
    assert len(first) == 100
    assert not set(first) & set(names(page))
    while page.find_element("id", "next").is_enabled():
        page.find_element("id", "next").click()
    assert len(names(page)) == (count - 1) % 100 + 1


def test_modules_open_close_zoom_and_move(opened: Open) -> None:
    page = opened(half())
    stage = page.find_element("id", "drawing")

    def drawing() -> Any:
        return stage.find_element("tag name", "svg")

    def boxes() -> int:
        return len(stage.find_elements("css selector", "g.n"))

    before = boxes()
    page.find_element("css selector", "#drawing [data-module='layers.1.1'] text").click()
    assert stage.get_attribute("data-path") == "layers.1.1"
    assert "addmm_2" in [t.text for t in stage.find_elements("css selector", "g.n text")]
    page.find_element("css selector", "#path [data-step='']").click()
    assert boxes() == before
    view = drawing().get_dom_attribute("viewBox")
    page.find_element("id", "zoom-in").click()
    zoomed = drawing().get_dom_attribute("viewBox")
    assert float(zoomed.split()[2]) < float(view.split()[2])
    ActionChains(page).click_and_hold(stage).move_by_offset(60, 30).release().perform()
    assert drawing().get_dom_attribute("viewBox") != zoomed
    assert stage.get_attribute("data-path") == ""  # a drag opens nothing
    page.find_element("id", "zoom-fit").click()
    assert drawing().get_dom_attribute("viewBox") == view


def test_tips_tell_of_plans(opened: Open) -> None:
    page = opened(half(), curve())
    points = page.find_elements("css selector", "#curve-chart .mark-symbol.role-mark path")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", points[0])
    ActionChains(page).move_to_element(points[0]).perform()
    tip = page.find_element("id", "vg-tooltip-element")
    assert tip.is_displayed()
    assert format_bytes(curve()[0].predicted_peak) in tip.text


LUMINANCE = """
const parse = (c) => c.match(/[\\d.]+/g).slice(0, 4).map(Number);
const ground = (e) => {
  for (let at = e; at; at = at.parentElement) {
    const c = parse(getComputedStyle(at).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c;
  }
  return [255, 255, 255];
};
const light = (c) => {
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = c.slice(0, 3).map((v) => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const texts = 'h1, h2, #sentence, .card b, .card span, nav a, td, th button, button, '
  + '.legend span, svg text';
return [...document.querySelectorAll(texts)]
  .filter((e) => e.getClientRects().length && !e.disabled)
  .map((e) => {
    const style = getComputedStyle(e), ink = e instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(parse(ink)), light(ground(e))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), e.tagName + ' ' + e.textContent.slice(0, 30)];
  });
"""


@pytest.mark.parametrize("clicks", [0, 1])
def test_light_and_dark_are_legible(opened: Open, clicks: int) -> None:
    """Contrast of all texts by WCAG 2: at least 4.5 to 1."""
    page = opened(half(), curve())
    for _ in range(clicks):
        page.find_element("id", "theme").click()
    found = page.execute_script(LUMINANCE)
    assert len(found) > 200
    assert [(round(ratio, 2), what) for ratio, what in found if ratio < 4.5] == []


def test_it_starts_in_the_theme_of_the_system(opened: Open, browser: Any) -> None:
    for theme in ("dark", "light"):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        page = opened(half())
        assert page.execute_script("return document.documentElement.dataset.theme") == theme
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_names_that_are_markup_stay_text(opened: Open) -> None:
    page = opened(hostile())
    assert page.find_elements("css selector", "img") == []
    assert "</script><img" in page.find_element("id", "values-table").text


def test_plans_without_anything_saved_and_without_frontier(opened: Open) -> None:
    page = opened(curve()[-1])
    assert page.find_elements("id", "curve") == []
    assert page.find_elements("id", "to-curve") == []
    opened(curve()[0], curve())
