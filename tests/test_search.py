"""What single moves of the search are there for, on problems drawn for them."""

from __future__ import annotations

import random

from fxremat.problem.replay import replay
from fxremat.problem.types import Kind, Phase, Problem
from fxremat.solver.bounds.peak import floor
from fxremat.solver.flat import FlatProblem
from fxremat.solver.peak_solver import PeakSolver
from fxremat.solver.schedule.removal import SAVED
from fxremat.solver.schedule.state import State
from fxremat.solver.search.destroy import Destroyer
from fxremat.solver.search.evict import evict
from fxremat.solver.seeds.cuts import baseline
from tests import problems
from tests.problems import Draft


def derivative_in_steps() -> Problem:
    """The backward reads e2 = g(e1), e1 = f(y, z), both DEFERRABLE; y and z are large, e2 small."""
    draft = Draft().value("x", 8, kind=Kind.INPUT).value("y", 40).value("z", 40)
    draft.value("e1", 20).value("e2", 4).value("o", 4)
    draft.value("t", 4, kind=Kind.TANGENT).value("d", 4)
    draft.op("y = fy x", 5).op("z = fz y", 5)
    draft.op("e1 = f y z", 2, Phase.DEFERRABLE).op("e2 = g e1", 2, Phase.DEFERRABLE)
    draft.op("o = fo y z", 1)
    draft.op("d = back t e2", 1, Phase.BACKWARD)
    return draft.op("= output d", 0.0, Phase.BACKWARD).done()


def test_a_chain_that_only_the_backward_reads_is_hoisted_as_one() -> None:
    """Saving e2 runs f and g in the forward instead of the backward, so it costs nothing.

    In the forward y, z, e1 and e2 are live at g: 104, in the backward t4 e2 4 d4. Were it to run f
    and g itself, the backward would hold t4, y and z, and e1 on top: 104 too.
    """
    problem = derivative_in_steps()
    flat = FlatProblem.of(problem)
    names = [op.name for op in problem.ops]
    f, g = names.index("f"), names.index("g")
    assert flat.hoist[g] == (f, g)
    state = State(flat, baseline(problem))
    q = state.ops.index(g)
    change = state.removal(q)
    assert change is not None
    assert change.gain == 0
    state.commit(change)
    line = replay(problem, state.schedule())
    assert line.recompute_seconds == 0 == state.cost
    assert max(line.backward) == 12
    assert state.peak == line.peak == 104
    # e1 is held for g alone, between f and g
    assert [int(b) for b in state.forward] == [40, 80, 100, 104, 88]


def test_what_saves_the_same_chain_is_charged_once() -> None:
    draft = Draft().value("x", 8, kind=Kind.INPUT).value("y", 40)
    draft.value("e", 20).value("a", 4).value("b", 4).value("o", 4)
    draft.value("t", 4, kind=Kind.TANGENT).value("d1", 4).value("d2", 4)
    draft.op("y = fy x", 5).op("e = f y", 2, Phase.DEFERRABLE)
    draft.op("a = ga e", 1, Phase.DEFERRABLE).op("b = gb e", 1, Phase.DEFERRABLE).op("o = fo y", 1)
    draft.op("d1 = back1 t a", 1, Phase.BACKWARD).op("d2 = back2 d1 b", 1, Phase.BACKWARD)
    problem = draft.op("= output d2", 0.0, Phase.BACKWARD).done()
    flat = FlatProblem.of(problem)
    only_backward = [o for o, op in enumerate(problem.ops) if op.phase is Phase.BACKWARD]
    state = State(flat, only_backward)
    assert state.cost == replay(problem, only_backward).recompute_seconds == 0


def test_runs_are_moved_to_where_more_room_is() -> None:
    """r (10) is made from x by way of q (10): 20 at once, beside t4 d1 4 and then d2 12.

    Right before its use that is 4 + 4 + 12 + 20 = 40; before d2 is made it is 28, and r beside d2
    and d1 is 30.
    """
    draft = Draft().value("x", 8, kind=Kind.INPUT).value("q", 10).value("r", 10).value("o", 1)
    draft.value("t", 4, kind=Kind.TANGENT).value("d1", 4).value("d2", 12).value("d3", 1)
    draft.op("q = fq x", 1).op("r = fr q", 1).op("o = fo r", 1)
    draft.op("d1 = b1 t", 1, Phase.BACKWARD).op("d2 = b2 d1", 1, Phase.BACKWARD)
    draft.op("d3 = b3 d1 d2 r", 1, Phase.BACKWARD)
    problem = draft.op("= output d3", 0.0, Phase.BACKWARD).done()
    flat = FlatProblem.of(problem)
    fq, fr, _, b1, b2, b3, out = range(7)
    late = State(flat, [b1, b2, fq, fr, b3, out])
    assert late.peak == 40
    assert evict(late, 31, thorough=False).peak == 40
    moved = evict(late, 31)
    assert moved.schedule() == [b1, fq, fr, b2, b3, out]
    assert moved.peak == 31


def test_the_floor_counts_what_may_not_run_again() -> None:
    """Masks of three random ops, 10 each, all wait for the end: t4 d4 and 30, not one mask only."""
    draft = Draft().value("x", 8, kind=Kind.INPUT).value("m1", 10).value("m2", 10).value("m3", 10)
    draft.value("t", 4, kind=Kind.TANGENT).value("d0", 4).value("d1", 4)
    draft.value("d2", 4).value("d3", 4)
    for name in ("m1", "m2", "m3"):
        draft.op(f"{name} = draw{name} x", 1, fixed="random")
    draft.op("d0 = b0 t", 1, Phase.BACKWARD).op("d1 = b1 d0 m3", 1, Phase.BACKWARD)
    draft.op("d2 = b2 d1 m2", 1, Phase.BACKWARD).op("d3 = b3 d2 m1", 1, Phase.BACKWARD)
    problem = draft.op("= output d3", 0.0, Phase.BACKWARD).done()
    assert floor(problem) == 4 + 4 + 4 + 30
    assert floor(problem) == PeakSolver(problem).least().peak


def test_destroyed_plans_are_schedules_of_the_problem() -> None:
    problem = problems.chain()
    flat = FlatProblem.of(problem)
    rng = random.Random(0)
    start = PeakSolver(problem).solve(24)
    assert start is not None
    seen = set()
    for _ in range(200):
        destroyed = Destroyer(flat).destroy(State(flat, start.schedule), 24, rng)
        if destroyed is not None:
            replay(problem, destroyed.schedule())
            chains = destroyed.chains.items()
            seen.add(frozenset(v for v, chain in chains if chain[0].start == SAVED))
    assert len(seen) >= 3
