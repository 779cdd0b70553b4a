from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from fxremat.plans.plan import Plan, SavedValue

PLAN = Plan(
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


def test_files_of_the_last_format_are_read() -> None:
    data = PLAN.to_data() | {"format": 4}
    data["schedule"], data["held"] = data.pop("backward_schedule"), data.pop("reserved")
    assert Plan.from_data(data) == PLAN


def test_sums() -> None:
    assert PLAN.saved_bytes == 12288
    assert PLAN.overhead == 0.125
    assert PLAN.repeats == {"tanh": 2}
    assert replace(PLAN, step_seconds=0.0).overhead == 0.0


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 99}', '"plan"', "null"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"not a plan of format 5; write it again with to_json\(\)"
    ):
        Plan.from_json(text)


def test_missing_and_unknown_fields_are_named() -> None:
    data = json.loads(PLAN.to_json())
    del data["floor"]
    data["roof"] = 1
    with pytest.raises(ValueError, match="fields missing or unknown: floor, roof"):
        Plan.from_json(json.dumps(data))


def test_broken_json_is_refused() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        Plan.from_json('{"format": ')


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
    ("field", "value", "words"),
    [
        ("predicted_peak", "12", "predicted_peak is '12', not a whole number"),
        ("step_seconds", None, "step_seconds is None, not a number"),
        ("budget", 1.5, "budget is 1.5, not a number of bytes or null"),
        ("backward_schedule", "mm", "backward_schedule is 'mm', not a list"),
        ("saved", [{"name": "mm"}], "saved is .*nbytes"),
        ("complete", 1, "complete is 1, not true or false"),
    ],
)
def test_fields_of_another_type_are_refused_when_read(field: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Plan.from_data({**PLAN.to_data(), field: value})


def test_a_notebook_shows_the_lines_of_the_text_escaped() -> None:
    page = replace(PLAN, saved=(SavedValue("<mm>", 8),))._repr_html_()
    assert "<td>peak</td><td>2.0 MiB predicted, budget 3.0 MiB</td>" in page
    assert "&lt;mm&gt;" in page
    assert "<mm>" not in page
