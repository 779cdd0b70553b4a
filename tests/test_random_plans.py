"""Splits of random legal plans compute what eager does."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx

from fxremat.constraints.rules import fixed
from passes.analysis.joint import JointGraph, Role
from passes.phases import Phase
from passes.split.split import split
from passes.split.verify import verify
from tests.graphs import CASES, Step, assert_same, joint, step, step_by_halves


@dataclass
class Planner:
    """Builds a legal plan from choices: what is saved, what is forgotten, what runs once more."""

    graph: JointGraph
    data: st.DataObject

    def plan(self) -> tuple[list[str], list[str]]:
        graph = self.graph
        ops = [n for n in graph.nodes if graph.roles[n.name] is Role.OP]
        self.maker = {made: n for n in ops for made in graph.makes(n)}
        free = [n for n in ops if graph.phases[n.name] is not Phase.BACKWARD]
        self.free = [n for n in free if not fixed(graph, n)]
        names = sorted(made for n in free for made in graph.makes(n))
        kept = self.data.draw(st.sets(st.sampled_from(names)), label="saved")
        kept |= {made for n in free if n not in self.free for made in graph.makes(n)}
        self.saved, self.copies, self.schedule = kept, set[str](), list[str]()
        for node in ops:
            if graph.phases[node.name] is Phase.BACKWARD:
                self.disturb()
                self.emit(node)
        (output,) = graph.module.graph.find_nodes(op="output")
        for storage in graph.reads(output):
            if self.maker.get(storage) in free and graph.phases[storage] is not Phase.FORWARD:
                self.provide(storage)
        return [*self.schedule, "output"], self.order(ops)

    def disturb(self) -> None:
        if self.copies:
            self.copies -= self.data.draw(st.sets(st.sampled_from(sorted(self.copies))))
        if self.data.draw(st.booleans()):
            self.emit(self.data.draw(st.sampled_from(self.free)))

    def emit(self, node: fx.Node) -> None:
        for storage in self.graph.reads(node):
            self.provide(storage)
        self.schedule.append(node.name)
        if self.graph.phases[node.name] is not Phase.BACKWARD:
            self.copies |= set(self.graph.makes(node))

    def provide(self, storage: str) -> None:
        node = self.maker.get(storage)
        if node is None or self.graph.phases[node.name] is Phase.BACKWARD:
            return
        if storage not in self.saved | self.copies:
            self.emit(node)

    def order(self, ops: list[fx.Node]) -> list[str]:
        """All forward ops, and the others whose results are saved, with what they need."""
        wanted = set(self.saved)
        for node in reversed(ops):
            if self.graph.phases[node.name] is Phase.DEFERRABLE and wanted & {
                *self.graph.makes(node)
            }:
                wanted |= set(self.graph.reads(node))
        return [
            n.name
            for n in ops
            if self.graph.phases[n.name] is Phase.FORWARD
            or (self.graph.phases[n.name] is Phase.DEFERRABLE and wanted & {*self.graph.makes(n)})
        ]


EAGER: dict[str, Step] = {}


@pytest.mark.parametrize(
    "name", ["deep", "shared_view", "pieces", "dropout", "batch_norm", "dynamic_view"]
)
@settings(max_examples=40, derandomize=True)
@given(data=st.data())
def test_random_plans_give_eager_gradients(name: str, data: st.DataObject) -> None:
    graph, case = joint(name), CASES[name]
    schedule, forward = Planner(graph, data).plan()
    halves = split(graph, schedule, forward)
    verify(graph, halves)
    got = step_by_halves(case, graph.num_fwd_outputs, halves.forward, halves.backward)
    assert_same(got, EAGER.setdefault(name, step(case)))
