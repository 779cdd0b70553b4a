"""Hypothesis strategies for random problems and prices."""

from __future__ import annotations

from hypothesis import strategies as st

from fxremat.problem.types import Kind, Op, Phase, Problem, Value
from fxremat.solver.mincut.network import Prices


class _Drawn:
    """Values and ops drawn so far."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.values: list[Value] = []
        self.ops: list[Op] = []

    def value(self, name: str, **fields: object) -> int:
        nbytes = self.draw(st.integers(0, 64))
        self.values.append(Value(name, nbytes, **fields))  # type: ignore[arg-type]
        return len(self.values) - 1

    def some(self, pool: list[int], least: int, most: int) -> tuple[int, ...]:
        size = st.lists(st.sampled_from(pool), min_size=least, max_size=most, unique=True)
        return tuple(self.draw(size)) if pool else ()

    def op(
        self,
        inputs: tuple[int, ...],
        outputs: list[int],
        phase: Phase,
        fixed: str,
        again: tuple[int, ...] = (),
    ) -> None:
        seconds = self.draw(st.integers(0, 32)) / 4
        workspace = self.draw(st.sampled_from((0, 0, 0, 5, 40)))
        flops = self.draw(st.integers(0, 100))
        name = f"op{len(self.ops)}"
        costs = (seconds, flops, workspace)
        more = self.draw(st.integers(0, 20)) if again else 0
        self.ops.append(Op(name, inputs, tuple(outputs), *costs, phase, fixed, again, more))

    def early(self, source: int) -> int:
        """A value that the forward makes for later runs alone."""
        made = self.value(f"e{len(self.values)}")
        read = (source,) if self.draw(st.booleans()) else ()
        self.op(read, [made], Phase.REPLAY_SUPPORT, "it serves later runs alone")
        return made


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    max_values: int = 10,
    rules: bool = False,
    either: bool = True,
    early: bool = True,
) -> Problem:
    """Random problems.

    Forward ops read 1 to 3 values and make 1 or 2; some are DEFERRABLE ops, read by DEFERRABLE and
    backward ops alone. Backward ops read forward values, earlier backward values and the tangent.

    Args:
        draw: given by hypothesis.
        max_values: at most so many values are computed by forward and DEFERRABLE ops.
        rules: whether some values are unsaveable and some ops fixed; no cut may be left then.
        either: whether there are DEFERRABLE ops.
        early: whether there are REPLAY_SUPPORT ops, and ops that read their results when run again.
    """
    drawn = _Drawn(draw)
    inputs = [drawn.value(f"x{i}", kind=Kind.INPUT) for i in range(draw(st.integers(1, 2)))]
    plain, late = list(inputs), list[int]()  # what forward ops may read; what DEFERRABLE ops made
    wanted = draw(st.integers(1, max_values))
    while (made := len(plain) + len(late) - len(inputs)) < wanted:
        is_either = either and draw(st.integers(0, 4)) == 0
        read = drawn.some(plain + late if is_either else plain, 1, 3)
        outputs = []
        for _ in range(min(draw(st.sampled_from((1, 1, 2))), wanted - made)):
            no = "may not" if rules and draw(st.integers(0, 5)) == 0 else ""
            kept = not is_either and draw(st.integers(0, 5)) == 0
            outputs.append(drawn.value(f"v{len(drawn.values)}", is_output=kept, unsaveable=no))
        fixed = "may not" if rules and draw(st.integers(0, 5)) == 0 else ""
        late_reads = early and not is_either and not fixed and draw(st.integers(0, 5)) == 0
        again = (drawn.early(inputs[0]),) if late_reads else ()
        drawn.op(read, outputs, Phase.DEFERRABLE if is_either else Phase.FORWARD, fixed, again)
        (late if is_either else plain).extend(outputs)
    first_backward = len(drawn.ops)
    _backward(drawn, plain + late)
    return Problem(
        tuple(drawn.values),
        tuple(drawn.ops),
        tuple(range(first_backward)),
        tuple(range(first_backward, len(drawn.ops))),
    )


def _backward(drawn: _Drawn, readable: list[int]) -> None:
    draw = drawn.draw
    gradients = [drawn.value("tangent", kind=Kind.TANGENT)]
    for number in range(draw(st.integers(1, 6))):
        read = drawn.some(gradients, 1, 2) + drawn.some(readable, 0, 3)
        made = [drawn.value(f"g{number}_{i}") for i in range(draw(st.sampled_from((1, 1, 2))))]
        drawn.op(read, made, Phase.BACKWARD, "")
        gradients += made
    returned = drawn.some(gradients[1:], 0, 3)
    workspace = draw(st.sampled_from((0, 0, 7)))
    drawn.ops.append(Op("output", returned, (), 0.0, 0, workspace, Phase.BACKWARD))


def prices_for(problem: Problem, *, whole: bool = True) -> st.SearchStrategy[Prices]:
    """Random prices, DEFERRABLE ops at zero: small integers, often with ties, or floats."""
    price = st.integers(0, 12).map(float) if whole else st.floats(0, 1e6, allow_subnormal=False)

    def build(drawn: list[float]) -> Prices:
        recompute = drawn[: len(problem.ops)]
        free = [o.phase is Phase.DEFERRABLE for o in problem.ops]
        return Prices(
            tuple(0.0 if f else p for f, p in zip(free, recompute, strict=True)),
            tuple(drawn[len(problem.ops) :]),
        )

    size = len(problem.ops) + len(problem.values)
    return st.lists(price, min_size=size, max_size=size).map(build)
