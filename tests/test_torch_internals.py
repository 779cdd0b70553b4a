"""The private names of torch: which versions they were tried with."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
import torch

from passes.torch_internals import TRIED_WITH, copied, graph_module, warn_if_untried

# An import under a torch of another version, and a second one, which says no more.
UNTRIED = """
import warnings
import torch
torch.__version__ = "9.9.9+cpu"
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import passes.torch_internals
    import passes.split.split
print(*[w.message for w in said if "fxremat" in str(w.message)], sep="\\n")
"""


@pytest.mark.parametrize("version", [*TRIED_WITH, f"{TRIED_WITH[0]}+cu130"])
def test_a_version_that_was_tried_says_nothing(version: str) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warn_if_untried(version)
    assert said == []


@pytest.mark.parametrize("version", ["2.13.99", "2.14.0a0+git123", "9.9.9"])
def test_another_one_is_named_beside_those_that_were_tried(version: str) -> None:
    with pytest.warns(UserWarning, match=f"tried with torch {TRIED_WITH[0]}, not with") as said:
        warn_if_untried(version)
    assert version in str(said[0].message)


def test_it_is_said_once_on_import() -> None:
    run = subprocess.run(
        [sys.executable, "-c", UNTRIED], capture_output=True, text=True, check=True
    )
    (line,) = run.stdout.splitlines()
    assert "not with 9.9.9+cpu" in line


def test_a_copy_has_nodes_of_its_own_and_the_same_weights() -> None:
    module = torch.fx.symbolic_trace(torch.nn.Linear(2, 3))
    module.meta["told"] = 1
    made = copied(module)
    assert made.meta == {"told": 1}
    assert made.weight is module.weight
    assert [n.name for n in made.graph.nodes] == [n.name for n in module.graph.nodes]
    made.graph.output_node().args = (None,)
    assert made(torch.ones(2)) is None
    assert module(torch.ones(2)).shape == (3,)
    assert graph_module(module, made.graph).meta is not module.meta
