from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fxremat.problem.types import Kind, Phase
from fxremat.solver.mincut.network import Prices, build
from tests import problems


def test_arcs_of_an_op_with_an_either_reader() -> None:
    problem = problems.either()
    arcs = [
        (a.tail, a.head, a.capacity, a.reason)
        for a in build(problem, problems.flat_prices(problem))
    ]
    assert arcs == [
        ("source", "op:matmul", 10.0, "matmul: recomputed"),
        ("value:x", "op:matmul", math.inf, "matmul: reads x when recomputed"),
        ("value:w", "op:matmul", math.inf, "matmul: reads w when recomputed"),
        ("source", "op:tanh", 1.0, "tanh: recomputed"),
        ("value:h", "op:tanh", math.inf, "tanh: reads h when recomputed"),
        ("source", "op:slope", 0.0, "slope: recomputed"),
        ("value:y", "op:slope", math.inf, "slope: reads y when recomputed"),
        ("source", "value:x", 0.0, "x: exists anyway"),
        ("value:x", "sink", math.inf, "y_back: reads x in the backward"),
        ("source", "value:w", 0.0, "w: exists anyway"),
        ("value:w", "sink", math.inf, "y_back: reads w in the backward"),
        ("op:matmul", "value:h", 8.0, "h: saved"),
        ("op:tanh", "value:y", 3.0, "y: saved"),
        ("op:slope", "value:e", 8.0, "e: saved"),
        ("value:e", "sink", math.inf, "y_back: reads e in the backward"),
    ]


def test_rules_are_infinite_with_their_reason() -> None:
    problem = problems.conflict()
    arcs = {(a.tail, a.head): a for a in build(problem, problems.flat_prices(problem))}
    fixed, kept = arcs["source", "op:drop"], arcs["op:fs", "value:s"]
    assert (fixed.capacity, fixed.reason) == (math.inf, "drop: may not be recomputed (random)")
    assert (kept.capacity, kept.reason) == (math.inf, "s: may not be saved (symbolic float)")
    assert "value:x" not in {head for _, head in arcs}, "nothing is needed past a fixed op"


def test_the_first_reader_is_named() -> None:
    draft = problems.Draft().value("x", 8, kind=Kind.INPUT).value("d", 8).value("e", 8)
    draft.op("d = one x", 1, Phase.BACKWARD).op("e = two x", 1, Phase.BACKWARD)
    problem = draft.done()
    reasons = [a.reason for a in build(problem, problems.flat_prices(problem))]
    assert reasons == ["x: exists anyway", "one: reads x in the backward"]


def test_unreachable_parts_are_left_out() -> None:
    problem = problems.diamond()
    nodes = {n for a in build(problem, problems.flat_prices(problem)) for n in (a.tail, a.head)}
    assert "value:l" in nodes
    assert "value:s" not in nodes
    assert not any("back" in n or n == "value:t" for n in nodes)


def test_held_is_free() -> None:
    problem = problems.held()
    arcs = {a.head: a for a in build(problem, problems.flat_prices(problem)) if a.tail[0] == "o"}
    assert (arcs["value:y"].capacity, arcs["value:y"].reason) == (
        0.0,
        "y: held by the caller anyway",
    )


def test_nothing_needed_has_no_arcs() -> None:
    empty = problems.nothing_needed()
    assert build(empty, problems.flat_prices(empty)) == ()


@pytest.mark.parametrize(
    ("recompute", "save", "message"),
    [
        ((1.0,), None, r"prices.recompute has 1 entries; the problem needs 7"),
        (None, (1.0,), r"prices.save has 1 entries; the problem needs 8"),
        ((1.0, 1.0, -1.0, *(1.0,) * 4), None, r"the price of fc is -1.0; .*Op.fixed"),
        (None, (1.0, math.inf, *(0.0,) * 6), r"the price of a is inf; .*Value.unsaveable"),
        (None, (1.0, math.nan, *(0.0,) * 6), r"the price of a is nan"),
    ],
)
def test_bad_prices(
    recompute: tuple[float, ...] | None, save: tuple[float, ...] | None, message: str
) -> None:
    problem = problems.chain()
    good = problems.flat_prices(problem)
    with pytest.raises(ValueError, match=message):
        build(problem, Prices(recompute or good.recompute, save or good.save))


def test_names_must_differ() -> None:
    problem = problems.chain()
    values = tuple(replace(v, name="a") if v.name == "b" else v for v in problem.values)
    with pytest.raises(ValueError, match="value:a stands for two nodes"):
        build(replace(problem, values=values), problems.flat_prices(problem))
