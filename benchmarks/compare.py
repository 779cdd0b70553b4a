"""Peak and time of ten families against what people use today, and fxremat at each of their peaks.

    python -m benchmarks.compare --inner eager
    python -m benchmarks.compare --inner inductor
    python -m benchmarks.compare --inner eager --families gpt,resnet --pairs 3 --out FOLDER

Every variant (see ``benchmarks/variants.py``) runs in a process of its own: its step's peak from
the allocator's events, its gradients beside eager's, and its time over a reference in interleaved
pairs. The reference is uncompiled eager, or with Inductor the compiled step without recomputing.
Then fxremat is given the measured peaks of the others as budgets.

    peak         bytes above what exists when the step starts, in MiB, measured
    of plain     the same over the reference's peak
    time         step time over the reference's, median of the pairs
    predicted    of fxremat's plan, in MiB
    ours         the least time of fxremat's runs whose measured peak is not above that row's
    kept         whether the measured peak is within the budget
    gradients    largest difference from eager's, over the largest gradient (Inductor's own code
                 differs from eager too; up to twice that of the compiled step is taken as right)

Results go to ``compare-INNER.json`` and ``.png`` in the folder after each family, and a family that
is there is not run again (--again does so). No family begins after --minutes; a second run goes on
from there. The last line says of how many runs of fxremat the measured peak is the predicted one
to the byte. With --alone there are no others: ``--alone --no-time --json FILE``, before and after a
change, shows whether predictions stayed. The exit code is 1 if a budget was broken, gradients are
off or a run of fxremat failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from benchmarks import byhand, harness, hugging_face, pictures, variants, zoo
from benchmarks.harness import Row

__all__ = ["COLUMNS", "SAVING", "best", "broken", "budgets", "exact", "main", "shown"]

PLAIN = {"eager": "eager", "inductor": "compiled"}
TORCH = {"eager": ("0.7", "0.5", "0.3", "0.0"), "inductor": ("0.5", "0.3")}
OURS = {"eager": ("0.5", "min"), "inductor": ("0.5",)}
APART = {"eager": 0.03, "inductor": 0.15}  # peaks nearer than that share a run of fxremat
SAVING = 0.97  # of the plain peak; what is above it saves nothing to speak of
CLOSE = 2e-2  # gradients: a deep net with batch norm amplifies rounding
COLUMNS = (
    *("model", "inner", "run", "peak", "of plain", "time", "predicted", "ours", "kept"),
    "gradients",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    args = _parser().parse_args(argv)
    models = harness.chosen(
        args.models, harness.load_zoo(args.zoo), () if args.zoo else zoo.FAMILIES
    )
    settings = {"zoo": args.zoo and args.zoo.name, "alone": args.alone, "budgets": args.budgets}
    settings |= {"inner": args.inner, "pairs": args.pairs}
    file = f"compare-{args.inner}"
    rows = harness.collect(args, file, models, lambda m: _compared(args, m), **settings)
    for model in models:
        harness.show([shown(row) for row in rows if row["model"] == model], COLUMNS)
    pictures.compared(rows, args.out / f"{file}.png")
    print(exact(rows))
    return int(any(broken(row) for row in rows))


def exact(rows: Sequence[Row]) -> str:
    """In how many runs of fxremat the measured peak is the predicted one, and within the budget."""
    ours = [row for row in rows if row["status"] == "done" and "predicted" in row]
    equal = sum(row["peak"] == row["predicted"] for row in ours)
    above = sum(row["kept"] is False for row in ours)
    return (
        f"{len(ours)} runs of fxremat: {equal} to the byte as predicted, {above} above their budget"
    )


def broken(row: Row) -> bool:
    """Whether a run of fxremat failed, was above its budget, or has gradients of its own."""
    if not row["run"].startswith("fxremat") or row["status"] == "infeasible":
        return False
    if row["status"] != "done":
        return True
    return row["kept"] is False or row["gradients"] > max(CLOSE, 2 * row["plain gradients"])


def budgets(rows: Sequence[Row], apart: float) -> list[int]:
    """Peaks of others that fxremat is given, largest first; those near each other as the least."""
    plain = max((r["peak"] for r in rows if r["run"] in PLAIN.values()), default=0)
    peaks = [r["peak"] for r in rows if r["status"] == "done" and r["peak"] < SAVING * plain]
    found: list[int] = []
    for peak in sorted(peaks):
        if not found or peak > found[-1] * (1 + apart):
            found.append(peak)
    return found[::-1]


def best(row: Row, ours: Sequence[Row]) -> float | None:
    """The least time of runs whose measured peak is not above a row's."""
    times = [r["time"] for r in ours if r["peak"] <= row["peak"] and r.get("time")]
    return min(times, default=None)


def _compared(args: argparse.Namespace, model: str) -> list[Row]:
    """All rows of one family."""
    inner: str = args.inner
    rows = [_run(args, model, run) for run in _theirs(args, model)]
    if rows[0]["status"] != "done":
        return rows[:1]
    given = args.budgets.split(",") if args.budgets else OURS[inner]
    matched = [] if args.alone else [str(b) for b in budgets(rows, APART[inner])]
    ours = [_run(args, model, f"fxremat {b}") for b in (*given, *matched)]
    done = [r for r in ours if r["status"] == "done"]
    for row in done:
        limit = row.get("limit")
        row["kept"] = None if limit is None else row["peak"] <= limit
    plain = rows[0]
    for row in (*rows, *ours):
        if row["status"] == "done":
            row["share"] = row["peak"] / plain["peak"]
            row["plain gradients"] = plain["gradients"]
            row["ours"] = best(row, done) if row not in ours else None
    return rows + ours


def _theirs(args: argparse.Namespace, model: str) -> list[str]:
    """What fxremat is compared with. Compiling takes long, so with Inductor there is less of it."""
    try:
        module, _ = harness.build(args.zoo, model)
    except ImportError:
        return [PLAIN[args.inner]]
    if args.alone:
        return [PLAIN[args.inner]]
    flag = ["flag"] if model in hugging_face.FLAGGED or args.zoo else []
    several = byhand.every(module)
    if args.inner == "inductor":  # the flag is one block at a time
        several = [k for k in several if k == 2 or (k == 1 and not flag)]
    torch = [f"torch {b}" for b in TORCH[args.inner]]
    return [PLAIN[args.inner], *torch, *(f"every {k}" for k in several), "selective", *flag]


def _run(args: argparse.Namespace, model: str, run: str) -> Row:
    begin = time.monotonic()
    row = variants.measured(args.zoo, model, args.inner, run, args.pairs)
    took = f"{time.monotonic() - begin:.1f} s"
    print(f"{model} {args.inner} {run}: {row['status']}, {took}", file=sys.stderr, flush=True)
    return row


def shown(row: Row) -> Row:
    """A row in the units of its table."""
    if row["status"] != "done":
        return row | {"peak": row["status"]}
    gradients = f"{row['gradients']:.0e}" if row["gradients"] else "equal"
    named = {"of plain": row.get("share"), "gradients": gradients}
    return harness.in_mib(row, "peak", "predicted") | named


def _parser() -> argparse.ArgumentParser:
    parser = harness.parser(__doc__)
    parser.add_argument("--inner", choices=tuple(TORCH), default="eager", help="inner compiler")
    parser.add_argument("--budgets", help="of fxremat beside those of the others' peaks")
    parser.add_argument("--alone", action="store_true", help="run nothing but fxremat and plain")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of timed steps; 0: no times")
    parser.add_argument("--no-time", action="store_const", const=0, dest="pairs", help="--pairs 0")
    parser.set_defaults(minutes=14)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
