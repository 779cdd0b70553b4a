"""What an op costs on a device: FLOPs, bytes, seconds, workspace; and what a step holds besides.

A new cost or device goes here. May import ``passes``, ``base`` and ``problem``.
"""
