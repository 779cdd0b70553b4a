"""What every package may use: errors, the budget as users write it, units, files, the cache folder.

May import ``passes``; a new kind of error goes into ``passes.errors`` or ``errors``.
"""
