"""Passes over joint graphs: reading, cleaning, splitting, checking. They know nothing of costs.

May import torch, and nothing of fxremat.
"""
