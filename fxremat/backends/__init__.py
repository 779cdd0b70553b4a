"""The ``torch.compile`` backend: both inner compilers, plans kept with code, pending backwards.

May import everything but ``integrations`` and ``cli``.
"""
