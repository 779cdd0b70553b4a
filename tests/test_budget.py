"""Budgets as users write them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fxremat.base.budget import Budget, Limit, resolve
from fxremat.base.errors import BudgetError
from fxremat.base.units import format_bytes


@pytest.mark.parametrize(
    ("spec", "nbytes"),
    [
        (1, 1),
        (123456, 123456),
        (np.int64(7), 7),
        ("123456", 123456),
        ("6GiB", 6 * 2**30),
        ("512 MiB", 512 * 2**20),
        (" 512mib ", 512 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("1.1 kB", 1100),
        (".5 KiB", 512),
        ("1e3 B", 1000),
        ("100B", 100),
    ],
)
def test_bytes(spec: object, nbytes: int) -> None:
    budget = Budget.parse(spec)
    assert budget == Budget(nbytes=nbytes)
    assert resolve(budget, 10).nbytes == nbytes


@pytest.mark.parametrize(
    ("spec", "fraction"),
    [
        (1.0, 1.0),
        (0.4, 0.4),
        ("0.4", 0.4),
        ("40%", 0.4),
        ("40 %", 0.4),
        ("100%", 1.0),
        ("1.0", 1.0),
        (np.float64(0.25), 0.25),
        (np.float32(0.25), 0.25),
        (Fraction(1, 4), 0.25),
    ],
)
def test_fraction(spec: object, fraction: float) -> None:
    budget = Budget.parse(spec)
    assert budget == Budget(fraction=fraction)
    assert type(budget.fraction) is float
    assert resolve(budget, 1000).nbytes == fraction * 1000


def test_fraction_is_rounded_down_from_its_decimal_value() -> None:
    assert resolve(Budget.parse(0.5), 7).nbytes == 3
    assert 0.29 * 100 < 29  # what a product of floats would floor to 28
    assert resolve(Budget.parse(0.29), 100).nbytes == 29
    assert resolve(Budget.parse(1.0), 2**60 + 1).nbytes == 2**60 + 1


def test_none_and_min() -> None:
    assert Budget.parse(None) == Budget()
    assert resolve(Budget.parse(None), 10, 3, 2) == Limit(None, None)
    assert Budget.parse(" MIN ").smallest
    assert resolve(Budget.parse("min"), 10, 3, 2) == Limit(None, None)
    assert not Budget.parse(0.5).smallest


def test_what_is_reserved_lowers_bytes_alone_and_a_margin_the_target_alone() -> None:
    assert resolve(Budget.parse(100), 1000, reserved=30, margin=5) == Limit(70, 65)
    assert resolve(Budget.parse(0.5), 1000, reserved=30, margin=5) == Limit(500, 495)


def test_a_budget_is_itself_hashable_and_frozen() -> None:
    budget = Budget.parse("1GiB")
    assert Budget.parse(budget) is budget
    assert len({budget, Budget.parse(2**30)}) == 1
    with pytest.raises(AttributeError):
        budget.nbytes = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("spec", "cause", "remedy"),
    [
        (2.0, "a float is a fraction of the baseline peak", "write '2GiB' or an int for bytes"),
        (1e9, "a float is a fraction of the baseline peak", "write '1000000000B' or an int for"),
        ("150%", "must not exceed 1", "or an int for bytes"),
        ("2.0", "must not exceed 1", "write '2GiB'"),
        (0.0, "must be above 0", "'min'"),
        (-0.5, "must be above 0", "'min'"),
        ("-40%", "must be above 0", "'min'"),
        (0, "bytes must be positive", "'min'"),
        (-5, "this is -5 bytes", "'min'"),
        ("0", "bytes must be positive", "'min'"),
        ("-1GiB", "bytes must be positive", "'min'"),
        ("0.1B", "this is 0 bytes", "'min'"),
        (float("nan"), "not a finite number", "write '6GiB'"),
        (float("inf"), "not a finite number", "write '6GiB'"),
        ("nan", "not a finite number", "write '6GiB'"),
        (True, "a bool is not a size", "write '6GiB'"),
        (np.bool_(True), "is not a size", "write '6GiB'"),
        (1j, "a complex is not a size", "write '6GiB'"),
        ([1], "a list is not a size", "write '6GiB'"),
        ("", "not a size", "write '6GiB'"),
        ("lots", "not a size", "write '6GiB'"),
        ("GiB", "not a size", "write '6GiB'"),
        ("6G", "'G' is not a unit", "MiB, GiB"),
        ("6 gigs", "'gigs' is not a unit", "MiB, GiB"),
    ],
)
def test_bad_budgets(spec: object, cause: str, remedy: str) -> None:
    with pytest.raises(BudgetError) as caught:
        Budget.parse(spec)
    text = str(caught.value)
    assert text.startswith(f"budget {spec!r}: ")
    assert cause in text
    assert remedy in text
    assert isinstance(caught.value, ValueError)


@given(st.integers(1, 2**62))
def test_digits_are_bytes(n: int) -> None:
    assert Budget.parse(str(n)) == Budget.parse(n) == Budget.parse(f"{n}B")


@given(st.floats(0, 1, exclude_min=True), st.integers(0, 2**60))
def test_a_fraction_never_exceeds_the_baseline(fraction: float, peak: int) -> None:
    limit = resolve(Budget.parse(fraction), peak).nbytes
    assert limit is not None
    assert 0 <= limit <= peak


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (None, "no limit"),
        ("min", "smallest peak"),
        (0.4, "40% of the baseline peak"),
        (0.29, "29% of the baseline peak"),
        ("6GiB", "6.0 GiB"),
        (100, "100 B"),
    ],
)
def test_str(spec: object, text: str) -> None:
    assert str(Budget.parse(spec)) == text


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (129394278, "123.4 MiB"),
        (-(2**30), "-1.0 GiB"),
        (5 * 2**40, "5.0 TiB"),
        (5000 * 2**40, "5000.0 TiB"),
    ],
)
def test_format_bytes(n: int, text: str) -> None:
    assert format_bytes(n) == text
