"""A schedule under edit: its copies, live bytes, and what dropping a run would do.

A plan is a list of ops with repeats. A use reads the latest copy made before it, or the saved
value; a copy lives from where it is made to its last use, a saved one from its last forward use
on. Everything else follows from the list, so an edit is an insertion or a removal of runs.

:meth:`State.removal` tells what dropping one run would do without rebuilding: its results come
from the previous copy, whose life is stretched over the gap, or are saved; its inputs lose a use,
and runs left without used results die with it. Positions of dead runs stay as no-ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fxremat.solver.flat import FlatProblem, Ints
from fxremat.solver.schedule.removal import SAVED, EditableCopy, Removal, blocked

__all__ = ["State"]


class State:
    """A schedule with its copies and live bytes.

    Attributes:
        flat: the problem laid out.
        ops: the schedule; -1 stands where a run has been removed.
        reads, makes: for each position the copies read and made there.
        chains: for each value that is read or made, its copies in the order of time.
        backward: live bytes at each position of the schedule.
        forward: live bytes at each position of the forward.
        seconds: time of all runs that are not backward ops, hoisted ones included.
        hoisted: for DEFERRABLE ops that the forward runs, how many saved values call for it.
    """

    def __init__(self, flat: FlatProblem, ops: Sequence[int]) -> None:
        self.flat = flat
        self.ops = list(ops)
        self.chains: dict[int, list[EditableCopy]] = {}
        self.reads: list[list[EditableCopy]] = []
        self.makes: list[list[EditableCopy]] = []
        self.seconds = 0.0
        self.hoisted: dict[int, int] = {}
        self._link()
        self._measure()

    def _link(self) -> None:
        flat, chains = self.flat, self.chains
        for q, op in enumerate(self.ops):
            read = []
            for v in flat.reads[op]:
                chain = chains.get(v)
                if chain is None:
                    chain = chains[v] = [EditableCopy(v, SAVED)]
                    self._hoist(v)
                copy = chain[-1]
                copy.uses.append(q)
                read.append(copy)
            made = []
            for v in flat.makes[op]:
                copy = EditableCopy(v, q)
                chain = chains.get(v)
                if chain is None:
                    chains[v] = [copy]
                else:
                    chain.append(copy)
                made.append(copy)
            self.reads.append(read)
            self.makes.append(made)
            if not flat.is_backward[op]:
                self.seconds += flat.seconds[op]

    def _hoist(self, v: int) -> None:
        """Count the ops that the forward runs because a value is saved."""
        for op in self.flat.hoist[self.flat.producer[v]]:
            before = self.hoisted.get(op, 0)
            self.hoisted[op] = before + 1
            if not before:
                self.seconds += self.flat.seconds[op]

    def _measure(self) -> None:
        flat, count = self.flat, len(self.ops)
        level, k = [], 0
        for op in self.ops:
            if flat.is_backward[op]:
                level.append(flat.base_at[k])
                k += 1
            else:
                level.append(flat.base_before[k] + flat.workspace[op])
        delta = [0] * (count + 1)
        forward = [0] * (len(flat.forward) + 1)
        for copy in self.copies():
            nbytes = self.nbytes(copy)
            delta[max(copy.start, 0)] += nbytes
            if copy.start == SAVED:
                forward[self.kept_from(copy.value)] += nbytes
                for first, last, passing in flat.hoist_spans[flat.producer[copy.value]]:
                    forward[first] += passing
                    forward[last + 1] -= passing
            delta[copy.end + 1] -= nbytes
        self.backward: Ints = np.array(level, dtype=np.int64) + np.cumsum(delta[:count])
        self.forward: Ints = flat.forward + np.cumsum(forward[: len(flat.forward)])

    def copies(self) -> Iterator[EditableCopy]:
        """All copies, value by value, each value's in order of time."""
        for chain in self.chains.values():
            yield from chain

    def saved(self) -> list[int]:
        """The values that are saved, those that cost nothing among them."""
        return [v for v, chain in self.chains.items() if chain[0].start == SAVED]

    def at_backward(self) -> list[int]:
        """Bytes that are live while each backward op runs."""
        is_backward = self.flat.is_backward
        return [
            int(nbytes)
            for nbytes, op in zip(self.backward, self.ops, strict=True)
            if op >= 0 and is_backward[op]
        ]

    def before(self, copy: EditableCopy) -> EditableCopy | None:
        """The copy of the same value before a copy."""
        chain = self.chains[copy.value]
        index = chain.index(copy)
        return chain[index - 1] if index else None

    def kept_from(self, v: int) -> int:
        """Position of the forward from which on saving a value costs its bytes."""
        flat = self.flat
        return flat.born[v] if flat.hoist[flat.producer[v]] else flat.last[v] + 1

    def nbytes(self, copy: EditableCopy) -> int:
        """Bytes that a copy adds while it is live."""
        saved = copy.start == SAVED
        return (self.flat.saving_bytes if saved else self.flat.nbytes)[copy.value]

    @property
    def peak(self) -> int:
        """Most bytes live at one moment."""
        return max(int(self.backward.max(initial=0)), int(self.forward.max(initial=0)))

    @property
    def cost(self) -> float:
        """Seconds spent on recomputing."""
        return self.seconds - self.flat.unavoidable_seconds

    def overflow(self, limit: int) -> int:
        """Sum of bytes above a limit over all positions."""
        over = np.maximum(self.backward - limit, 0).sum()
        return int(over + np.maximum(self.forward - limit, 0).sum())

    def schedule(self) -> list[int]:
        """The schedule without removed runs."""
        return [op for op in self.ops if op >= 0]

    # Removal of a run.

    def removal(self, q: int) -> Removal | None:
        """What dropping the run at ``q`` would do, or None if it must stay."""
        change = Removal([q])
        for copy in self.makes[q]:
            if copy.uses:
                earlier = self.before(copy)
                if earlier is None and not self._may_save(copy.value, q):
                    return None
                change.moves.append((copy, earlier))
        self._cascade(change)
        self._spans(change)
        for op, step in change.hoists.items():
            before = self.hoisted.get(op, 0)
            change.gain += ((before > 0) - (before + step > 0)) * self.flat.seconds[op]
        return change

    def _may_save(self, v: int, q: int) -> bool:
        """Whether saving a value instead of the run at ``q`` breaks no rule."""
        flat = self.flat
        chain = flat.hoist[flat.producer[v]]
        fixed = [op for op in chain if not flat.can_rerun[op] and op != self.ops[q]]
        return flat.saveable[v] and not any(op in self.ops for op in fixed)

    def _cascade(self, change: Removal) -> None:
        """Collect the uses that vanish, and the runs that die for want of used results."""
        targets = {id(target) for _, target in change.moves}
        flat, dead, lost = self.flat, change.dead, change.lost
        for d in dead:  # grows while we go
            change.gain += flat.seconds[self.ops[d]]
            for copy in self.reads[d]:
                gone = lost.setdefault(copy, [])
                gone.append(d)
                if len(gone) < len(copy.uses) or copy.start == SAVED or id(copy) in targets:
                    continue
                if all(self._useless(c, lost, targets) for c in self.makes[copy.start]):
                    dead.append(copy.start)

    @staticmethod
    def _useless(
        copy: EditableCopy, lost: dict[EditableCopy, list[int]], targets: set[int]
    ) -> bool:
        return len(lost.get(copy, ())) == len(copy.uses) and id(copy) not in targets

    def _spans(self, change: Removal) -> None:
        flat = self.flat
        gone = {id(c) for d in change.dead for c in self.makes[d]}
        for d in change.dead:
            change.spans.append((d, d, -flat.workspace[self.ops[d]]))
            for copy in self.makes[d]:
                change.spans.append((copy.start, copy.end, -flat.nbytes[copy.value]))
        served: dict[int, int] = {}
        for copy, target in change.moves:
            if target is None:
                self._save(change, copy)
            else:
                served[id(target)] = copy.end
                self._reach(change, target, copy.end)
        for copy, positions in change.lost.items():
            if id(copy) not in gone and id(copy) not in served:
                self._shorten(change, copy, positions)

    def _save(self, change: Removal, copy: EditableCopy) -> None:
        nbytes = self.flat.saving_bytes[copy.value]
        self._in_forward(change, copy.value, 1)
        if nbytes:
            change.spans.append((0, copy.end, nbytes))
            change.added += nbytes
            held = len(self.forward) - self.kept_from(copy.value)
            change.area += nbytes * (copy.start + held)

    def _in_forward(self, change: Removal, v: int, step: int) -> None:
        """What the forward runs and holds because a value is saved (1), or no longer is (-1)."""
        op, saving = self.flat.producer[v], self.flat.saving_bytes[v]
        for hoisted in self.flat.hoist[op]:
            change.hoists[hoisted] = change.hoists.get(hoisted, 0) + step
        for first, last, nbytes in self.flat.hoist_spans[op]:
            change.forward.append((first, last, step * nbytes))
        if saving:
            change.forward.append((self.kept_from(v), len(self.forward) - 1, step * saving))

    def _reach(self, change: Removal, target: EditableCopy, end: int) -> None:
        nbytes = self.nbytes(target)
        if nbytes and end > target.end:
            change.spans.append((target.end + 1, end, nbytes))
            change.added += nbytes
            change.area += nbytes * (end - target.end)

    def _shorten(self, change: Removal, copy: EditableCopy, positions: list[int]) -> None:
        kept = [u for u in copy.uses if u not in positions]
        nbytes = self.nbytes(copy)
        end = kept[-1] if kept else copy.start
        if end < copy.end and nbytes:
            change.spans.append((max(end + 1, 0), copy.end, -nbytes))
        if copy.start == SAVED and not kept:
            self._in_forward(change, copy.value, -1)

    def blocked(self, change: Removal, limit: int) -> tuple[Ints, int] | None:
        """Where a removal would exceed a limit, as live bytes and position; None if it fits."""
        for live, spans in ((self.backward, change.spans), (self.forward, change.forward)):
            at = blocked(live, spans, limit)
            if at is not None:
                return live, at
        return None

    def commit(self, change: Removal) -> None:
        """Apply a removal."""
        for first, last, nbytes in change.spans:
            self.backward[first : last + 1] += nbytes
        for first, last, nbytes in change.forward:
            self.forward[first : last + 1] += nbytes
        for copy, positions in change.lost.items():
            copy.uses = [u for u in copy.uses if u not in positions]
        for copy, target in change.moves:
            self._move(copy, target)
        for d in change.dead:
            for copy in self.makes[d]:
                self._unlink(copy)
            self.ops[d], self.reads[d], self.makes[d] = -1, [], []
        for copy in change.lost:
            if copy.start == SAVED and not copy.uses:
                self._unlink(copy)
        for op, step in change.hoists.items():
            self.hoisted[op] = self.hoisted.get(op, 0) + step
        self.seconds -= change.gain

    def _move(self, copy: EditableCopy, target: EditableCopy | None) -> None:
        if target is None:
            target = EditableCopy(copy.value, SAVED)
            self.chains[copy.value].insert(0, target)
        for q in copy.uses:
            self.reads[q] = [target if c is copy else c for c in self.reads[q]]
        target.uses += copy.uses
        copy.uses = []

    def _unlink(self, copy: EditableCopy) -> None:
        chain = self.chains[copy.value]
        chain.remove(copy)
        if not chain:
            del self.chains[copy.value]
