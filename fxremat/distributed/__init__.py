"""One plan on several ranks: who decides, through which store, and whether the graphs agree.

May import ``planning`` and all below it.
"""
