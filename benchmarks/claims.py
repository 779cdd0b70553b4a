"""The field's well-known claims: predicted, and measured with --measure.

    python -m benchmarks.claims
    python -m benchmarks.claims --measure --pairs 5
    python -m benchmarks.claims --measure --only chain16,chain32

    resnet100   a ResNet of 100 layers: twice the batch within the peak of the plain step; time for
                a sample over plain's, at most 1.15
    gpt12/24    a transformer at the peak of torch.utils.checkpoint around each block: its extra
                time over checkpointing's, at most 0.7
    gpt, resnet half of the bytes that the plain step keeps between forward and backward, and chain
                0.6 of them, in the peak of the cheapest such plan: time over plain's, at most 1.15
    chainN      a chain of N layers within 2 sqrt(N) of its activations and what every plan needs:
                time over the plain step, at most 4/3, a forward more

``goal`` is what is claimed, ``verdict`` is of what was measured, or without --measure of what is
predicted: "met" within the goal, "missed" above it, also where the measured peak is above the
budget. "peak" is measured and "plain" that of the step that it stands beside, both in MiB.
Predicted times are those of a named device, so that they are the same on every machine; measured
ones are medians of interleaved pairs, inner compiler "eager". Peaks of checkpointing are measured
with --measure, else predicted.

Results go to ``claims.json``, with the picture of the chains beside it. The exit code is 1 where a
claim is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import fxremat
from benchmarks import harness, pictures, variants
from benchmarks.harness import MIB, Row
from benchmarks.zoo import Case, chain, gpt, resnet
from fxremat.base.units import error_line
from fxremat.plans.plan import Plan

__all__ = ["CLAIMS", "COLUMNS", "MODELS", "main", "shown"]

DEVICE = "cpu"  # a named profile
DEEP = (16, 17, 16)  # 98 convolutions in blocks, one before, a linear layer
SPENT = 3.0  # seconds of the reference that are timed
LAYERS = (16, 32, 64, 128, 256)
LAYER = MIB  # bytes of a layer's activations in these chains
COLUMNS = ("claim", "budget", "peak", "plain", "predicted", "measured", "goal", "verdict")

MODELS: Mapping[str, Callable[[], Case]] = {
    "resnet100": partial(resnet, DEEP, 16, 16),
    "resnet100 twice": partial(resnet, DEEP, 16, 32),
    "gpt12": partial(gpt, 12, batch=2),
    "gpt24": partial(gpt, 24, batch=2),
    "chain": chain,
    "gpt": gpt,
    "resnet": resnet,
    **{f"chain{n}": partial(chain, n, 64, 4096) for n in LAYERS},
}


@dataclass(frozen=True)
class Claim:
    """What a figure must not exceed.

    Attributes:
        text: the claim.
        goal: largest figure within it.
        check: predicts the figure, and measures it with pairs of steps if their number is not 0.
    """

    text: str
    goal: float
    check: Callable[[int], Row]


def planned(name: str, budget: int | float | str | None = None, **options: Any) -> Plan:
    """The plan of a model within a budget."""
    torch.manual_seed(0)
    module, args = MODELS[name]()
    return fxremat.plan(module, args, budget=budget, device=DEVICE, inner="eager", **options)


def _run(model: str, run: str, pairs: int, reference: str | None = None) -> Row:
    more = {"reference": reference or model, "spent": SPENT}
    found = variants.measured(Path(__file__), model, "eager", run, pairs, **more)
    if found["status"] != "done":
        raise RuntimeError(f"{model}, {run}: {found['error']}")
    return found


def _twice(pairs: int) -> Row:
    """Twice the batch within the peak of the plain step."""
    plain = planned("resnet100")
    budget = plain.baseline_peak
    if pairs:
        budget = _run("resnet100", "eager", 0)["peak"]
    plan = planned("resnet100 twice", budget)
    figure = (plan.step_seconds + plan.recompute_seconds) / 2 / plain.step_seconds
    row: Row = {"budget": budget, "plain": budget, "predicted": figure}
    if pairs:
        real = _run("resnet100 twice", f"fxremat {budget}", pairs, "resnet100")
        row |= {"peak": real["peak"], "measured": real["time"] / 2}
    return row


def _checkpointing(name: str, pairs: int) -> Row:
    """At the peak of every block checkpointed, extra time over its extra time."""
    by_hand = planned(name, strategy="full")
    budget = by_hand.predicted_peak
    theirs = _run(name, "every 1", pairs) if pairs else {}
    budget = theirs.get("peak", budget)
    plan = planned(name, budget)
    row: Row = {"budget": budget, "plain": plan.baseline_peak}
    row["predicted"] = plan.recompute_seconds / by_hand.recompute_seconds
    if pairs:
        ours = _run(name, f"fxremat {budget}", pairs)
        share = (ours["time"] - 1) / max(theirs["time"] - 1, 1e-9)
        row |= {"peak": ours["peak"], "measured": share}
        row |= {"time": ours["time"], "checkpointing's time": theirs["time"]}
    return row


def _within(name: str, budget: float | int, pairs: int) -> Row:
    """Time of a step within a budget, a fraction of the peak or bytes."""
    plan = planned(name, budget)
    row: Row = {"budget": plan.budget, "plain": plan.baseline_peak, "floor": plan.floor}
    row["predicted"] = 1 + plan.overhead
    if pairs:
        real = _run(name, f"fxremat {budget}", pairs)
        row |= {"peak": real["peak"], "measured": real["time"]}
    return row


def _less(name: str, share: float, pairs: int) -> Row:
    """Time of the cheapest plan that keeps no more than a share of the activations."""
    torch.manual_seed(0)
    module, args = MODELS[name]()
    curve = fxremat.frontier(module, args, device=DEVICE, inner="eager")
    whole = max(plan.saved_bytes for plan in curve)
    kept = (plan for plan in curve if plan.saved_bytes <= share * whole)
    chosen = min(kept, key=lambda plan: plan.recompute_seconds)
    row = _within(name, chosen.predicted_peak, pairs)
    return row | {"activations": chosen.saved_bytes / whole}


def _root(depth: int, pairs: int) -> Row:
    budget = int(2 * depth**0.5 * LAYER)
    return _within(f"chain{depth}", budget, pairs) | {"layers": depth}


CLAIMS: dict[str, Claim] = {
    "resnet100": Claim("ResNet of 100 layers, twice the batch: time a sample", 1.15, _twice),
    **{
        name: Claim(f"{name} at checkpointing's peak: share of its extra time", 0.7, check)
        for name in ("gpt12", "gpt24")
        for check in [partial(_checkpointing, name)]
    },
    "gpt": Claim("gpt, 50 % less activations: time", 1.15, partial(_less, "gpt", 0.5)),
    "resnet": Claim("resnet, 50 % less activations: time", 1.15, partial(_less, "resnet", 0.5)),
    "chain": Claim("chain, 40 % less activations: time", 1.15, partial(_less, "chain", 0.6)),
    **{
        f"chain{n}": Claim(f"chain of {n} layers in 2 sqrt(n): time", 4 / 3, partial(_root, n))
        for n in LAYERS
    },
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    made = harness.parser(__doc__, models=False)
    made.add_argument("--measure", action="store_true", help="run the steps too")
    made.add_argument("--pairs", type=int, default=5, help="pairs of timed steps, at least")
    made.add_argument("--only", help="claims by the names above, separated by commas")
    args = made.parse_args(argv)
    pairs = args.pairs if args.measure else 0
    names = harness.chosen(args.only, CLAIMS)
    rows = harness.collect(args, "claims", names, lambda n: [_judged(n, pairs)], pairs=pairs)
    harness.show([shown(row) for row in rows], COLUMNS)
    _draw(rows, args.out / "chains.png")
    return int(any(row["verdict"] != "met" for row in rows))


def _judged(name: str, pairs: int) -> Row:
    """The row of a claim; what went wrong is its verdict."""
    claim = CLAIMS[name]
    row: Row = {"claim": claim.text, "goal": claim.goal}
    try:
        row |= claim.check(pairs)
    except (fxremat.RematError, RuntimeError) as error:
        return row | {"verdict": "failed", "error": error_line(error)}
    kept = row.get("peak", 0) <= row["budget"]
    within = row.get("measured", row["predicted"]) <= row["goal"]
    return row | {"verdict": "met" if kept and within else "missed"}


def shown(row: Row) -> Row:
    """A row with bytes in MiB."""
    return harness.in_mib(row, "budget", "peak", "plain", "floor")


def _draw(rows: Sequence[Row], path: Path) -> None:
    """Peaks of the chains over their number of layers."""
    chains = [shown(row) for row in rows if "layers" in row]
    keys = {"plain": "nothing recomputed", "budget": "budget, 2 sqrt(n)", "peak": "measured"}
    keys |= {"floor": "no plan goes below"}
    series = {
        label: [(row["layers"], row[key]) for row in chains]
        for key, label in keys.items()
        if all(key in row for row in chains)
    }
    if chains:
        pictures.lines(series, path, "layers", "peak, MiB")


if __name__ == "__main__":
    raise SystemExit(main())
