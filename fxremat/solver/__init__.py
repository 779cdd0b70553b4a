"""Solvers: what to save and what to recompute, and when."""
