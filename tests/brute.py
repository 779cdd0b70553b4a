"""Brute-force references for solvers, and random legal schedules; for small problems."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from itertools import chain, combinations

from fxremat.problem.replay import replay
from fxremat.problem.types import Kind, Op, Phase, Problem, Value


def random_problem(seed: int, *, most: int = 7, rules: bool = False) -> Problem:
    """A small problem: every backward op reads the gradient before it and forward values."""
    rng = random.Random(seed)
    values = [Value("x", 0, Kind.INPUT)]
    ops: list[Op] = []
    made: list[int] = []

    def make(name: str, nbytes: int, **fields: object) -> int:
        values.append(Value(name, nbytes, **fields))  # type: ignore[arg-type]
        return len(values) - 1

    count = rng.randint(3, most)
    for i in range(count):
        near = made[-3:]
        inputs = tuple(sorted(rng.sample(near, min(len(near), rng.choice((1, 1, 2)))))) or (0,)
        pin = rules and rng.random() < 0.15
        hidden = rules and not pin and rng.random() < 0.15
        out = make(f"v{i}", rng.choice((4, 8, 8, 16)), unsaveable="opaque" if hidden else "")
        work = rng.choice((0, 0, 4))
        seconds = float(rng.choice((1, 1, 2, 5)))
        ops.append(Op(f"f{i}", inputs, (out,), seconds, 10, work, fixed="random" if pin else ""))
        made.append(out)
    gradient = make("t", 4, kind=Kind.TANGENT)
    returned = []
    for i in reversed(range(count)):
        reads = [made[i]] if rng.random() < 0.8 else []
        reads += [made[i - 1]] if i and rng.random() < 0.5 else []
        new = make(f"g{i}", rng.choice((4, 8, 8, 16)))
        work = rng.choice((0, 0, 4))
        ops.append(Op(f"b{i}", (gradient, *reads), (new,), 2.0, 10, work, Phase.BACKWARD))
        gradient = new
        if rng.random() < 0.3:
            weight = make(f"w{i}", 4)
            ops.append(Op(f"c{i}", (gradient,), (weight,), 1.0, 10, 0, Phase.BACKWARD))
            returned.append(weight)
    ops.append(Op("output", (*returned, gradient), (), 0.0, phase=Phase.BACKWARD))
    return Problem(tuple(values), tuple(ops), tuple(range(count)), tuple(range(count, len(ops))))


def random_schedule(problem: Problem, rng: random.Random) -> list[int]:
    """A random legal schedule, with runs that are of use to nobody and repeats among them.

    Fixed and unsaveable values that cannot be had by saving or one run make it give up.

    Raises:
        LookupError: if it runs into a value that it can neither save nor make.
    """
    schedule: list[int] = []
    have: set[int] = set()
    extra = [i for i, o in enumerate(problem.ops) if o.phase is not Phase.BACKWARD]
    chance = rng.choice((0.0, 0.3, 0.6))
    need = rng.choice((0.0, 0.5, 1.0))

    def run(op: int, depth: int = 0) -> None:
        for value in problem.ops[op].inputs:
            producer = problem.producer[value]
            late = producer < 0 or problem.ops[producer].phase is Phase.BACKWARD
            if late or value in have:
                continue
            if problem.values[value].unsaveable or (depth < 9 and rng.random() < need):
                attempt(producer, depth, bool(problem.values[value].unsaveable))
        schedule.append(op)
        have.update(problem.ops[op].outputs)

    def attempt(op: int, depth: int, must: bool) -> None:
        first = problem.ops[op].phase is Phase.DEFERRABLE and op not in schedule
        if not problem.ops[op].fixed or first:
            run(op, depth + 1)
        elif must:
            raise LookupError(problem.ops[op].name)

    for op in problem.backward:
        while extra and rng.random() < chance:
            attempt(rng.choice(extra), 0, must=False)
        run(op)
    return schedule


def single_choices(problem: Problem) -> Iterator[list[int]]:
    """Schedules of every choice of saved values, every other run once, just in time."""
    free = [
        v
        for v, p in enumerate(problem.producer)
        if p >= 0 and problem.ops[p].phase is Phase.FORWARD and not problem.values[v].unsaveable
    ]
    for saved in chain.from_iterable(combinations(free, k) for k in range(len(free) + 1)):
        schedule = _just_in_time(problem, set(saved))
        if schedule is not None:
            yield schedule


def _just_in_time(problem: Problem, saved: set[int]) -> list[int] | None:
    schedule: list[int] = []
    done: set[int] = set()

    def run(op: int) -> bool:
        for value in problem.ops[op].inputs:
            producer = problem.producer[value]
            late = producer < 0 or problem.ops[producer].phase is Phase.BACKWARD
            if late or value in saved or producer in done:
                continue
            if problem.ops[producer].fixed or not run(producer):
                return False
        schedule.append(op)
        done.add(op)
        return True

    return schedule if all(run(op) for op in problem.backward) else None


def cheapest_single(problem: Problem, limit: int) -> float | None:
    """Least recompute seconds of any single-run choice within a limit on the peak."""
    costs = [
        line.recompute_seconds
        for line in (replay(problem, s) for s in single_choices(problem))
        if line.peak <= limit
    ]
    return min(costs, default=None)


def least_single(problem: Problem) -> int:
    """Lowest peak of any single-run choice."""
    return min(replay(problem, s).peak for s in single_choices(problem))


def cheapest(problem: Problem, limit: int) -> float | None:
    """Least recompute seconds of any schedule within a limit, repeats included; None if none is.

    For each choice of saved values a shortest-path search over (backward position, values live):
    a step runs a forward op, drops a value, or runs the next backward op. No DEFERRABLE ops.
    """
    assert all(o.phase is not Phase.DEFERRABLE for o in problem.ops)
    free = [v for v, p in enumerate(problem.producer) if p >= 0 and p in problem.forward]
    costs = []
    for saved in chain.from_iterable(combinations(free, k) for k in range(len(free) + 1)):
        if any(problem.values[v].unsaveable for v in saved):
            continue
        cost = _search(problem, frozenset(saved), limit)
        if cost is not None:
            costs.append(cost)
    return min(costs, default=None)


def _forward_peak(problem: Problem, saved: frozenset[int]) -> int:
    """Peak of the forward, by walking it with a set of live values."""
    peak = 0
    live: set[int] = set()
    for place, op in enumerate(problem.forward):
        live |= set(problem.ops[op].outputs)
        peak = max(peak, sum(problem.values[v].nbytes for v in live) + problem.ops[op].workspace)
        later = {v for o in problem.forward[place + 1 :] for v in problem.ops[o].inputs}
        live = {v for v in live if v in later or v in saved or problem.values[v].is_output}
    return peak


def _search(problem: Problem, saved: frozenset[int], limit: int) -> float | None:
    if _forward_peak(problem, saved) > limit:
        return None
    base = sum(v.nbytes for v in problem.values if v.kind is Kind.TANGENT or v.is_output)
    size = {v: problem.values[v].nbytes for v in range(len(problem.values))}
    forward = set(problem.forward)
    count = len(problem.backward)
    last_use: dict[int, int] = {}
    for k, op in enumerate(problem.backward):
        for v in (*problem.ops[op].inputs, *problem.ops[op].outputs):
            last_use[v] = k

    def gradients(k: int, op: int | None) -> int:
        """Bytes of backward values live around position k, while op runs or none does."""
        total = 0
        for place, other in enumerate(problem.backward):
            for v in problem.ops[other].outputs:
                if place < k + (op is not None) and last_use[v] >= k:
                    total += size[v]
        return total

    before = [base + gradients(k, None) for k in range(count)]
    at = [base + gradients(k, 1) + problem.ops[o].workspace for k, o in enumerate(problem.backward)]

    def bytes_of(live: frozenset[int]) -> int:
        return sum(0 if problem.values[v].is_output and v in saved else size[v] for v in live)

    def tracked(op: int) -> list[int]:
        return [v for v in problem.ops[op].inputs if problem.producer[v] in forward]

    queue: list[tuple[float, int, tuple[int, ...]]] = [(0.0, 0, tuple(sorted(saved)))]
    done: set[tuple[int, tuple[int, ...]]] = set()
    while queue:
        cost, k, key = heapq.heappop(queue)
        if k == count:
            return cost
        if (k, key) in done:
            continue
        done.add((k, key))
        live = frozenset(key)
        for v in live:
            heapq.heappush(queue, (cost, k, tuple(sorted(live - {v}))))
        op = problem.backward[k]
        if live.issuperset(tracked(op)) and at[k] + bytes_of(live) <= limit:
            heapq.heappush(queue, (cost, k + 1, key))
        for index in problem.forward:
            item = problem.ops[index]
            if item.fixed or live.issuperset(item.outputs) or not live.issuperset(tracked(index)):
                continue
            after = live | set(item.outputs)
            if before[k] + bytes_of(after) + item.workspace <= limit:
                heapq.heappush(queue, (cost + item.seconds, k, tuple(sorted(after))))
    return None
