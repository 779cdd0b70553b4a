"""The ``torch.compile`` backend.

::

    compiled = torch.compile(model, backend=fxremat.backend("6GiB"))

AOTAutograd traces the joint graph and hands it to our partitioner; the halves go to the inner
compiler. Graphs without a backward are passed straight through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Never, Unpack

from torch import fx

from fxremat.backends.inductor import Attempt, trains
from fxremat.backends.pending_backwards import CompiledGraph, PendingBackwards
from fxremat.base.budget import Budget, BudgetLike
from fxremat.base.errors import OptionError
from fxremat.distributed.rendezvous import meet
from fxremat.options import BackendOptions, Options
from fxremat.planning.assign import Room, Share
from fxremat.planning.peers import Peers, SingleProcess
from fxremat.planning.pipeline import Planned, plan_joint
from fxremat.planning.planner import Planner
from fxremat.plans.plan import Plan, Plans
from fxremat.plans.words import summary
from passes import torch_internals

__all__ = ["Backend", "backend", "entry_point"]

log = logging.getLogger("fxremat")

Halves = tuple[fx.GraphModule, fx.GraphModule]


class Backend:
    """A backend for ``torch.compile`` that keeps the peak of a step within a budget.

    Attributes:
        options: what it was made with.
        plans: one :class:`fxremat.plans.plan.Plan` for each training graph compiled so far, in
            order.
        timings: for each plan the seconds that each stage of planning it took; empty for one that
            came with code that had been kept.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.plans: Plans = Plans()
        self.timings: list[dict[str, float]] = []
        self._pending = PendingBackwards(options.budget, strict=options.on_infeasible == "raise")
        if options.dump is not None:
            from fxremat.inspect.dump import check_folder  # draws, which a backend alone need not

            check_folder(options.dump)

    def __repr__(self) -> str:
        """The options, and how many graphs have been planned."""
        return f"fxremat.backend({self.options.budget}, plans={len(self.plans)})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Backend:
        """Itself: what wraps ``torch.compile`` copies its arguments, and plans are listed here."""
        return self

    def __call__(
        self, module: fx.GraphModule, example_inputs: Sequence[Any], **rest: Any
    ) -> Callable[..., Any]:
        """Compile one graph, as ``torch.compile`` asks for it.

        Raises:
            OptionError: if ``torch.compile`` was given a mode or options beside the backend.
            RankError: if other processes of the group compile other graphs.
        """
        _refuse(rest)
        peers = self._meet(module, example_inputs)
        reserved = self._pending.reserved()
        room = Room(reserved, shared=reserved > 0 or torch_internals.breaks_off(module))
        kept = torch_internals.copied(module)
        run, plan = self._compile(module, example_inputs, self.options, peers, room)
        if plan is None:
            return run
        place = len(self.plans) - 1

        def again(share: Share) -> tuple[Callable[..., Any], Plan]:
            asked = replace(self.options, budget=Budget(nbytes=share.peak))
            mine = Room(saved=share.saved)
            run, found = self._compile(kept, example_inputs, asked, SingleProcess(), mine, place)
            assert found is not None  # it had a plan before
            # With less to save, a plan that recomputes nothing is another one: the first is meant.
            self.plans[place] = replace(found, baseline_peak=plan.baseline_peak)
            return run, self.plans[place]

        alone = isinstance(peers, SingleProcess)
        return self._pending.watch(CompiledGraph(run, plan, again if alone else None))

    def _compile(
        self,
        module: fx.GraphModule,
        example_inputs: Sequence[Any],
        options: Options,
        peers: Peers,
        room: Room,
        place: int | None = None,
    ) -> tuple[Callable[..., Any], Plan | None]:
        """What a graph is compiled to, and its plan; None where it has no backward."""
        if options.inner == "inductor":
            attempt = Attempt(options, room, peers)
            while not attempt.compile(module, example_inputs):
                over = f"is {attempt.excess} bytes over the budget"
                why = over if attempt.excess > 0 else "may hold less"
                log.info("compiled code %s; planning again", why)
            if attempt.plan is not None:
                self._take(attempt.plan, attempt.planned, place)
            assert attempt.compiled.run is not None  # compile() returned
            return attempt.compiled.run, attempt.plan
        inner = options.inner
        compiler = torch_internals.run_op_by_op if inner == "eager" else _boxed(inner)
        made: list[Planned] = []

        def partition(joint: fx.GraphModule, _: Any, *, num_fwd_outputs: int, **__: Any) -> Halves:
            planned = plan_joint(joint, num_fwd_outputs, options, room=room, peers=peers)
            made.append(planned)
            return planned.split.forward, planned.split.backward

        run = torch_internals.compile_with_aot(module, example_inputs, compiler, partition)
        if not made:
            return run, None
        self._take(made[-1].plan, made[-1], place)
        return run, made[-1].plan

    def _meet(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Peers:
        if self.options.ranks == "own" or not trains(example_inputs):
            return SingleProcess()
        return meet(module, example_inputs, self.options)

    def _take(self, plan: Plan, planned: Planned | None, place: int | None) -> None:
        """Keep a plan, in place of an earlier one of the same graph if there is one.

        ``planned`` is None where the plan came with code that had been kept.
        """
        timings = {} if planned is None else planned.timings
        if place is None:
            self.plans.append(plan)
            self.timings.append(timings)
        else:
            self.plans[place], self.timings[place] = plan, timings
        log.info("%s", summary(plan, sum(timings.values())))
        if plan.context.guesses:
            log.warning("%s is not known: the peak may be higher", plan.context.guesses)
        if self.options.dump is not None:
            from fxremat.inspect.dump import dump_plan

            texts = None if planned is None else planned.texts
            shown = {} if texts is None else asdict(texts)
            curve = Planner.of(plan).frontier()
            where = dump_plan(self.options.dump, plan, frontier=curve, **shown)
            log.info("plan, report and drawings are in %s", where)


def backend(
    budget: BudgetLike = None, *misplaced: Never, **options: Unpack[BackendOptions]
) -> Backend:
    """Make a ``torch.compile`` backend that keeps the peak of a training step within a budget.

    The peak counts the bytes that the compiled region holds above what exists when it is entered:
    activations, temporaries, gradients and workspaces; not parameters or optimizer state.

    Args:
        budget: ``"6GiB"`` or an int (bytes); ``0.4`` or ``"40%"`` (of the peak of the plan that
            recomputes nothing); ``"min"`` (the smallest peak); None (no limit).
        misplaced: nothing.
        options: see :class:`fxremat.options.Options`: ``inner``, ``cost``, ``device``,
            ``on_infeasible``, ``time_limit``, ``effort``, ``policy``, ``regions``, ``dump``; and,
            instead of a budget, ``strategy`` or ``plan``.

    Raises:
        OptionError: if an option is unknown or has the wrong type, or a folder cannot be written.
        BudgetError: if the budget makes no sense. One that no plan meets is raised when the
            graph is compiled, wrapped by torch in ``BackendCompilerFailed``.

    Example:
        >>> import fxremat
        >>> fxremat.backend(0.4, inner="eager")
        fxremat.backend(40% of the baseline peak, plans=0)
    """
    if isinstance(budget, fx.GraphModule):
        raise OptionError(
            "backend=fxremat.backend makes a backend and is none itself; write "
            "backend=fxremat.backend(), with a budget if you like"
        )
    if misplaced:
        raise OptionError(f"{misplaced[0]!r}: options are given by name, such as inner='eager'")
    return Backend(Options.parse(budget, **options))


def entry_point(
    module: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any
) -> Callable[..., Any]:
    """``torch.compile(model, backend="fxremat", options={"budget": "6GiB"})``.

    Raises:
        OptionError: if an option is unknown or has the wrong type, or a mode is given.
        BudgetError: if the budget makes no sense.
    """
    options = Options.from_mapping(kwargs.pop("options", None) or {})
    _refuse(kwargs)
    return Backend(options)(module, example_inputs)


def _refuse(given: dict[str, Any]) -> None:
    """Refuse what ``torch.compile`` hands on and we would not heed."""
    wrong = [f"{name}={value!r}" for name, value in given.items() if value]
    if wrong:
        raise OptionError(
            f"torch.compile was given {', '.join(wrong)}, which fxremat does not take; give "
            "options to fxremat.backend(...), or options={...} beside backend='fxremat'"
        )


def _boxed(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """Let a user's compiler take its inputs as a list, so that they can be freed when used up."""

    def compile_half(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return torch_internals.boxed(compiler(module, inputs))

    return compile_half
