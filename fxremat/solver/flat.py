"""A problem as flat lists, laid out once per solver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fxremat.problem.types import Kind, Phase, Problem

__all__ = ["Ints", "Table"]

REPEATS = 30  # runs of each op of the forward that a schedule may have on average
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Table:
    """What the inner loops of a solver look up.

    *Tracked* values are those computed by forward and DEFERRABLE ops: the ones a plan decides
    about. Values of the backward are never decided about, so their bytes are a fixed base.

    Attributes:
        problem: the problem.
        reads: for each op the tracked values it reads when the schedule runs it.
        makes: for each op the tracked values it makes.
        seconds, workspace: for each op when the schedule runs it.
        is_backward: whether an op is a backward op.
        rerun: whether an op may be put into the schedule once more.
        producer: for each value its op, or -1.
        nbytes: for each value what one copy of it costs.
        saving: for each value what saving it costs; 0 if it is alive anyway.
        saveable: whether a value may be saved.
        hoist: for each DEFERRABLE or REPLAY_SUPPORT op the ops to move into the forward to save its
            result, in order, ending with it; () if that is impossible, and for other ops.
        passing: for each DEFERRABLE op the bytes that only its hoisting holds in the forward, as
            spans.
        before, at: bytes of backward values that are live just before the k-th backward op, and
            while it runs, its workspace included.
        forward: live bytes at each position of the forward if nothing is saved.
        born, last: positions in the forward at which a value is made and last read.
        floor_seconds: time of the DEFERRABLE ops that every plan runs once.
        local: for each backward op the bytes that are live in every plan while it runs.
        longest: longest schedule considered (30 runs for each forward op).
    """

    problem: Problem
    reads: list[tuple[int, ...]]
    makes: list[tuple[int, ...]]
    seconds: list[float]
    workspace: list[int]
    is_backward: list[bool]
    rerun: list[bool]
    producer: tuple[int, ...]
    nbytes: list[int]
    saving: list[int]
    saveable: list[bool]
    hoist: list[tuple[int, ...]]
    passing: list[list[tuple[int, int, int]]]
    before: list[int]
    at: list[int]
    forward: Ints
    born: list[int]
    last: list[int]
    floor_seconds: float
    local: list[int]
    longest: int

    @classmethod
    def of(cls, problem: Problem) -> Table:
        """Lay out a problem."""
        ops, values = problem.ops, problem.values
        tracked = _tracked(problem)
        before, at = _backward_base(problem, tracked)
        forward, born, last = _forward_base(problem)
        hoist = _hoists(problem, born, last)
        saving = [0 if v.is_output else v.nbytes for v in values]
        reads = [tuple(v for v in (*o.inputs, *o.replay_inputs) if tracked[v]) for o in ops]
        return cls(
            problem=problem,
            reads=reads,
            makes=[tuple(v for v in o.outputs if tracked[v]) for o in ops],
            seconds=[o.seconds for o in ops],
            workspace=[o.workspace + o.replay_workspace for o in ops],
            is_backward=[o.phase is Phase.BACKWARD for o in ops],
            rerun=[o.phase in (Phase.FORWARD, Phase.DEFERRABLE) and not o.fixed for o in ops],
            producer=problem.producer,
            nbytes=[v.nbytes for v in values],
            saving=saving,
            saveable=[
                tracked[i] and not v.unsaveable and _reachable(problem, i, hoist)
                for i, v in enumerate(values)
            ],
            hoist=hoist,
            passing=[_passing(problem, chain, born) for chain in hoist],
            before=before,
            at=at,
            forward=forward,
            born=born,
            last=last,
            floor_seconds=sum(ops[o].seconds for o in problem.required),
            local=[
                b + sum(saving[v] for v in reads[o])
                for b, o in zip(at, problem.backward, strict=True)
            ],
            longest=len(problem.backward) + REPEATS * len(problem.forward),
        )


def _tracked(problem: Problem) -> list[bool]:
    return [p >= 0 and problem.ops[p].phase is not Phase.BACKWARD for p in problem.producer]


def _reachable(problem: Problem, value: int, hoist: list[tuple[int, ...]]) -> bool:
    op = problem.producer[value]
    return problem.ops[op].phase is Phase.FORWARD or bool(hoist[op])


def _backward_base(problem: Problem, tracked: list[bool]) -> tuple[list[int], list[int]]:
    count = len(problem.backward)
    constant = sum(v.nbytes for v in problem.values if v.is_output or v.kind is Kind.TANGENT)
    before, at = [0] * (count + 1), [0] * (count + 1)
    born: dict[int, int] = {}
    last: dict[int, int] = {}
    for k, index in enumerate(problem.backward):
        for v in problem.ops[index].outputs:
            born[v] = last[v] = k
        for v in problem.ops[index].inputs:
            if v in born:
                last[v] = k
    for v, k in born.items():
        nbytes = problem.values[v].nbytes
        at[k] += nbytes
        at[last[v] + 1] -= nbytes
        before[k + 1] += nbytes
        before[last[v] + 1] -= nbytes
    base_before = list(np.cumsum(np.array(before[:count], dtype=np.int64)) + constant)
    base_at = list(np.cumsum(np.array(at[:count], dtype=np.int64)) + constant)
    work = [problem.ops[o].workspace for o in problem.backward]
    return [int(b) for b in base_before], [int(b) + w for b, w in zip(base_at, work, strict=True)]


def _forward_base(problem: Problem) -> tuple[Ints, list[int], list[int]]:
    count = len(problem.forward)
    born, last = [-1] * len(problem.values), [-1] * len(problem.values)
    delta = np.zeros(count + 1, dtype=np.int64)
    for p, index in enumerate(problem.forward):
        op = problem.ops[index]
        runs = op.phase is Phase.FORWARD
        for v in op.inputs if runs else ():
            last[v] = p
        for v in op.outputs:
            born[v] = last[v] = p
    for v, value in enumerate(problem.values):
        if born[v] >= 0 and problem.ops[problem.producer[v]].phase is Phase.FORWARD:
            delta[born[v]] += value.nbytes
            delta[count if value.is_output else last[v] + 1] -= value.nbytes
    live = np.cumsum(delta[:count])
    for p, index in enumerate(problem.forward):
        if problem.ops[index].phase is Phase.FORWARD:
            live[p] += problem.ops[index].workspace
    return live, born, last


def _hoists(problem: Problem, born: list[int], last: list[int]) -> list[tuple[int, ...]]:
    """The ops to run in the forward for each DEFERRABLE op that can go there without much ado.

    Each of them reads forward values that are still live right before it, so running it early
    extends no life of theirs beyond its own position, and results of others of them.
    """
    found: list[tuple[int, ...]] = [()] * len(problem.ops)
    previous = -1
    for p, index in enumerate(problem.forward):
        op = problem.ops[index]
        if op.phase is Phase.FORWARD:
            previous = p
            continue
        chain: dict[int, None] = {}
        for v in op.inputs:
            maker = problem.producer[v]
            if maker < 0:
                continue
            if problem.ops[maker].phase is Phase.DEFERRABLE:
                if not found[maker]:
                    break
                chain.update(dict.fromkeys(found[maker]))
            elif last[v] < previous and not problem.values[v].is_output:
                break
        else:
            place = {o: born[problem.ops[o].outputs[0]] for o in chain}
            found[index] = (*sorted(chain, key=place.__getitem__), index)
    return found


def _passing(
    problem: Problem, chain: tuple[int, ...], born: list[int]
) -> list[tuple[int, int, int]]:
    """Bytes of results within a chain of hoisted ops, from their making to their last reader."""
    until: dict[int, int] = {}
    for op in chain:
        at = max((born[v] for v in problem.ops[op].outputs), default=-1)
        until.update(dict.fromkeys(problem.ops[op].inputs, at))
    inner = [v for op in chain[:-1] for v in problem.ops[op].outputs]
    spans = [(born[v], until.get(v, born[v]), problem.values[v].nbytes) for v in inner]
    return [span for span in spans if span[2]]
