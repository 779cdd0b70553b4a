"""What users call without running anything: ``plan``, ``frontier``, ``advise``.

May import ``planning`` and all below it.
"""
