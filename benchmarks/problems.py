"""Problems for the solver, made of models at a fixed profile.

Models are traced on fake tensors and costs come from a fixed profile by the roofline, so the same
problem comes out on every machine.
"""

from __future__ import annotations

import torch

from benchmarks.zoo import Case
from fxremat.costs import workspace
from fxremat.costs.devices import DeviceProfile
from fxremat.costs.model import CostModel
from fxremat.costs.tensor_meta import signature, storage_bytes
from fxremat.frontend.build import Sizing, formulate
from fxremat.frontend.trace import trace_joint
from fxremat.problem.types import Problem
from passes.analysis.joint import JointGraph
from passes.cleanup.clean import clean

__all__ = ["PROFILE", "joint_of", "problem_of"]

PROFILE = DeviceProfile("reference", (("float32", 1e11),), bandwidth=3e10, launch=1e-6)


def joint_of(case: Case, decompose: bool) -> JointGraph:
    """The joint graph of a model, cleaned up; nothing is run.

    Args:
        case: module and arguments.
        decompose: whether it has Inductor's decompositions.
    """
    torch.compiler.reset()
    module, args = case
    joint, outputs = trace_joint(module, args, decompositions=decompose)
    return JointGraph.from_module(clean(joint), outputs)


def problem_of(joint: JointGraph, workspaces: bool = False) -> Problem:
    """The problem at the reference profile, with or without workspaces measured on the CPU."""
    costs = CostModel(PROFILE)
    seen = workspace.measure(joint.nodes, "cpu") if workspaces else {}
    held = {key: found.workspace for key, found in seen.items()}
    return formulate(
        joint,
        Sizing(
            seconds=lambda node: costs.cost(node).seconds,
            flops=lambda node: costs.cost(node).flops,
            storage=lambda tensor: storage_bytes(tensor, PROFILE.rounding),
            workspace=lambda node: held.get(signature(node), 0),
        ),
    )
