"""What a joint graph says: roles and phases of its nodes, storages, effects of ops.

May import the files of ``passes`` itself.
"""
