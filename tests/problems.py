"""Small problems drawn by hand. Sizes are abstract bytes, times abstract seconds."""

from __future__ import annotations

from collections.abc import Sequence

from fxremat.problem.types import Kind, Op, Phase, Problem, Value
from fxremat.solver.mincut.network import Prices


class Draft:
    """A problem under construction, in which values and ops go by name."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.ops: list[Op] = []
        self.index: dict[str, int] = {}

    def value(self, name: str, nbytes: int, **fields: object) -> Draft:
        """Add a value."""
        self.index[name] = len(self.values)
        self.values.append(Value(name, nbytes, **fields))  # type: ignore[arg-type]
        return self

    def op(
        self, text: str, seconds: float, phase: Phase = Phase.FORWARD, **fields: object
    ) -> Draft:
        """Add an op, written as "out out = name in in"."""
        left, right = text.split("=")
        name, *inputs = right.split()
        outputs = tuple(self.index[v] for v in left.split())
        sources = tuple(self.index[v] for v in inputs)
        self.ops.append(Op(name, sources, outputs, seconds, phase=phase, **fields))  # type: ignore[arg-type]
        return self

    def done(self) -> Problem:
        """The problem; ops run in the order in which they were added."""
        backward = [i for i, op in enumerate(self.ops) if op.phase is Phase.BACKWARD]
        forward = [i for i, op in enumerate(self.ops) if op.phase is not Phase.BACKWARD]
        return Problem(tuple(self.values), tuple(self.ops), tuple(forward), tuple(backward))


def flat_prices(problem: Problem, *, per_byte: float = 1.0) -> Prices:
    """Bytes times a price for saving, the seconds for recomputing; DEFERRABLE ops are free."""
    recompute = [0.0 if op.phase is Phase.DEFERRABLE else op.seconds for op in problem.ops]
    return Prices(tuple(recompute), tuple(per_byte * v.nbytes for v in problem.values))


def names(problem: Problem, values: Sequence[int] | frozenset[int]) -> set[str]:
    """Names of values."""
    return {problem.values[v].name for v in values}


def op_names(problem: Problem, ops: Sequence[int] | frozenset[int]) -> set[str]:
    """Names of ops."""
    return {problem.ops[o].name for o in ops}


def _with_gradient(draft: Draft, *uses: str) -> Problem:
    """Add one backward op per entry, in reverse order of the forward: "name value value".

    The last gradient is returned: the op ``output`` reads it.
    """
    draft.value("t", 4, kind=Kind.TANGENT)
    last = "t"
    for use in uses:
        name, *read = use.split()
        draft.value(f"d_{name}", 4)
        draft.op(f"d_{name} = {name}_back {last} {' '.join(read)}", 2.0, Phase.BACKWARD)
        last = f"d_{name}"
    return draft.op(f"= output {last}", 0.0, Phase.BACKWARD).done()


def chain() -> Problem:
    """x -> a -> b -> c, and the backward reads c, b and a.

    At a price of 1 a byte: a costs 8 to save and 1 to rebuild from x; b costs 8 or 2 more; c costs
    3 to save and 9 to rebuild. Best: save c, recompute a and b, 3 + 1 + 2 = 6 (save all: 19,
    recompute all: 12).
    """
    draft = Draft().value("x", 8, kind=Kind.INPUT)
    draft.value("a", 8).value("b", 8).value("c", 3)
    draft.op("a = fa x", 1).op("b = fb a", 2).op("c = fc b", 9)
    return _with_gradient(draft, "c c", "b b", "a a x")


def diamond() -> Problem:
    """x -> a, then a -> l and a -> r, then l, r -> s; the backward reads l and r only.

    Save l and r: 5 + 5 = 10. Recompute both from a: 2 + 2, and a: save 4 or recompute 7. Best:
    save a, recompute l and r, 4 + 2 + 2 = 8. Either one alone costs 5 + 2 + 4 = 11: a is shared.
    """
    draft = Draft().value("x", 8, kind=Kind.INPUT)
    draft.value("a", 4).value("l", 5).value("r", 5).value("s", 1, is_output=True)
    draft.op("a = fa x", 7).op("l = fl a", 2).op("r = fr a", 2).op("s = fs l r", 3)
    return _with_gradient(draft, "s l r")


def residual() -> Problem:
    """h1 = x + f(x), h2 = h1 + f(h1); the backward reads f1, f2 (their inner values) and h1.

    i1 = inner1(x), h1 = join1(x, i1), i2 = inner2(h1), h2 = join2(h1, i2), h2 returned. All values
    have 6 bytes; inner takes 4, join 1. i1: recompute 4 (from x). h1: recompute 1 (needs i1, which
    is there). i2: recompute 4 (needs h1, there). Best: recompute all, 4 + 1 + 4 = 9; saving
    any of i1, i2 is 2 dearer, saving h1 5 dearer.
    """
    draft = Draft().value("x", 6, kind=Kind.INPUT)
    draft.value("i1", 6).value("h1", 6).value("i2", 6).value("h2", 6, is_output=True)
    draft.op("i1 = inner1 x", 4).op("h1 = join1 x i1", 1)
    draft.op("i2 = inner2 h1", 4).op("h2 = join2 h1 i2", 1)
    return _with_gradient(draft, "two i2 h1", "one i1 x")


def two_outputs() -> Problem:
    """One op makes p and q; the backward reads both, and u, made from q.

    p and q cost 3 each to save, the op 5 to run, so running it once for both (5) beats saving both
    (6), and also saving one (3 + 5). u: save 4, recompute 1 with q there. Best: 5 + 1 = 6.
    """
    draft = Draft().value("x", 8, kind=Kind.INPUT).value("p", 3).value("q", 3).value("u", 4)
    draft.op("p q = pair x", 5).op("u = fu q", 1)
    return _with_gradient(draft, "u u q", "p p")


def random_op() -> Problem:
    """a = fa(x), m = dropout(a) which may not run again, y = fy(m); the backward reads y.

    y costs 9 to save, or 1 to recompute with m saved for 6. Best: save m, recompute fy, 7, however
    cheap the random op would be.
    """
    draft = Draft().value("x", 8, kind=Kind.INPUT).value("a", 8).value("m", 6).value("y", 9)
    draft.op("a = fa x", 1).op("m = drop a", 0.5, fixed="random").op("y = fy m", 1)
    return _with_gradient(draft, "y y")


def unsaveable() -> Problem:
    """s is a symbolic float made from a, and the backward reads it.

    s is free to save by its bytes (0) but may not be: recompute fs (1) from a: save 2 or rebuild 5.
    Best: save a, recompute fs, 3.
    """
    draft = Draft().value("x", 8, kind=Kind.INPUT).value("a", 2)
    draft.value("s", 0, unsaveable="symbolic float")
    draft.op("a = fa x", 5).op("s = fs a", 1)
    return _with_gradient(draft, "s s")


def either() -> Problem:
    """y = tanh(x W), and e = 1 - y * y is read by the backward alone.

    e costs 8 to save, and nothing to compute in the backward, where y must then be: save 3, or run
    matmul and tanh again (10 + 1). Best: run e in the backward, save y, 3.
    """
    draft = Draft().value("x", 8, kind=Kind.INPUT).value("w", 8, kind=Kind.INPUT)
    draft.value("h", 8).value("y", 3).value("e", 8)
    draft.op("h = matmul x w", 10).op("y = tanh h", 1)
    draft.op("e = slope y", 2, Phase.DEFERRABLE)
    return _with_gradient(draft, "y e x w")


def held() -> Problem:
    """y is returned by the forward and read by the backward, so is z = fz(y).

    y is there anyway: free. z: save 5 or recompute 2. Best: recompute fz from y, 2.
    """
    draft = Draft().value("x", 8, kind=Kind.INPUT).value("y", 9, is_output=True).value("z", 5)
    draft.op("y = fy x", 1).op("z = fz y", 2)
    return _with_gradient(draft, "z z y")


def conflict() -> Problem:
    """Nothing works: s may not be saved, nor its source m, and m's op may not run again."""
    draft = Draft().value("x", 8, kind=Kind.INPUT)
    draft.value("m", 4, unsaveable="opaque").value("s", 4, unsaveable="symbolic float")
    draft.op("m = drop x", 1, fixed="random").op("s = fs m", 1)
    return _with_gradient(draft, "s s")


def overwritten_input() -> Problem:
    """The forward overwrites x, so y = fy(x) cannot be rebuilt: save y, 8, though fy takes 1."""
    draft = Draft().value("x", 8, kind=Kind.INPUT, unsaveable="overwritten").value("y", 8)
    draft.op("y = fy x", 1)
    return _with_gradient(draft, "y y")


def nothing_needed() -> Problem:
    """The backward reads its tangent only."""
    draft = Draft().value("x", 8, kind=Kind.INPUT).value("y", 8, is_output=True)
    draft.op("y = fy x", 1)
    return _with_gradient(draft, "y")


# problem, saved values, recomputed ops, value: the best cut at flat_prices, as worked out above
BEST = [
    (chain, {"c"}, {"fa", "fb"}, 6.0),
    (diamond, {"a"}, {"fl", "fr"}, 8.0),
    (residual, set(), {"inner1", "join1", "inner2"}, 9.0),
    (two_outputs, set(), {"pair", "fu"}, 6.0),
    (random_op, {"m"}, {"fy"}, 7.0),
    (unsaveable, {"a"}, {"fs"}, 3.0),
    (either, {"y"}, {"slope"}, 3.0),
    (held, {"y"}, {"fz"}, 2.0),
    (overwritten_input, {"y"}, set[str](), 8.0),
    (nothing_needed, set[str](), set[str](), 0.0),
]
