"""Random programs: valid plans under every solver, exact predictions, budgets and bounds kept; and
steps that leave behind what eager does.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from torch import Tensor, fx
from torch.nn import functional

import fxremat
from fxremat.base.errors import BudgetError
from fxremat.frontend.trace import trace_joint
from fxremat.options import Options
from fxremat.planning.pipeline import Planned, plan_joint
from fxremat.problem.replay import replay
from tests.programs import ONE, TWO, Program, outcome
from tests.programs import programs as training_programs

ROWS, WIDTH = 64, 32
SOLVERS = ("peak", "exact")


def _normed(x: Tensor) -> Tensor:
    return functional.layer_norm(x, (WIDTH,))


def _halves(x: Tensor) -> Tensor:
    left, right = x.chunk(2, 1)
    return torch.cat([right.sigmoid(), left], 1)


def _wide(x: Tensor) -> Tensor:
    return (torch.cat([x, x * 2], 1).tanh().view(ROWS, 2, WIDTH)).sum(1)


def _written(x: Tensor) -> Tensor:
    y = x * 1
    y[:, ::2].mul_(0.5)
    return y


CALLS: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.sin,
    torch.tanh,
    functional.gelu,
    functional.relu,
    torch.exp,
    _normed,
    _halves,
    _wide,
    _written,
    lambda x: x.softmax(1),
    lambda x: x - x.mean(0),
    lambda x: x.t().contiguous().t(),
)
PAIRS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    torch.add,
    torch.mul,
    torch.maximum,
    lambda x, y: x * y.sigmoid(),
    lambda x, y: torch.addcmul(x, y, y, value=0.1),
)


@st.composite
def programs(draw: st.DrawFn) -> fx.GraphModule:
    """A graph of 3 to 14 calls over two inputs and two weights, read once or often; a scalar."""
    graph = fx.Graph()
    made = [graph.placeholder("x"), graph.placeholder("y")]
    weights = [graph.placeholder("v"), graph.placeholder("w")]
    for _ in range(draw(st.integers(3, 14))):
        # mostly what was made last, so that programs are deep, and now and then anything
        near = st.sampled_from(made[-2:])
        argument = draw(st.one_of(near, near, st.sampled_from(made)))
        kind = draw(st.sampled_from(("one", "one", "two", "matmul")))
        if kind == "one":
            node = graph.call_function(draw(st.sampled_from(CALLS)), (argument,))
        elif kind == "two":
            node = graph.call_function(
                draw(st.sampled_from(PAIRS)), (argument, draw(st.sampled_from(made)))
            )
        else:
            product = graph.call_function(torch.matmul, (argument, draw(st.sampled_from(weights))))
            node = graph.call_function(torch.tanh, (product,))
        made.append(node)
    total = graph.call_function(torch.add, (made[-1], made[-2]))
    scalar = graph.call_method("mean", (graph.call_method("square", (total,)),))
    graph.output(scalar)
    return fx.GraphModule({}, graph)


def arguments() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    shapes = ((ROWS, WIDTH), (ROWS, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH))
    return tuple(
        (0.2 * torch.randn(shape, dtype=torch.float64)).requires_grad_() for shape in shapes
    )


def planned_within(
    module: fx.GraphModule, outputs: int, budget: float, solver: str
) -> Planned | None:
    """The plan, or None where the least peak is rightly said to be above the budget."""
    options = Options.parse(budget, inner="eager", solver=solver, time_limit=20.0)
    try:
        return plan_joint(module, outputs, options, workspaces=lambda nodes, device: {})
    except BudgetError as error:
        refused = error
    least = plan_joint(
        module, outputs, Options.parse("min", inner="eager"), workspaces=lambda nodes, device: {}
    )
    assert (refused.least, refused.asked) == (
        least.plan.predicted_peak,
        int(budget * least.plan.baseline_peak),
    )
    assert least.plan.predicted_peak > int(budget * least.plan.baseline_peak)
    return None


def check_plans(program: fx.GraphModule, decompose: bool, tenths: int) -> None:
    module, outputs = trace_joint(program, arguments(), decompositions=decompose)
    seconds = []
    for solver in SOLVERS:
        planned = planned_within(module, outputs, tenths / 10, solver)
        if planned is None:
            continue
        plan, problem = planned.plan, planned.problem
        place = {op.name: index for index, op in enumerate(problem.ops)}
        line = replay(problem, [place[name] for name in plan.backward_schedule])
        assert (line.peak, line.recompute_seconds) == (plan.predicted_peak, plan.recompute_seconds)
        assert plan.budget is not None
        assert plan.floor <= plan.predicted_peak <= plan.budget
        assert plan.lower_bound_seconds <= plan.recompute_seconds * (1 + 1e-9) + 1e-15
        seconds.append(plan.recompute_seconds)
    if len(seconds) == len(SOLVERS):
        assert seconds[1] <= seconds[0] * (1 + 1e-9) + 1e-15


def check_step(program: Program, expected: list[Tensor], *budgets: object) -> None:
    """What a step leaves behind is what eager leaves behind."""
    for budget in budgets:
        torch.compiler.reset()
        # The first plan will do: it is the graphs that are tested.
        backend = fxremat.backend(budget, inner="eager", on_infeasible="closest", effort=0)
        found = outcome(torch.compile(program, backend=backend, fullgraph=True))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9, equal_nan=True)


def of_eager(program: Program) -> list[Tensor]:
    try:
        return outcome(program)
    except RuntimeError:  # it overwrites what eager has saved
        reject()


PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@settings(max_examples=12, **PATIENT)  # type: ignore[arg-type]
@given(programs(), st.booleans(), st.integers(3, 9))
def test_plans_of_random_programs(program: fx.GraphModule, decompose: bool, tenths: int) -> None:
    check_plans(program, decompose, tenths)


@pytest.mark.filterwarnings("ignore:no plan found within")
@settings(max_examples=40, **PATIENT)  # type: ignore[arg-type]
@given(training_programs())
def test_steps_of_random_programs(program: Program) -> None:
    check_step(program, of_eager(program), 0.8, 0.4, "min")


@pytest.mark.filterwarnings("ignore:no plan found within")
@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_a_step_of_each_kind(name: str) -> None:
    program = Program((("sin", 0, 0), (name, 0, 1), ("sin", 0, 0)))
    check_step(program, outcome(program), "min")


@pytest.mark.slow
@settings(max_examples=200, **PATIENT)  # type: ignore[arg-type]
@given(programs(), st.booleans(), st.integers(3, 9))
def test_plans_of_many_programs(program: fx.GraphModule, decompose: bool, tenths: int) -> None:
    check_plans(program, decompose, tenths)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no plan found within")
@settings(max_examples=2000, **PATIENT)  # type: ignore[arg-type]
@given(training_programs(most=14))
def test_steps_of_many_programs(program: Program) -> None:
    check_step(program, of_eager(program), 0.8, 0.4, "min")
