"""The command line: plan a step, see the plan, ask why.

::

    fxremat plan train.py:make --budget 0.5 --device h100 --optimizer AdamW -o plan.json
    fxremat explain plan.json
    fxremat explain plan.json addmm_6

Exit codes: 0 if all went well; 1 if what was asked for cannot be had (no plan meets the budget, a
file cannot be read, the step cannot be traced); 2 if the command line makes no sense.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from fxremat import __version__
from fxremat.base.budget import Budget
from fxremat.base.errors import BudgetError, RematError
from fxremat.cli import commands
from fxremat.constraints.user import VERDICTS
from fxremat.costs.devices import NAMED
from fxremat.options import InnerName, Strategy

__all__ = ["main"]

TARGET = """
TARGET is file.py:factory or module:factory. The factory takes no arguments and returns
(model, args) or (model, args, kwargs): a module that returns the loss, and what it is called with.
Where the factory allows it, plan and frontier build the model without memory, on the "meta" device.
"""
BUDGETS = "'6GiB', bytes, a fraction of the peak without recomputing ('0.5', '50%%'), or 'min'"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the result is the exit code."""
    args = _parser().parse_args(argv)
    with warnings.catch_warnings():
        if not args.debug:
            warnings.showwarning = _warn
        try:
            status: int = args.run(args)
        except KeyboardInterrupt:
            _say("stopped")
        except BrokenPipeError:  # the reader of our output has gone, `| head` say
            sys.stderr.close()
        except Exception as error:
            if args.debug:
                raise
            known = isinstance(error, RematError)
            said = str(error) or "no message"
            _say(said if known else f"{type(error).__name__}: {said}; --debug shows where")
        else:
            return status
    return 1


def _say(text: str) -> None:
    print(f"fxremat: {' '.join(text.split())}", file=sys.stderr)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    _say(f"warning: {message}")


def _file(text: str) -> str:
    if not Path(text).absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"{text}: there is no folder {Path(text).parent}; make it, or name one that is there"
        )
    return text


def _chart(text: str) -> str:
    from fxremat.inspect.drawings.charts import SUFFIXES  # slow to import

    if Path(text).suffix.lower() not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"{text}: a chart is an .svg or a .png file")
    return _file(text)


def _budgets(text: str) -> list[str]:
    found = [b for b in text.split(",") if b]
    try:
        for budget in found:
            Budget.parse(budget)
    except BudgetError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return found


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="fxremat",
        description="Plan a training step within a memory budget, see the plan, ask why.",
        epilog=TARGET,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"fxremat {__version__}")
    kinds = made.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _plan(kinds)
    _frontier(kinds)
    _show(kinds)
    _diff(kinds)
    _explain(kinds)
    _bench(kinds)
    return made


def _command(kinds: object, name: str, text: str, example: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = kinds.add_parser(  # type: ignore[attr-defined]
        name,
        help=text[0].lower() + text[1:].removesuffix("."),
        description=text,
        epilog=f"example:\n  fxremat {name} {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.set_defaults(run=getattr(commands, f"{name}_"))
    made.add_argument("--json", action="store_true", help="print JSON in place of text")
    made.add_argument("--quiet", action="store_true", help="say nothing of the progress")
    made.add_argument("--debug", action="store_true", help="show where an error was raised")
    return made


def _plan(kinds: object) -> None:
    made = _command(
        kinds,
        "plan",
        "Plan a training step without running it.",
        "train.py:make --memory 80GiB --device h100 --optimizer AdamW --html plan.html",
    )
    what = _add_step(made).add_mutually_exclusive_group()
    what.add_argument("--budget", metavar="B", help=f"limit on the peak: {BUDGETS}")
    total = "limit on all that the step holds, with parameters and the rest"
    what.add_argument("--memory", metavar="M", help=total)
    by_hand = "what people do by hand, or the curve's knee"
    what.add_argument("--strategy", choices=get_args(Strategy), help=by_hand)
    made.add_argument("-k", type=int, default=1, help="blocks in a stretch, for --strategy every")
    closest = "take the least peak where no plan meets the budget"
    made.add_argument(
        "--closest", dest="on_infeasible", action="store_const", const="closest", help=closest
    )
    _add_files(made, "PLAN.json")


def _frontier(kinds: object) -> None:
    made = _command(
        kinds,
        "frontier",
        "Show the whole trade-off of peak against time, beside what people do by hand.",
        "train.py:make --device h100 --inner eager --html curve.html",
    )
    _add_files(_add_step(made), "CURVE.json")


def _show(kinds: object) -> None:
    made = _command(
        kinds, "show", "Show a plan or a frontier from its file.", "plan.json --html plan.html"
    )
    made.add_argument("file", metavar="FILE.json", help="what plan or frontier wrote")
    made.add_argument("--frontier", action="store_true", help="search the trade-off curve as well")
    _add_files(made, None)


def _diff(kinds: object) -> None:
    made = _command(
        kinds, "diff", "Tell what a second plan does otherwise.", "half.json least.json"
    )
    made.add_argument("first", metavar="A.json", help="a plan")
    made.add_argument("second", metavar="B.json", help="another, of the same graph")


def _explain(kinds: object) -> None:
    made = _command(
        kinds,
        "explain",
        "Tell why a value is saved or recomputed, and what memory is worth at the peak.",
        "plan.json addmm_6",
    )
    made.add_argument("file", metavar="PLAN.json", help="a plan")
    made.add_argument(
        "name", metavar="NAME", nargs="?", help="a value or an op; without it, the peak is told of"
    )


def _bench(kinds: object) -> None:
    made = _command(
        kinds,
        "bench",
        "Run a step for real: peaks, times and gradients beside uncompiled eager.",
        "train.py:make --budgets 0.8,0.5,min --inner eager",
    )
    _add_target(made)
    made.add_argument(
        "--budgets",
        type=_budgets,
        default="1.0,0.5,min",
        metavar="B,B",
        help=f"separated by commas: {BUDGETS}",
    )
    made.add_argument("--pairs", type=int, default=5, help="timed steps of each; 0: no times")


def _add_target(made: argparse.ArgumentParser) -> None:
    made.add_argument("target", metavar="TARGET", help="file.py:factory or module:factory")
    made.add_argument(
        "--inner",
        choices=get_args(InnerName),
        default="inductor",
        help="what compiles the halves (default: inductor)",
    )


def _add_step(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    _add_target(made)
    made.add_argument(
        "--device", metavar="D", help=f"one of {', '.join(NAMED)}; this machine by default"
    )
    made.add_argument("--optimizer", metavar="O", help="its name in torch.optim, to add its state")
    there = "gradients of earlier steps are there while the step runs"
    made.add_argument("--accumulates", action="store_true", help=there)
    made.add_argument("--time-limit", type=float, metavar="S", help="seconds of search")
    made.add_argument("--effort", type=int, default=1, metavar="N", help="rounds of search")
    verdicts = f"{', '.join(VERDICTS)}: what to do with ops or modules; may be repeated"
    made.add_argument("--policy", action="append", metavar="PATTERN=VERDICT", help=verdicts)
    return made


def _add_files(made: argparse.ArgumentParser, what: str | None) -> None:
    if what is not None:
        made.add_argument("-o", "--output", type=_file, metavar=what, help="write it to a file")
    made.add_argument("--html", type=_file, metavar="FILE", help="write a report, one HTML file")
    made.add_argument(
        "--dot", type=_file, metavar="FILE", help="write the joint graph with the cut as DOT"
    )
    made.add_argument("--svg", type=_file, metavar="FILE", help="write the same as a drawing")
    made.add_argument(
        "--chart", type=_chart, metavar="FILE", help="write the memory over the step, .png or .svg"
    )
