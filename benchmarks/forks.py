"""Cases in processes of their own that need not import torch: they are forked from one that has.

``harness.run_child`` starts an interpreter for each case, which takes longer than many cases do.
Here a server imports what they need, once, and nothing has run in it when it forks.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from fxremat.base.units import error_line

__all__ = ["run_forked"]

HUGGING_FACE = (
    "transformers.models.llama.modeling_llama",
    "transformers.models.bert.modeling_bert",
    "transformers.models.vit.modeling_vit",
    "diffusers.models.unets.unet_2d",
)
SERVED = ("torch._inductor.compile_fx", "benchmarks.variants", *HUGGING_FACE)
PATIENCE = 600  # seconds that a case may take
Case = dict[str, Any]


def run_forked(run: Callable[[Case], Case], case: Case, patience: float = PATIENCE) -> Case:
    """What ``run`` returns for a case, or ``{"status": "failed", "error": ...}``.

    Args:
        run: a function of a module, which the process finds by name.
        case: its argument.
        patience: seconds after which the process is ended.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(SERVED))
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(run, case, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(patience):
            process.kill()
            return {"status": "failed", "error": f"no result after {patience:.0f} s"}
        found: Case = ours.recv()
        return found
    except EOFError:
        process.join()
        return {"status": "failed", "error": f"exit {process.exitcode}"}
    finally:
        process.join()


def _child(run: Callable[[Case], Case], case: Case, pipe: Connection) -> None:
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # what the profiler and compilers print is not of the parent's tables
    os.dup2(nowhere, 2)
    try:
        found = run(case)
    except Exception as error:
        found = {"status": "failed", "error": error_line(error)}
    pipe.send(found)
