"""Plans, frontiers and differences as data: printed, compared, written to files and read back.

Explaining and drawing them is ``inspect``. May import ``base`` and ``problem``, never torch.
"""
