"""The least peak on real graphs, against the floor that no plan goes below."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.problems import joint_of, problem_of
from benchmarks.zoo import gpt
from fxremat.solver.peak_solver import PeakSolver


class Dropping(nn.Module):
    """A transformer with dropout after each block, whose masks can only be kept."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        network = gpt(layers=layers, width=128, length=128)[0].network
        assert isinstance(network, nn.Module)
        self.network = network
        for name, part in list(network.named_modules()):
            if isinstance(part, nn.GELU):
                parent = network.get_submodule(name.rpartition(".")[0])
                setattr(parent, name.rpartition(".")[2], nn.Sequential(part, nn.Dropout(0.1)))

    def forward(self, text: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(self.network(text), target)


@pytest.mark.slow
@pytest.mark.parametrize("decompose", [False, True])
def test_the_least_peak_is_near_the_floor_with_dropout(decompose: bool) -> None:
    text = torch.randint(1000, (4, 129))
    problem = problem_of(joint_of((Dropping(4), (text[:, :-1], text[:, 1:])), decompose))
    solver = PeakSolver(problem)
    assert any(op.fixed for op in problem.ops)
    assert solver.least().peak <= 1.15 * solver.floor
    for tenths in (9, 8, 7, 6):
        assert PeakSolver(problem).solve(solver.baseline.peak * tenths // 10) is not None
