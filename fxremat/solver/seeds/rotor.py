"""Starts that recompute values several times: optimal checkpointing of a chain of stages.

The forward is cut into stages where few bytes are live, and a dynamic program finds the cheapest
way to run their backward, last stage first, within a budget (Beaumont, Eyraud-Dubois, Shilova:
"Efficient combination of rematerialization and offloading for training DNNs", NeurIPS 2021, and
its predecessor for heterogeneous chains). With what enters stage ``a`` held and ``r`` bytes for the
rest, the backward of stages ``a`` to ``t - 1`` costs ``E(a, t, r)``, the least of

* *tape*: run stage ``a``, hold what its backward reads, go on behind it:
  ``F(a, a + 1) + E(a + 1, t, r - tape(a))``, or where it is the last one, run what its own backward
  reads;
* *checkpoint*: run on to stage ``k``, hold only what enters it, come back to ``a`` later:
  ``F(a, k) + E(k, t, r - frontier(a, k)) + E(a, k, r)``.

``F`` is the time to run stages; it is 0 up to the last stage, since the forward runs them anyway.
Gradients and what else a backward op holds count as a need of its stage. Bytes are rounded to
levels and stages are not quite a chain, so what comes out is a seed for the search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from operator import add

import numpy as np
from numpy.typing import NDArray

from fxremat.problem.types import Phase
from fxremat.solver.depth_first import depth_first
from fxremat.solver.flat import FlatProblem

__all__ = ["Rotor"]

STAGES = 64  # at most
LEVELS = 400  # of bytes, up to the peak of the baseline
NARROW = 1.3  # a cut may be so much wider than the narrowest near it

Costs = NDArray[np.float64]


@dataclass(frozen=True)
class _Stages:
    """A forward cut into stages.

    Attributes:
        ops: the forward ops of each stage.
        backward: the backward ops of each, as a range of positions among all.
        seconds: time to run each.
        leaf: time to run what the backward of each takes from it.
        width: most bytes live beside what is held while one runs.
        tape: bytes of what each makes and its own backward reads or the next stages enter with.
        need: most bytes of the backward of each, gradients and tape included.
        base: bytes of gradients when the backward of each begins.
        enter: the values that enter each stage.
    """

    ops: list[list[int]]
    backward: list[range]
    seconds: list[float]
    leaf: list[float]
    width: list[int]
    tape: list[int]
    need: list[int]
    base: list[int]
    enter: list[frozenset[int]]


class Rotor:
    """Finds schedules of one problem for any number of limits.

    Args:
        flat: the problem laid out.
        most: bytes above which no limit is asked for.
    """

    def __init__(self, flat: FlatProblem, most: int) -> None:
        self.problem, self.flat = flat.problem, flat
        self.unit = max(1, most // LEVELS)

    def schedule(self, limit: int) -> list[int] | None:
        """A schedule meant to peak at a limit (bytes), or None if the chain has none."""
        if sum(op.phase is Phase.FORWARD for op in self.problem.ops) < 4:
            return None  # two stages have two ops each
        count = len(self._stages.ops)
        level = min(limit // self.unit, LEVELS)
        if count < 2 or level < 0:
            return None
        costs, choice = self._solved
        if costs[0, count][level] == np.inf:
            return None
        stages = self._stages
        emitted = _Emitted(self.flat)
        stack = [(0, count, level)]
        while stack:
            a, t, r = stack.pop()
            if r < 0:  # the mark of a stage whose backward is due
                emitted.backward(stages.backward[a])
                continue
            first = t == count
            k = int(choice[a, t][r])
            if not first:
                emitted.forward(stages.ops[a : max(k, a + 1)])
            if k == a:
                stack.append((a, t, -1))
                if a + 1 < t:
                    stack.append((a + 1, t, r - self._levels(stages.tape[a])))
            else:
                stack += [(a, k, r), (k, t, r - self._levels(self._held(a, k)))]
        return emitted.schedule

    @cached_property
    def _stages(self) -> _Stages:
        return _stages(self.flat)

    def _levels(self, nbytes: int) -> int:
        return round(nbytes / self.unit)

    def _held(self, a: int, k: int) -> int:
        enter = self._stages.enter
        return sum(self.flat.saving_bytes[v] for v in enter[k] - enter[a])

    @cached_property
    def _solved(
        self,
    ) -> tuple[dict[tuple[int, int], Costs], dict[tuple[int, int], NDArray[np.int64]]]:
        """For each stretch of stages its cost, and what to do first, for each level of bytes."""
        stages, count = self._stages, len(self._stages.ops)
        costs: dict[tuple[int, int], Costs] = {}
        choice: dict[tuple[int, int], NDArray[np.int64]] = {}
        run = [0.0, *accumulate(stages.seconds)]
        held = {
            (a, k): self._levels(self._held(a, k))
            for a in range(count)
            for k in range(a + 1, count)
        }
        for length in range(1, count + 1):
            for a in range(count - length + 1):
                t = a + length
                first = t == count  # the forward itself
                base = 0 if first else stages.base[t - 1]
                rows = []
                widest = 0
                for k in range(a, t):
                    if k > a:
                        row = _less(costs[k, t], held[a, k]) + costs[a, k]
                    elif length == 1:
                        row = np.zeros(LEVELS + 1)
                    else:
                        row = _less(costs[a + 1, t], self._levels(stages.tape[a]))
                    end = max(k, a + 1)
                    widest = max(widest, stages.width[end - 1])
                    idle = length == 1 and not first and not stages.leaf[a]
                    need = max(0 if idle else base + widest, stages.need[a] if k == a else 0)
                    row[: self._levels(need)] = np.inf
                    again = stages.leaf[a] if length == 1 else run[end] - run[a]
                    rows.append(row if first else row + again)
                rows_of_k = np.stack(rows)
                choice[a, t] = rows_of_k.argmin(axis=0) + a
                costs[a, t] = rows_of_k.min(axis=0)
        return costs, choice


def _less(costs: Costs, levels: int) -> Costs:
    """What the same costs with fewer bytes."""
    if levels <= 0:
        return costs.copy()
    shifted = np.full_like(costs, np.inf)
    shifted[levels:] = costs[: max(0, len(costs) - levels)]
    return shifted


class _Emitted:
    """A schedule in the making."""

    def __init__(self, flat: FlatProblem) -> None:
        self.problem, self.flat = flat.problem, flat
        self.schedule: list[int] = []
        self._done: set[int] = set()

    def forward(self, stages: list[list[int]]) -> None:
        """Run stages."""
        self.schedule += [op for stage in stages for op in stage if self.flat.can_rerun[op]]

    def backward(self, span: range) -> None:
        """Run backward ops, DEFERRABLE ops right before what reads them."""
        for k in span:
            self.schedule += depth_first(self.problem.backward[k], self._deferrable, self._done)

    def _deferrable(self, op: int) -> Iterator[int]:
        makers = (self.flat.producer[v] for v in self.flat.reads[op])
        return (m for m in makers if self.problem.ops[m].phase is Phase.DEFERRABLE)


# Cutting the forward into stages.


def _stages(flat: FlatProblem) -> _Stages:
    problem = flat.problem
    order = [o for o in problem.forward if problem.ops[o].phase is Phase.FORWARD]
    reads = [_through(flat, op) for op in problem.backward]
    wanted = {v for read in reads for v in read}
    live = _lives(flat, order)
    cuts = _cuts(flat, live, wanted)
    stage_of = {}
    ops = []
    for index, (start, end) in enumerate(pairwise(cuts)):
        ops.append(order[start:end])
        stage_of.update(dict.fromkeys(order[start:end], index))
    enter = [frozenset(live[cut]) for cut in cuts[:-1]]
    own = [max((_stage(flat, stage_of, enter, v) for v in r), default=0) for r in reads]
    at = list(accumulate(reversed(own), max))[::-1]
    backward, k = [range(0)] * len(ops), 0
    for stage in range(len(ops) - 1, -1, -1):
        end = k
        while end < len(at) and at[end] >= stage:
            end += 1
        backward[stage] = range(k, end)
        k = end
    backward[0] = range(backward[0].start, len(at))
    tapes = []
    for index, inside in enumerate(ops):
        made = {v for op in inside for v in flat.makes[op]}
        later = enter[index + 1] if index + 1 < len(ops) else frozenset()
        tapes.append(sum(flat.saving_bytes[v] for v in made & (wanted | later)))
    return _Stages(
        ops=ops,
        backward=backward,
        seconds=[sum(flat.seconds[o] for o in inside if flat.can_rerun[o]) for inside in ops],
        leaf=[
            _leaf(flat, inside, {v for k in span for v in reads[k]})
            for inside, span in zip(ops, backward, strict=True)
        ],
        width=[
            _most(flat, inside, held, [flat.workspace[o] for o in inside])
            for inside, held in zip(ops, enter, strict=True)
        ],
        tape=tapes,
        need=_needs(flat, backward, enter),
        base=[flat.base_before[span.start] if span else 0 for span in backward],
        enter=enter,
    )


def _stage(
    flat: FlatProblem, stage_of: dict[int, int], enter: list[frozenset[int]], value: int
) -> int:
    """The last stage that a value is at hand for without being taped: the next one if it enters."""
    stage = stage_of[flat.producer[value]]
    return stage + 1 if stage + 1 < len(enter) and value in enter[stage + 1] else stage


def _through(flat: FlatProblem, op: int) -> set[int]:
    """The forward values that an op reads, itself or through DEFERRABLE ops."""
    found: set[int] = set()
    stack, seen = [op], {op}
    while stack:
        for v in flat.reads[stack.pop()]:
            maker = flat.producer[v]
            if flat.problem.ops[maker].phase is Phase.FORWARD:
                found.add(v)
            elif maker not in seen:
                seen.add(maker)
                stack.append(maker)
    return found


def _leaf(flat: FlatProblem, inside: list[int], wanted: set[int]) -> float:
    """Time of the ops of a stage that make values, with their ancestors in it."""
    seconds = 0.0
    for op in reversed(inside):
        if not wanted.isdisjoint(flat.makes[op]):
            wanted.update(flat.reads[op])
            seconds += flat.seconds[op] if flat.can_rerun[op] else 0.0
    return seconds


def _needs(flat: FlatProblem, backward: list[range], enter: list[frozenset[int]]) -> list[int]:
    """Most bytes live during the backward of each stage, beside what enters it."""
    emitted = _Emitted(flat)
    needs = []
    for span, held in zip(reversed(backward), reversed(enter), strict=True):
        start = len(emitted.schedule)
        emitted.backward(span)
        ops = emitted.schedule[start:]
        level, k = [], span.start
        for op in ops:
            runs = flat.is_backward[op]
            level.append(flat.base_at[k] if runs else flat.base_before[k] + flat.workspace[op])
            k += runs
        needs.append(_most(flat, ops, held, level))
    return needs[::-1]


def _most(flat: FlatProblem, ops: list[int], held: frozenset[int], level: list[int]) -> int:
    """Most bytes live while ops run: a level at each of them, and their values but those held."""
    born = {v: at for at, op in enumerate(ops) for v in flat.makes[op]}
    last = {v: at for at, op in enumerate(ops) for v in (*flat.reads[op], *flat.makes[op])}
    delta = [0] * (len(ops) + 1)
    for v in last.keys() - held:
        delta[born.get(v, 0)] += flat.nbytes[v]
        delta[last[v] + 1] -= flat.nbytes[v]
    return max(map(add, level, accumulate(delta)), default=0)


def _cuts(flat: FlatProblem, live: list[set[int]], wanted: set[int]) -> list[int]:
    """Positions at which stages begin, and the end: where little is live, evenly spread.

    What the backward reads anyway is better held between stages than what it does not.
    """
    count = len(live)
    size = [
        sum(flat.saving_bytes[v] * (1 if v in wanted else 2) for v in values) for values in live
    ]
    parts = min(STAGES, count // 2)
    best = []
    for part in range(parts):
        span = range(max(1, count * part // parts), count * (part + 1) // parts)
        best.append(min(span, key=size.__getitem__))
    near = [min(size[b] for b in best[max(0, i - 2) : i + 3]) for i in range(parts)]
    picked = [b for b, n in zip(best, near, strict=True) if size[b] <= NARROW * n]
    return [0, *picked, count]


def _lives(flat: FlatProblem, order: list[int]) -> list[set[int]]:
    """For each position of the forward the values made before it that are read from it on."""
    last: dict[int, int] = {}
    for at, op in enumerate(order):
        last.update(dict.fromkeys(flat.reads[op], at))
    found: list[set[int]] = []
    now: set[int] = set()
    for at, op in enumerate(order):
        found.append(set(now))
        now = {v for v in (*now, *flat.makes[op]) if last.get(v, -1) > at}
    return found
