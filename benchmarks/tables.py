"""Tables in Markdown from results, so that no number in a document is typed by hand.

    python -m benchmarks.tables                       # all tables
    python -m benchmarks.tables summary claims        # some of them
    python -m benchmarks.tables --from FOLDER

    readme       the summary in short
    summary      for each way to save memory, over all families: its peak and time, and the time of
                 fxremat at the same measured peak or less
    families     every run of every family
    planning     planning time by size of the graph
    claims       the field's claims
    gap          recompute time over proved optima, by fraction of the peak
    scale        planning time and quality as a transformer grows
    curve        whole curves: are they monotone, and what they cost

Only what is in the folder is printed; the benchmarks write there.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks import claims, compare, curve, gap, harness, planning
from benchmarks.harness import FOLDER, Row, read

__all__ = ["TABLES", "main", "markdown", "summary"]

INNERS = ("eager", "inductor")


def markdown(rows: Sequence[Row], columns: Sequence[str] = ()) -> str:
    """A table, of all that is in the rows if no columns are named; no text without rows."""
    if not rows:
        return ""
    columns = columns or list(dict.fromkeys(title for row in rows for title in row))
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


def _compared(folder: Path) -> Iterator[tuple[str, list[Row]]]:
    """The inner compilers, and what was compared with each."""
    for inner in INNERS:
        rows = read(folder / f"compare-{inner}.json")
        if rows:
            yield inner, rows


def _summary(folder: Path) -> str:
    parts = []
    for inner, rows in _compared(folder):
        parts += [f"Inner compiler `{inner}`:", markdown(summary(rows)), compare.exact(rows)]
    return "\n\n".join(parts)


def _readme(folder: Path) -> str:
    """The summary in short: ways that save memory in at least three families, one of torch's."""
    short = [
        {
            "compiler": f"`{inner}`",
            "way": row["way"],
            "saves memory in": row["families"],
            "peak": row["peak of plain"],
            "time": row["time"],
            "fxremat in that peak": row["fxremat's time"],
        }
        for inner, rows in _compared(folder)
        for row in summary(rows)
        if int(row["families"].split()[0]) >= 3 and row["way"] not in ("torch 0.7", "torch 0.3")
    ]
    return markdown(short)


def _families(folder: Path) -> str:
    columns = [c for c in compare.COLUMNS if c not in ("model", "inner")]
    parts = []
    for inner, rows in _compared(folder):
        for model in dict.fromkeys(row["model"] for row in rows):
            mine = [compare.shown(row) for row in rows if row["model"] == model]
            parts += [f"{model}, inner compiler `{inner}`:", markdown(mine, columns)]
    return "\n\n".join(parts)


def _planning(folder: Path) -> str:
    return markdown(read(folder / "planning.json"), planning.COLUMNS)


def _claims(folder: Path) -> str:
    rows = [claims.shown(row) for row in read(folder / "claims.json")]
    return markdown(rows, claims.COLUMNS)


def _gap(folder: Path) -> str:
    cells = read(folder / "gap.json")
    return "\n\n".join([markdown(gap.condensed(cells)), *gap.summary(cells)]) if cells else ""


def _curve(kind: str) -> Callable[[Path], str]:
    def table(folder: Path) -> str:
        rows = read(folder / f"{kind}.json")
        return markdown([curve.shown(row) for row in rows], curve.columns(rows))

    return table


TABLES: dict[str, Callable[[Path], str]] = {
    "readme": _readme,
    "summary": _summary,
    "families": _families,
    "planning": _planning,
    "claims": _claims,
    "gap": _gap,
    "scale": _curve("scale"),
    "curve": _curve("curve"),
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
