"""The options of a backend, parsed once where they enter."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from os import PathLike
from typing import Any, Literal, NoReturn, TypedDict, cast, get_args

from fxremat.base.budget import Budget, BudgetLike
from fxremat.base.errors import OptionError
from fxremat.constraints.user import VERDICTS, Policy
from fxremat.costs.devices import DeviceProfile, check_name
from fxremat.plans.plan import Plan

__all__ = [
    "BackendOptions",
    "ByHand",
    "Cost",
    "Infeasible",
    "Inner",
    "InnerName",
    "Options",
    "PlanOptions",
    "Ranks",
    "Solver",
    "Strategy",
]

InnerName = Literal["inductor", "eager"]
CostName = Literal["roofline", "measured"]
Inner = InnerName | Callable[..., Any]
Cost = CostName | Callable[..., Any]
Infeasible = Literal["raise", "closest"]
Solver = Literal["peak", "exact"]
Ranks = Literal["same", "own"]
PlanLike = Plan | str | PathLike[str]
ByHand = Literal["none", "full", "every", "sqrt", "selective"]
Strategy = Literal[ByHand, "auto"]


class PlanOptions(TypedDict, total=False):
    """The options that planning takes, by name, as users write them; see :class:`Options`."""

    inner: Inner
    cost: Cost
    on_infeasible: Infeasible
    time_limit: float | None
    effort: int
    solver: Solver
    policy: Policy | Mapping[str, str] | None
    regions: Mapping[str, BudgetLike]
    plan: PlanLike | Sequence[PlanLike] | None
    strategy: Strategy | None
    k: int
    ranks: Ranks
    dump: str | PathLike[str] | None


class BackendOptions(PlanOptions, total=False):
    """The options of :func:`fxremat.backend`, by name, as users write them."""

    device: str | DeviceProfile | None


@dataclass(frozen=True, slots=True)
class Options:
    """What a user can choose. :meth:`parse` checks; the constructor does not.

    Attributes:
        budget: limit on the peak.
        inner: what compiles the forward and backward graphs: ``"inductor"``, ``"eager"`` (runs
            them op by op), or a callable ``(graph_module, example_inputs) -> callable``.
        cost: how the seconds of an op are predicted: ``"roofline"``, ``"measured"`` (each
            distinct op is timed on the device), or a callable.
        device: the device profile to plan for, or its name; None is the device of the graph.
        on_infeasible: what to do with a budget that no plan meets: ``"raise"`` a BudgetError, or
            warn and take the ``"closest"`` plan.
        time_limit: cap on the time of planning one graph, in seconds; None is no cap.
        effort: rounds of search beyond the first plan, at least 0.
        solver: ``"peak"``, or ``"exact"``, which goes on from there with mixed-integer programs
            until the plan is proved the cheapest of its class, for small graphs. It can take
            hours, so give it a ``time_limit``.
        policy: what must or had better be saved or recomputed: pairs of a pattern and
            ``"save"``, ``"recompute"``, ``"prefer_save"`` or ``"prefer_recompute"``, or a callable
            that takes a graph node and returns one of these or None. A pattern (``fnmatch``) is
            held against the op (``"aten.mm"``), the path of its module and of those around it
            (``"blocks.*.attn"``), and the name of the node; the first that matches counts.
        regions: budgets for parts of the model: from patterns of module paths to what these hold
            between forward and backward, in bytes or as a fraction of what they hold when nothing
            is recomputed.
        plan: plans to apply as they are instead of searching: one, or a file written by
            ``plan.save``, or a list of them for a model of several graphs. Each graph takes the one
            that was made for it; budgets are those of the plans, and so is ``inner`` by default.
        strategy: what people do by hand, instead of a budget: ``"none"``, ``"full"`` (every block),
            ``"every"`` (every ``k`` blocks), ``"sqrt"``, ``"selective"``, see
            :mod:`fxremat.planning.strategies`; or ``"auto"``, the knee of the frontier.
        k: blocks in one stretch, for ``strategy="every"``.
        ranks: where several processes train a model (``torch.distributed``): ``"same"``, all ranks
            take the plan of the first to come, and graphs that differ are an error; or ``"own"``,
            each rank plans for itself, as for the stages of a pipeline.
        dump: a folder in which each graph that is compiled leaves its plan, report and drawings.
    """

    budget: Budget = Budget()
    inner: Inner = "inductor"
    cost: Cost = "roofline"
    device: str | DeviceProfile | None = None
    on_infeasible: Infeasible = "raise"
    time_limit: float | None = None
    effort: int = 1
    solver: Solver = "peak"
    policy: Policy | None = None
    regions: tuple[tuple[str, Budget], ...] = ()
    plan: tuple[Plan, ...] | None = None
    strategy: str | None = None
    k: int = 1
    ranks: Ranks = "same"
    dump: str | None = None

    @classmethod
    def parse(cls, budget: object = None, **options: object) -> Options:
        """Read a budget and options as users write them.

        Args:
            budget: see :meth:`Budget.parse`.
            options: the other attributes of this class, by name.

        Raises:
            OptionError: if a name is unknown, or a value has the wrong type or is out of range.
            BudgetError: if the budget makes no sense.
        """
        for name in options:
            if name not in _READERS:
                _reject_name(name)
        read = {name: _READERS[name](name, value) for name, value in options.items()}
        if read.get("plan") is not None and "inner" not in options:
            read["inner"] = _inner_of(cast("tuple[Plan, ...]", read["plan"]))
        _refuse_two({**read, "budget": budget})
        return cls(budget=Budget.parse(budget), **cast("dict[str, Any]", read))

    @classmethod
    def from_mapping(cls, options: Mapping[str, object]) -> Options:
        """Read the ``options`` of ``torch.compile(model, backend="fxremat", options=...)``.

        Args:
            options: as for :meth:`parse`; ``"budget"`` is one of the keys, and may be left out.

        Raises:
            OptionError: as for :meth:`parse`, and if ``options`` is not a mapping with strings
                for keys.
            BudgetError: if the budget makes no sense.
        """
        if not isinstance(options, Mapping):
            kind = type(options).__name__
            raise OptionError(f"options {options!r}: a {kind} is not a mapping; write a dict")
        for name in options:
            if not isinstance(name, str):
                _reject_name(name)
        return cls.parse(**options)


def _refuse_two(given: Mapping[str, object]) -> None:
    """A budget, a strategy and a plan each say what to do; two of them could contradict."""
    said = [n for n in ("budget", "strategy", "plan") if given.get(n) is not None]
    if len(said) > 1:
        raise OptionError(f"{' and '.join(said)} were given; give one of budget, strategy and plan")
    if given.get("k", 1) != 1 and given.get("strategy") != "every":
        raise OptionError(f"k={given['k']!r}: only strategy='every' takes k; give both, or neither")


def _inner_of(plans: Sequence[Plan]) -> str:
    """The inner compiler that plans were made for; a callable must be given again."""
    inners = {p.context.inner for p in plans}
    (inner,) = inners if len(inners) == 1 else ("",)
    if inner not in get_args(InnerName):
        said = _join(sorted(inners)) or "a callable"
        raise OptionError(f"the plans were made for {said}; give inner=... of their graphs")
    return inner


def _reject_name(name: object) -> NoReturn:
    if name == "memory":
        raise OptionError(
            "memory=...: what is left beside parameters and optimizer is known to "
            "fxremat.plan(model, ..., memory=...), which runs nothing; give its plan, or a budget"
        )
    known = [f.name for f in fields(Options)]
    raise OptionError(f"unknown option {name!r};{_nearest(name, known)} options: {_join(known)}")


def _nearest(word: object, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(word).lower(), list(known), n=1, cutoff=0.5)
    return f" did you mean {near[0]!r}?" if near else ""


def _join(words: Iterable[str]) -> str:
    return ", ".join(words)


def _choice(name: str, value: object, known: tuple[str, ...], other: str = "") -> object:
    if isinstance(value, str) and value in known:
        return value
    what = f"{name}={value!r}: not one of {_join(map(repr, known))}"
    near = _nearest(value, known) if isinstance(value, str) else ""
    raise OptionError(f"{what};{near} write one of these{other}")


def _one_of(kind: object) -> Callable[[str, object], object]:
    """A reader of a word of a Literal."""
    return lambda name, value: _choice(name, value, get_args(kind))


def _one_of_or_callable(kind: object) -> Callable[[str, object], object]:
    """A reader of a word of a Literal, or of a function of the user's."""

    def read(name: str, value: object) -> object:
        if callable(value):
            return value
        return _choice(name, value, get_args(kind), " or pass a callable")

    return read


def _read_device(name: str, value: object) -> object:
    if value is None or isinstance(value, DeviceProfile):
        return value
    if isinstance(value, str) and value.strip():
        return check_name(value)
    raise OptionError(
        f"{name}={value!r}: not the name of a device profile; "
        "write a name such as 'h100', or None for the device of the graph"
    )


def _read_policy(name: str, value: object) -> object:
    if value is None or callable(value):
        return value
    pairs = _pairs(name, value, "policy", "{'aten.mm': 'save'}, or pass a callable")
    for pattern, verdict in pairs:
        _choice(f"{name}[{pattern!r}]", verdict, VERDICTS)
    return pairs


def _read_regions(name: str, value: object) -> object:
    pairs = _pairs(name, value, "table", "{'blocks.0': 0.5}")
    return tuple((pattern, Budget.parse(budget)) for pattern, budget in pairs)


def _pairs(name: str, value: object, what: str, example: str) -> tuple[tuple[str, Any], ...]:
    """A mapping from patterns, in its order."""
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise OptionError(
            f"{name}={value!r}: a {kind} is no {what}; write a dict such as {example}"
        )
    for pattern in value:
        if not isinstance(pattern, str):
            raise OptionError(f"{name}: {pattern!r} is no pattern; write a string")
    return tuple(value.items())


def _read_plan(name: str, value: object) -> object:
    if value is None:
        return None
    several = value if isinstance(value, (list, tuple)) else [value]
    if not several:
        raise OptionError(f"{name}={value!r}: no plan in it; give plans, or None to search for one")
    return tuple(_one_plan(name, one) for one in several)


def _one_plan(name: str, value: object) -> Plan:
    if isinstance(value, Plan):
        return value
    if isinstance(value, (str, PathLike)):
        return Plan.load(value)
    raise OptionError(
        f"{name}={value!r}: a {type(value).__name__} is no plan; give a Plan, the path of a file "
        "written by plan.save(), or a list of these"
    )


def _read_strategy(name: str, value: object) -> object:
    return None if value is None else _choice(name, value, get_args(Strategy))


def _at_least(least: int, what: str) -> Callable[[str, object], object]:
    """A reader of a whole number."""

    def read(name: str, value: object) -> object:
        if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least:
            return int(value)
        raise OptionError(f"{name}={value!r}: not a {what}; write an int, {least} or more")

    return read


def _read_dump(name: str, value: object) -> object:
    if value is None:
        return None
    if isinstance(value, (str, PathLike)) and str(value):
        return str(value)
    raise OptionError(f"{name}={value!r}: not a folder; write its path, or None for no dump")


def _read_time_limit(name: str, value: object) -> object:
    if value is None:
        return None
    if isinstance(value, Real) and not isinstance(value, bool):
        seconds = float(value)
        if math.isfinite(seconds) and seconds > 0:
            return seconds
    raise OptionError(
        f"{name}={value!r}: not a positive number of seconds; write one, or None for no limit"
    )


_READERS: dict[str, Callable[[str, object], object]] = {
    "inner": _one_of_or_callable(InnerName),
    "cost": _one_of_or_callable(CostName),
    "device": _read_device,
    "on_infeasible": _one_of(Infeasible),
    "time_limit": _read_time_limit,
    "effort": _at_least(0, "whole number of rounds"),
    "solver": _one_of(Solver),
    "policy": _read_policy,
    "regions": _read_regions,
    "plan": _read_plan,
    "strategy": _read_strategy,
    "k": _at_least(1, "number of blocks"),
    "ranks": _one_of(Ranks),
    "dump": _read_dump,
}
