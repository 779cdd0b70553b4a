"""Helpers for libraries that own the training step; a module needs the library of its name.

Where the step is yours, none is needed: compile a function that returns the loss and nothing else,
as ``examples/accelerate_loop.py`` and ``examples/lightning_module.py`` do.
"""
