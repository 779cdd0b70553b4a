"""The memory budget, parsed once where it enters.

A budget limits the peak of bytes that a compiled region holds above what exists when the region
is entered. It is given in bytes, as a fraction of the baseline peak (the peak of the plan that
recomputes nothing), as the smallest peak that can be had, or not at all.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real

from fxremat.base.errors import BudgetError
from fxremat.base.units import format_bytes

__all__ = ["Budget", "BudgetLike", "Limit", "resolve"]

_DECIMAL = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_UNITS = _DECIMAL | _BINARY
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,3})?)\s*(%|[a-z]*)", re.IGNORECASE)
_FORMS = "write '6GiB', '512 MiB', '1.5GB', '40%', 0.4, an int for bytes, 'min' or None"


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on the peak; at most one attribute is set, and none means no limit.

    Attributes:
        nbytes: the limit in bytes, or None.
        fraction: the limit as a fraction of the baseline peak, in (0, 1], or None.
        smallest: whether the smallest peak that a plan reaches is asked for.
    """

    nbytes: int | None = None
    fraction: float | None = None
    smallest: bool = False

    @classmethod
    def parse(cls, spec: object) -> Budget:
        """Read a budget as users write it.

        The type decides: an int is bytes (``1`` is one byte), a float is a fraction of the
        baseline peak (``1.0`` is all of it). In a string a unit makes bytes, ``%`` or a decimal
        point makes a fraction, and digits alone are bytes.

        Args:
            spec: None (no limit), a float in (0, 1], an int > 0, ``"min"``, a string such as
                ``"6GiB"``, ``"1.5GB"``, ``"40%"``, ``"0.4"``, ``"123456"``, or a Budget.

        Raises:
            BudgetError: if ``spec`` is none of these.
        """
        if spec is None:
            return cls()
        if isinstance(spec, Budget):
            return spec
        if isinstance(spec, str):
            return _parse_text(spec)
        if isinstance(spec, Integral) and not isinstance(spec, bool):
            return _of_bytes(int(spec), spec)
        if isinstance(spec, Real) and not isinstance(spec, bool):
            return _of_fraction(float(spec), spec)
        raise BudgetError(f"budget {spec!r}: a {type(spec).__name__} is not a size; {_FORMS}")

    def __str__(self) -> str:
        """The budget for a reader, for instance ``"6.0 GiB"``."""
        if self.smallest:
            return "smallest peak"
        if self.fraction is not None:
            return f"{float(Fraction(repr(self.fraction)) * 100):g}% of the baseline peak"
        return "no limit" if self.nbytes is None else format_bytes(self.nbytes)


@dataclass(frozen=True, slots=True)
class Limit:
    """What a budget comes to for one graph.

    Attributes:
        nbytes: bytes that the peak of the graph may reach, or None for no limit.
        target: bytes to plan for, below that by a margin, or None.
    """

    nbytes: int | None
    target: int | None


def resolve(budget: Budget, baseline: int, reserved: int = 0, margin: int = 0) -> Limit:
    """A budget as bytes.

    Args:
        budget: the budget; the smallest peak is no limit, it is to be looked for.
        baseline: peak in bytes of the plan that recomputes nothing. A fraction of it is rounded
            down, and is taken at its decimal face value: 0.29 of 100 is 29.
        reserved: bytes that are held besides; they lower a budget in bytes, but no fraction.
        margin: bytes to stay below the limit.
    """
    limit = None if budget.nbytes is None else budget.nbytes - reserved
    if budget.fraction is not None:
        limit = math.floor(Fraction(repr(budget.fraction)) * baseline)
    return Limit(limit, None if limit is None else limit - margin)


BudgetLike = Budget | str | int | float | None  # as users write it


def _parse_text(spec: str) -> Budget:
    text = spec.strip()
    if text.lower() == "min":
        return Budget(smallest=True)
    if text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        raise BudgetError(f"budget {spec!r}: not a finite number; {_FORMS}")
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise BudgetError(f"budget {spec!r}: not a size; {_FORMS}")
    number, unit = match.groups()
    amount = Fraction(number)
    if unit == "%":
        return _of_fraction(float(amount / 100), spec)
    if unit.upper() in _UNITS:
        return _of_bytes(math.floor(amount * _UNITS[unit.upper()]), spec)
    if unit:
        raise BudgetError(
            f"budget {spec!r}: {unit!r} is not a unit; "
            "write B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024)"
        )
    if number.lstrip("+-").isdigit():
        return _of_bytes(int(number), spec)
    return _of_fraction(float(amount), spec)


def _of_bytes(nbytes: int, spec: object) -> Budget:
    if nbytes <= 0:
        raise BudgetError(
            f"budget {spec!r}: bytes must be positive, this is {nbytes} bytes; "
            "write 'min' for the smallest peak or None for no limit"
        )
    return Budget(nbytes=nbytes)


def _of_fraction(fraction: float, spec: object) -> Budget:
    if not math.isfinite(fraction):
        raise BudgetError(f"budget {spec!r}: not a finite number; {_FORMS}")
    if fraction > 1:
        size = f"'{fraction:g}GiB'" if fraction < 1024 else f"'{fraction:.0f}B'"
        raise BudgetError(
            f"budget {spec!r}: a float is a fraction of the baseline peak and must not exceed 1; "
            f"write {size} or an int for bytes, or None for no limit"
        )
    if fraction <= 0:
        raise BudgetError(
            f"budget {spec!r}: a fraction of the baseline peak must be above 0; "
            "write 'min' for the smallest peak or None for no limit"
        )
    return Budget(fraction=fraction)
