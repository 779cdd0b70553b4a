"""The command line: parsing, commands, targets, the bench.

May import everything below it; nothing imports it.
"""
