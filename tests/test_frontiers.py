"""The frontier: falling peaks, rising times, its knee, its file."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

import fxremat
from fxremat.base.errors import OptionError
from fxremat.plans.frontier import Frontier, knee
from fxremat.problem.replay import replay
from tests.steps import curve, half


def test_peaks_fall_and_times_rise() -> None:
    plans = list(curve())
    assert len(plans) >= 5
    assert plans[0].recompute_seconds == 0.0
    for one, two in pairwise(plans):
        assert one.predicted_peak > two.predicted_peak
        assert one.recompute_seconds < two.recompute_seconds
    for plan in plans:
        line = replay(plan.context.problem, [plan.context.op_index[n] for n in plan.backward_schedule])
        assert line.peak == plan.predicted_peak == plan.budget
        assert plan.lower_bound_seconds <= plan.recompute_seconds * (1 + 1e-9)


def test_no_strategy_lies_below_it() -> None:
    assert set(curve().strategies) == {"none", "full", "every 2", "sqrt", "selective"}
    for name, plan in curve().strategies.items():
        best = curve().within(plan.predicted_peak)
        assert best is not None, name
        # Between two plans of the curve there are others that it does not list.
        finer = half().context
        assert best.recompute_seconds <= plan.recompute_seconds + 0.02 * finer.problem.step_seconds


def test_within() -> None:
    assert curve().within(10**12) is curve()[0]
    assert curve().within(curve()[-1].predicted_peak - 1) is None
    assert len(curve()) == len(list(curve()))


def test_a_file_brings_it_back() -> None:
    text = curve().to_json()
    again = Frontier.from_json(text)
    assert again == curve()
    assert again[0].context is again[1].context
    assert again.to_json() == text
    with pytest.raises(ValueError, match="not a frontier of format"):
        Frontier.from_json(half().to_json())


def test_its_text_marks_the_knee() -> None:
    (line,) = [row for row in str(curve()).splitlines() if "<- knee" in row]
    assert f"{curve().knee.overhead:+.1%}" in line


@pytest.mark.parametrize(
    ("points", "index"),
    [
        ([(5, 0.0)], 0),
        ([(10, 0.0), (9, 0.5)], 0),
        ([(10, 0.0), (4, 0.1), (2, 0.9)], 1),
        ([(10, 0.0), (4, 0.1), (2, 0.9), (1, 50.0)], 1),  # what costs a forward or more is left out
        ([(10, 0.0), (9, 0.3), (2, 0.4), (1, 1.0)], 2),
        ([(10, 0.0), (5, 9.0)], 0),
    ],
)
def test_knee(points: list[tuple[float, float]], index: int) -> None:
    assert knee(points, step_seconds=3.0) == index


def test_a_notebook_shows_the_lines_of_the_text() -> None:
    text, page = str(curve()), curve()._repr_html_()
    assert page.count("<tr>") == len(text.splitlines()) == len(curve()) + 1
    assert f"<td>{text.splitlines()[1].split()[2]}</td>" in page


def test_a_plan_says_all_that_its_frontier_needs() -> None:
    assert fxremat.frontier(half()).plans[0].predicted_peak == half().baseline_peak
    with pytest.raises(OptionError, match="a plan was given"):
        fxremat.frontier(half(), inner="eager")
    with pytest.raises(OptionError, match="a plan was given"):
        fxremat.frontier(half(), torch.ones(2))
