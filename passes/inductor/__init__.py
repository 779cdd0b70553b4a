"""Inductor as the inner compiler, held to the plan's order, with the peak of what it made.

This folder compiles one graph by one plan and says what came of it; it knows no budget.
``fxremat.backends.inductor`` decides by it whether the plan stands or is made again.

Inductor fuses, reorders and lays out anew, so a plan made for the ops of a graph is not quite what
runs. Five things keep it honest:

* ``layout_optimization`` is off: it copies all weights of convolutions to another layout at the
  start of the forward and holds the copies to its end, and on CPUs gradients of some networks
  (a diffusers UNet) come out wrong with it;
* no horizontal fusion across an extern kernel, such as a matrix product: it would lengthen the
  lifetime of the later result, which is often a recomputed value;
* after fusion the kernels are ordered by the plan: of several orders (Inductor's own, its
  memory-saving ones, and the plan's by first and by last op of a kernel) the one with the lowest
  peak is taken, workspaces of external kernels included;
* ``allow_buffer_reuse`` is off: it keeps a buffer that is done with for a later one of its size,
  through moments at which the external kernels' workspaces, unknown to Inductor, make the peak;
* the generated code is replayed to the byte, so that a plan states what it will really hold.

Every private name of Inductor that fxremat uses is in this folder.
"""

from passes.inductor.code import Compiled
from passes.inductor.compiling import compile_with_inductor
from passes.inductor.ops import decompositions, is_external

__all__ = ["Compiled", "compile_with_inductor", "decompositions", "is_external"]
