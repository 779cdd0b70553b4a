"""What two plans of one graph do differently."""

from __future__ import annotations

from dataclasses import replace

import fxremat
from fxremat.plans.parts import SavedValue
from tests.steps import curve, half


def test_by_hand() -> None:
    first = replace(half(), saved=(SavedValue("a", 8), SavedValue("b", 4)), recomputed=("f", "f"))
    second = replace(half(), saved=(SavedValue("b", 4), SavedValue("c", 2)), recomputed=("f", "g"))
    found = fxremat.diff(first, second)
    assert [v.name for v in found.saved] == ["c"]
    assert [v.name for v in found.dropped] == ["a"]
    assert (found.more, found.less) == ({"g": 1}, {"f": 1})
    assert found.same_graph
    text = str(found)
    assert "  +          2 B  c" in text
    assert "  -          8 B  a" in text
    assert "  +   1x  g" in text


def test_of_one_plan_there_are_none() -> None:
    found = fxremat.diff(half(), half())
    assert found.is_empty
    assert str(found).endswith("both save and recompute the same")


def test_a_smaller_budget_saves_less_and_recomputes_more() -> None:
    found = fxremat.diff(curve()[0], curve()[-1])
    assert found.dropped
    assert found.more
    assert found.peak[0] > found.peak[1]
    assert found.to_data()["more"] == found.more


def test_another_graph_is_told_of() -> None:
    assert "two graphs" in str(fxremat.diff(half(), replace(half(), graph="other")))
