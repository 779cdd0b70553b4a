"""The classes of schedules that the exact solvers search, enumerated; and problems of all kinds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, combinations, product

from fxremat.problem.replay import Timeline, replay
from fxremat.problem.types import Kind, Phase, Problem
from fxremat.solver.exact.stages import Stages
from tests.problems import Draft


def mixed(seed: int) -> Problem:
    """A small problem with DEFERRABLE ops, ops of two outputs, held values and rules.

    Backward ops read the gradient and late values first, so values are wanted at several stages.
    """
    rng = random.Random(seed)
    draft = Draft().value("x", 0, kind=Kind.INPUT)
    near, late = ["x"], list[str]()
    for i in range(rng.randint(3, 5)):
        either = len(near) > 1 and rng.random() < 0.4
        made = [f"{i}{c}" for c in "ab"[: rng.choice((1, 1, 2))]]
        for name in made:
            held = not either and rng.random() < 0.15
            reason = "opaque" if rng.random() < 0.1 else ""
            draft.value(name, rng.choice((4, 8, 16)), is_output=held, unsaveable=reason)
        pool = near[-3:] + late[-2:] if either else near[-3:]
        read = rng.sample(pool, min(len(pool), rng.choice((1, 1, 2))))
        text = f"{' '.join(made)} = f{i} {' '.join(read)}"
        work, fixed = rng.choice((0, 0, 0, 8)), "random" if rng.random() < 0.1 else ""
        phase = Phase.DEFERRABLE if either else Phase.FORWARD
        draft.op(text, float(rng.choice((1, 2, 5))), phase, workspace=work, fixed=fixed)
        (late if either else near).extend(made)
    last = "t"
    draft.value(last, 4, kind=Kind.TANGENT)
    wanted = near[1:] + late
    for i in range(rng.randint(2, 4)):
        read = rng.sample(wanted, min(len(wanted), rng.choice((1, 1, 2))))
        draft.value(f"g{i}", rng.choice((4, 8)))
        work = rng.choice((0, 0, 8))
        draft.op(f"g{i} = b{i} {last} {' '.join(read)}", 2.0, Phase.BACKWARD, workspace=work)
        last = f"g{i}"
    return draft.op(f"= output {last}", 0.0, Phase.BACKWARD).done()


def subsets(items: list[int]) -> Iterator[set[int]]:
    every = chain.from_iterable(combinations(items, k) for k in range(len(items) + 1))
    return map(set, every)


def emit(problem: Problem, stages: Stages, runs: list[set[int]]) -> list[int]:
    """The schedule with these runs in the stages, in the order of the stage."""
    found: list[int] = []
    todo = iter(zip(stages.order, runs, strict=True))
    for k, op in enumerate(problem.backward):
        if k in stages.ends:
            order, chosen = next(todo)
            found += [o for o in order if o in chosen]
        found.append(op)
    return found


def just_in_time(problem: Problem, stages: Stages, saved: set[int]) -> list[set[int]] | None:
    """Runs in each stage if these values are saved and the rest is rebuilt once; None if not."""
    done: set[int] = set()
    runs = []
    for k, order in zip(stages.ends, stages.order, strict=True):
        before = set(done)
        stack = [problem.backward[k]]
        while stack:
            for value in stages.flat.reads[stack.pop()]:
                op = problem.producer[value]
                if value in saved or op in done:
                    continue
                if op not in order:
                    return None
                done.add(op)
                stack.append(op)
        runs.append(done - before)
    return runs


def single_class(problem: Problem) -> Iterator[Timeline]:
    """Every schedule of the single class, enumerated by what it saves."""
    stages = Stages(problem)
    free = {v for v, yes in enumerate(stages.free) if yes}
    made = [v for v, p in enumerate(problem.producer) if p in stages.flat.problem.forward]
    may = [v for v in made if not problem.values[v].unsaveable and v not in free]
    for saved in subsets(may):
        runs = just_in_time(problem, stages, saved | free)
        if runs is None:
            continue
        mixed = {v for ops in runs for o in ops for v in problem.ops[o].outputs} & saved
        line = attempt(problem, emit(problem, stages, runs))
        if line is not None and not mixed:
            yield line


def several_class(problem: Problem) -> Iterator[Timeline]:
    """Every schedule of the class of several runs, enumerated by what runs in which stage."""
    stages = Stages(problem)
    for runs in product(*(list(subsets(order)) for order in stages.order)):
        if all(timely(problem, stages, *step) for step in zip(stages.ends, runs, strict=True)):
            line = attempt(problem, emit(problem, stages, list(runs)))
            if line is not None:
                yield line


def timely(problem: Problem, stages: Stages, k: int, runs: set[int]) -> bool:
    read = {v for o in (*runs, problem.backward[k]) for v in problem.ops[o].inputs}
    return all(any(v in read and not stages.free[v] for v in problem.ops[o].outputs) for o in runs)


def attempt(problem: Problem, schedule: list[int]) -> Timeline | None:
    try:
        return replay(problem, schedule)
    except ValueError:
        return None


def limits(lines: list[Timeline]) -> list[int]:
    """Some limits at which the answer changes, and one below all."""
    peaks = sorted({line.peak for line in lines})
    return [peaks[0] - 1, peaks[0], peaks[len(peaks) // 4], peaks[len(peaks) // 2]]


def least(lines: list[Timeline], limit: int) -> float | None:
    return min((t.recompute_seconds for t in lines if t.peak <= limit), default=None)
