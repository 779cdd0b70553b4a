"""What may be saved or run again: the table of rules, and what users pin in model or options.

A new rule goes here. May import ``passes`` and ``base``.
"""
