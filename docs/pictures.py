"""Make the pictures of the README: ``python docs/pictures.py`` in the root of the repository.

The picture of the report needs chromium; without it, that picture stays as it is. Times of ops are
those of a named device, so that pictures do not depend on the machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no package that is installed

import fxremat  # noqa: E402
from benchmarks.zoo import chain, gpt  # noqa: E402
from fxremat.base.files import write_text  # noqa: E402
from fxremat.inspect.drawings.charts import save_chart  # noqa: E402
from fxremat.inspect.drawings.flows import flow_network  # noqa: E402
from fxremat.inspect.drawings.frontier import frontier_chart  # noqa: E402
from fxremat.inspect.drawings.graphs import joint_graph  # noqa: E402
from fxremat.inspect.drawings.svg import to_svg  # noqa: E402
from fxremat.inspect.drawings.timeline import timeline_chart  # noqa: E402
from fxremat.plans.frontier import Frontier  # noqa: E402
from fxremat.plans.plan import Plan  # noqa: E402

FOLDER = Path(__file__).parent / "pictures"
DEVICE = "a100"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WINDOW = "1280,1500"


def main() -> None:
    """Make them all."""
    FOLDER.mkdir(exist_ok=True)
    plan = fxremat.plan(*gpt(), budget=0.5, device=DEVICE, inner="eager", optimizer="AdamW")
    frontier = fxremat.frontier(plan)
    save_chart(timeline_chart(plan), FOLDER / "timeline.svg")
    save_chart(frontier_chart(frontier, plan), FOLDER / "frontier.svg")
    small = fxremat.plan(*gpt(layers=1), budget=0.7, device=DEVICE, inner="eager")
    write_text(FOLDER / "joint.svg", to_svg(joint_graph(small)))
    least = fxremat.plan(*chain(depth=4), budget=0.75, device=DEVICE, inner="eager")
    write_text(FOLDER / "network.svg", to_svg(flow_network(least)))
    shoot(plan, frontier)
    for path in sorted(FOLDER.iterdir()):
        print(f"{path.stat().st_size / 1e3:8.0f} kB  {path.name}")


def shoot(plan: Plan, frontier: Frontier) -> None:
    """Take a picture of the report, if there is a browser."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"no picture of the report: none of {', '.join(BROWSERS)} was found", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "report.html"
        fxremat.write_report(plan, page, frontier)
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--virtual-time-budget=10000",
            f"--user-data-dir={scratch}/profile",
            f"--window-size={WINDOW}",
            f"--screenshot={FOLDER / 'report.png'}",
            page.as_uri(),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main()
