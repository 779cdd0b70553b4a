from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from fxremat.plans.parts import SavedValue
from fxremat.plans.plan import Plan
from fxremat.problem.context import Context, Origin
from fxremat.problem.types import Problem

PLAN = Plan(
    context=Context(Problem((), (), (), ()), {"mm": Origin("aten.mm", "f32[2]")}),
    graph="0123456789abcdef",
    budget=3 * 2**20,
    predicted_peak=2 * 2**20,
    baseline_peak=5 * 2**20,
    floor=2**20,
    recompute_seconds=0.25,
    lower_bound_seconds=0.2,
    step_seconds=2.0,
    recompute_flops=3_000_000_000,
    saved=(SavedValue("addmm", 4096), SavedValue("view", 0), SavedValue("tanh", 8192)),
    forward=("addmm", "tanh"),
    backward_schedule=("tanh", "mm", "tanh", "mm_1", "output"),
    recomputed=("tanh", "tanh"),
)


def test_json_round_trip_is_byte_identical() -> None:
    text = PLAN.to_json()
    again = Plan.from_json(text)
    assert again == PLAN
    assert again.to_json() == text


@pytest.mark.parametrize("number", [4, 5])
def test_files_of_older_formats_are_read(number: int) -> None:
    data = json.loads(PLAN.to_json())
    problem = {"format": 2, "values": [], "ops": [], "forward": [], "backward": []}
    origins = {"mm": ["aten.mm", "f32[2]", "", "", ""]}
    old = {**data["decision"], **data["prediction"], "format": number}
    old["detail"] = {**data["context"], "problem": problem, "origins": origins}
    if number == 4:
        old["schedule"], old["held"] = old.pop("backward_schedule"), old.pop("reserved")
    again = Plan.from_json(json.dumps(old))
    assert again == PLAN
    assert again.context == PLAN.context
    with pytest.raises(ValueError, match="without its detail; plan the model again"):
        Plan.from_json(json.dumps({**old, "detail": None}))


def test_the_parts_of_a_plan_make_it_again() -> None:
    assert Plan.of(PLAN.parts, PLAN.context) == PLAN
    assert PLAN.parts.decision == replace(PLAN, floor=7).parts.decision
    assert PLAN.parts.prediction == replace(PLAN, graph="another").parts.prediction


def test_sums() -> None:
    assert PLAN.saved_bytes == 12288
    assert PLAN.overhead == 0.125
    assert PLAN.repeats == {"tanh": 2}
    assert replace(PLAN, step_seconds=0.0).overhead == 0.0


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 99}', '"plan"', "null"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"not a plan of format 6; write it again with to_json\(\)"
    ):
        Plan.from_json(text)


def test_a_missing_field_is_named() -> None:
    data = json.loads(PLAN.to_json())
    del data["prediction"]["floor"]
    with pytest.raises(ValueError, match=r"not a plan: .*missing.*`floor` - at `\$.prediction`"):
        Plan.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ['{"format": ', "", "plan"])
def test_broken_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a plan, nor any JSON"):
        Plan.from_json(text)


def test_the_text_tells_budget_and_peaks() -> None:
    text = str(PLAN)
    for part in (
        "2.0 MiB predicted, budget 3.0 MiB",
        "5.0 MiB without",
        "1.0 MiB, no plan",
        "+12.5%",
    ):
        assert part in text
    assert "2 runs of 1 op" in text
    assert "budget" not in str(replace(PLAN, budget=None)).splitlines()[0]
    assert "time limit" in str(replace(PLAN, complete=False))


COMPILE = """
import torch
import tests.small as t
torch.set_num_threads(1)
ours = t.make(0.5, effort=1)
t.compiled("transformer", ours)
print(ours.plans[0].to_json())
"""


def test_two_processes_make_the_same_plan() -> None:
    runs = [
        subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout
    plan = Plan.from_json(runs[0].stdout)
    assert plan.recomputed
    assert plan.to_json() == runs[0].stdout.rstrip("\n")


@pytest.mark.parametrize(
    ("part", "field", "value", "words"),
    [
        (
            "prediction",
            "predicted_peak",
            "12",
            "got `str` - at `$.prediction.predicted_peak`",
        ),
        (
            "prediction",
            "step_seconds",
            None,
            "got `null` - at `$.prediction.step_seconds`",
        ),
        ("decision", "budget", 1.5, "`int | null`, got `float` - at `$.decision.budget`"),
        ("decision", "backward_schedule", "mm", "got `str` - at `$.decision.backward_schedule`"),
        ("decision", "saved", [{"name": "mm"}], "`nbytes` - at `$.decision.saved[0]`"),
        ("decision", "complete", 1, "`bool`, got `int` - at `$.decision.complete`"),
        ("context", "origins", [], "`object`, got `array` - at `$.context.origins`"),
    ],
)
def test_fields_of_another_type_are_refused_when_read(
    part: str, field: str, value: Any, words: str
) -> None:
    data = json.loads(PLAN.to_json())
    data[part][field] = value
    with pytest.raises(ValueError, match=re.escape(words)):
        Plan.from_json(json.dumps(data))


def test_a_notebook_shows_the_lines_of_the_text_escaped() -> None:
    page = replace(PLAN, saved=(SavedValue("<mm>", 8),))._repr_html_()
    assert "<td>peak</td><td>2.0 MiB predicted, budget 3.0 MiB</td>" in page
    assert "&lt;mm&gt;" in page
    assert "<mm>" not in page
