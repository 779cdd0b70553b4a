"""Options as users write them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import fxremat
from fxremat.base.budget import Budget
from fxremat.base.errors import BudgetError, OptionError
from fxremat.options import BackendOptions, Options, PlanOptions
from tests.steps import half


def compile_nothing(*args: Any) -> Any:
    return args


def test_defaults() -> None:
    options = Options.parse()
    assert options == Options()
    assert options.budget == Budget()
    assert (options.inner, options.cost, options.device) == ("inductor", "roofline", None)
    assert (options.on_infeasible, options.time_limit, options.effort) == ("raise", None, 1)


def test_every_option_is_read() -> None:
    options = Options.parse(
        "6GiB",
        inner="eager",
        cost="measured",
        device="h100",
        on_infeasible="closest",
        time_limit=3,
        effort=np.int64(0),
    )
    assert options == Options(
        Budget(nbytes=6 * 2**30), "eager", "measured", "h100", "closest", 3.0, 0
    )
    assert type(options.time_limit) is float
    assert type(options.effort) is int


def test_callables_are_taken() -> None:
    options = Options.parse(0.5, inner=compile_nothing, cost=compile_nothing)
    assert options.inner is compile_nothing
    assert options.cost is compile_nothing


def test_options_are_frozen_and_hashable() -> None:
    options = Options.parse(0.5, inner=compile_nothing)
    assert len({options, Options.parse(0.5, inner=compile_nothing)}) == 1
    with pytest.raises(AttributeError):
        options.effort = 3  # type: ignore[misc]


def test_from_mapping() -> None:
    assert Options.from_mapping({"budget": "40%", "inner": "eager"}) == Options.parse(
        0.4, inner="eager"
    )
    assert Options.from_mapping({}) == Options()


@pytest.mark.parametrize("options", [[("budget", 1)], "budget", None])
def test_from_mapping_wants_a_mapping(options: Any) -> None:
    with pytest.raises(OptionError, match="is not a mapping; write a dict"):
        Options.from_mapping(options)


def test_from_mapping_wants_strings_for_keys() -> None:
    with pytest.raises(OptionError, match="unknown option 3; options: budget, inner"):
        Options.from_mapping({3: 4})  # type: ignore[dict-item]


ALL = (
    "options: budget, inner, cost, device, on_infeasible, time_limit, effort, solver, "
    "policy, regions, plan, strategy, k, ranks, dump"
)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("iner", "inner"),
        ("timelimit", "time_limit"),
        ("on_infeasable", "on_infeasible"),
        ("Budgets", "budget"),
    ],
)
def test_unknown_option_names_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(OptionError) as caught:
        Options.parse(None, **{name: 1})
    assert str(caught.value) == f"unknown option {name!r}; did you mean {nearest!r}? {ALL}"


def test_unknown_option_far_from_all() -> None:
    with pytest.raises(OptionError) as caught:
        Options.from_mapping({"zzz": 1})
    assert str(caught.value) == f"unknown option 'zzz'; {ALL}"


@pytest.mark.parametrize(
    ("name", "value", "cause", "remedy"),
    [
        ("inner", "inducter", "not one of 'inductor', 'eager'", "did you mean 'inductor'?"),
        ("inner", 3, "not one of 'inductor', 'eager'", "or pass a callable"),
        ("cost", "roof", "not one of 'roofline', 'measured'", "did you mean 'roofline'?"),
        ("cost", None, "not one of 'roofline', 'measured'", "or pass a callable"),
        ("device", 0, "not the name of a device profile", "write a name such as 'h100'"),
        ("device", " ", "not the name of a device profile", "write a name such as 'h100'"),
        ("on_infeasible", "warn", "not one of 'raise', 'closest'", "write one of these"),
        ("on_infeasible", compile_nothing, "not one of 'raise', 'closest'", "write one of these"),
        ("on_infeasible", ["raise"], "not one of 'raise', 'closest'", "write one of these"),
        ("time_limit", 0, "not a positive number of seconds", "None for no limit"),
        ("time_limit", -1.0, "not a positive number of seconds", "None for no limit"),
        ("time_limit", float("nan"), "not a positive number of seconds", "None for no limit"),
        ("time_limit", float("inf"), "not a positive number of seconds", "None for no limit"),
        ("time_limit", True, "not a positive number of seconds", "None for no limit"),
        ("time_limit", "3", "not a positive number of seconds", "None for no limit"),
        ("solver", "exakt", "not one of 'peak', 'exact'", "did you mean 'exact'"),
        ("effort", -1, "not a whole number of rounds", "write an int, 0 or more"),
        ("effort", 1.0, "not a whole number of rounds", "write an int, 0 or more"),
        ("effort", True, "not a whole number of rounds", "write an int, 0 or more"),
    ],
)
def test_bad_values(name: str, value: object, cause: str, remedy: str) -> None:
    with pytest.raises(OptionError) as caught:
        Options.parse(None, **{name: value})
    text = str(caught.value)
    assert text.startswith(f"{name}={value!r}: ")
    assert cause in text
    assert remedy in text


def test_a_bad_budget_is_a_budget_error() -> None:
    with pytest.raises(BudgetError, match="a float is a fraction"):
        Options.from_mapping({"budget": 2.0})


def test_the_typed_options_are_those_that_are_read() -> None:
    known = {f.name for f in fields(Options)} - {"budget"}
    assert set(BackendOptions.__optional_keys__) == known
    assert set(PlanOptions.__optional_keys__) == known - {"device"}


def test_a_plan_brings_its_inner_compiler() -> None:
    plan = half()
    assert plan.context.inner == "eager"
    assert Options.parse(plan=plan).inner == "eager"
    assert Options.parse(plan=plan, inner="inductor").inner == "inductor"
    other = replace(plan, context=replace(plan.context, inner="inductor"))
    with pytest.raises(OptionError, match="made for eager, inductor; give inner="):
        Options.parse(plan=[plan, other])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "80GiB"}, "fxremat.plan.model, ..., memory=..."),
        ({"device": "h1000"}, "unknown device profile 'h1000'; did you mean 'h100'"),
    ],
)
def test_what_is_wrong_is_said_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fxremat.backend(**options)
