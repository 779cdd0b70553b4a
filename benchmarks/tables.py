"""Tables in Markdown from results, so that no number in a document is typed by hand.

    python -m benchmarks.tables                       # all tables
    python -m benchmarks.tables summary claims        # some of them
    python -m benchmarks.tables --from FOLDER

    summary      for each way to save memory, over all families: its peak and time, and the time of
                 fxremat at the same measured peak or less
    families     every run of every family
    prediction   peak and time that plans promise, beside what was measured
    planning     planning time by size of the graph
    claims       the field's claims
    gap          recompute time over proved optima, by fraction of the peak

Only what is in the folder is printed: ``benchmarks.compare``, ``planning_growth``, ``claims``, and
``gap --json FOLDER/gap.json`` write there.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import claims, compare, gap, harness, planning_growth
from benchmarks.harness import MIB
from benchmarks.results import FOLDER, read, read_list

__all__ = ["TABLES", "main", "markdown", "summary"]

INNERS = ("eager", "inductor")
Row = Mapping[str, Any]


def markdown(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """A table; an empty text if there are no rows."""
    if not rows:
        return ""
    lines = [columns, ["---"] * len(columns)]
    lines += [[harness.cell(row.get(c)) for c in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summary(rows: Sequence[Row]) -> list[Row]:
    """What each way costs over all families where it saves memory, beside fxremat at its peak.

    Times and peaks are medians. The share is fxremat's extra time over the other's, both summed
    over the families; "-" where the other takes none.
    """
    ways = dict.fromkeys(r["run"] for r in rows if not r["run"].startswith("fxremat"))
    found: list[Row] = []
    for way in ways:
        mine = [r for r in rows if r["run"] == way]
        done = [r for r in mine if r["status"] == "done" and r.get("time")]
        saving = [r for r in done if r["share"] < compare.SAVING]
        pairs = [(r["time"], r["ours"]) for r in saving if r["ours"] is not None]
        if not pairs:
            continue
        extra = sum(theirs - 1 for theirs, _ in pairs)
        ours = sum(time - 1 for _, time in pairs)
        found.append(
            {
                "way": way,
                "families": f"{len(saving)} of {len(mine)}",
                "peak of plain": statistics.median(r["share"] for r in saving),
                "time": statistics.median(t for t, _ in pairs),
                "fxremat's time": statistics.median(t for _, t in pairs),
                "share of extra time": ours / extra if extra > 0 else None,
                "fxremat faster": f"{sum(o < t for t, o in pairs)} of {len(saving)}",
            }
        )
    return found


def _summary(folder: Path) -> str:
    columns = (
        *("way", "families", "peak of plain", "time", "fxremat's time"),
        *("share of extra time", "fxremat faster"),
    )
    parts = []
    for inner in INNERS:
        table = markdown(summary(read(folder / f"compare-{inner}.json")), columns)
        parts += [f"Inner compiler `{inner}`:", table] if table else []
    return "\n\n".join(parts)


def _readme(folder: Path) -> str:
    """The summary in short: ways that save memory in at least three families, one of torch's."""
    columns = ("compiler", "way", "saves memory in", "peak", "time", "fxremat in that peak")
    rows: list[Row] = []
    for inner in INNERS:
        for row in summary(read(folder / f"compare-{inner}.json")):
            if int(row["families"].split()[0]) < 3 or row["way"] in ("torch 0.7", "torch 0.3"):
                continue
            values = (f"`{inner}`", row["way"], row["families"])
            figures = (row["peak of plain"], row["time"], row["fxremat's time"])
            rows.append(dict(zip(columns, (*values, *figures), strict=True)))
    return markdown(rows, columns)


def _families(folder: Path) -> str:
    columns = tuple(c for c in compare.COLUMNS if c not in ("model", "inner"))
    parts = []
    for inner in INNERS:
        rows = read(folder / f"compare-{inner}.json")
        for model in dict.fromkeys(row["model"] for row in rows):
            mine = [compare.shown(row) for row in rows if row["model"] == model]
            parts += [f"{model}, inner compiler `{inner}`:", markdown(mine, columns)]
    return "\n\n".join(parts)


def _prediction(folder: Path) -> str:
    columns = (
        *("model", "inner", "budget", "limit", "predicted", "measured", "ratio"),
        *("planned time", "time"),
    )
    rows = [row for inner in INNERS for row in read(folder / f"compare-{inner}.json")]
    shown = [
        {
            "model": row["model"],
            "inner": row["inner"],
            "budget": row["run"].removeprefix("fxremat "),
            "limit": None if row["limit"] is None else row["limit"] / MIB,
            "predicted": row["predicted"] / MIB,
            "measured": row["peak"] / MIB,
            "ratio": f"{row['predicted'] / row['peak']:.4f}",
            "planned time": row["planned"],
            "time": row.get("time"),
        }
        for row in rows
        if row["status"] == "done" and row.get("predicted")
    ]
    return markdown(shown, columns)


def _planning(folder: Path) -> str:
    return markdown(read(folder / "planning.json"), planning_growth.COLUMNS)


def _claims(folder: Path) -> str:
    rows = [claims.shown(row) for row in read(folder / "claims.json")]
    return markdown(rows, claims.COLUMNS)


def _gap(folder: Path) -> str:
    cells = [gap.Cell(**row) for row in read_list(folder / "gap.json")]
    short = gap.condensed(cells)
    table = markdown(short, list(dict.fromkeys(title for row in short for title in row)))
    return "\n\n".join([table, *gap.summary(cells)]) if cells else ""


TABLES: dict[str, Callable[[Path], str]] = {
    "readme": _readme,
    "summary": _summary,
    "families": _families,
    "prediction": _prediction,
    "planning": _planning,
    "claims": _claims,
    "gap": _gap,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print tables."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    made.add_argument("--from", type=Path, default=FOLDER, dest="folder", metavar="FOLDER")
    args = made.parse_args(argv)
    for name in args.tables:
        if name not in TABLES:
            raise SystemExit(f"no table {name!r}; there are {', '.join(TABLES)}")
    for name in args.tables or TABLES:
        table = TABLES[name](args.folder)
        if table:
            print(f"<!-- python -m benchmarks.tables {name} -->\n\n{table}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
