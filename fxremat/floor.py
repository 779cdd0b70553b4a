"""A lower bound on the peak of every plan of a problem."""

from __future__ import annotations

from .problem import Kind, Phase, Problem
from .solvers.table import Table

__all__ = ["floor"]


def floor(problem: Problem, table: Table | None = None) -> int:
    """A peak in bytes below which no plan can go.

    While a backward op runs, all live values of the backward, what the caller holds, the op's
    inputs and outputs and its workspace are live in any plan; while a forward op runs, its
    inputs and outputs, its workspace and what is held so far are.
    """
    table = table or Table.of(problem)
    return max(_backward(problem, table), _forward(problem))


def _backward(problem: Problem, table: Table) -> int:
    most = 0
    for k, op in enumerate(problem.backward):
        read = sum(table.saving[v] for v in table.reads[op])
        most = max(most, table.at[k] + read)
    return most


def _forward(problem: Problem) -> int:
    most = held = 0
    for index in problem.forward:
        op = problem.ops[index]
        if op.phase is not Phase.FORWARD:
            continue
        touched = [
            problem.values[v]
            for v in (*op.inputs, *op.outputs)
            if problem.values[v].kind is Kind.COMPUTED
        ]
        now = sum(v.nbytes for v in touched if not v.held) + op.workspace
        held += sum(problem.values[v].nbytes for v in op.outputs if problem.values[v].held)
        most = max(most, held + now)
    return most
