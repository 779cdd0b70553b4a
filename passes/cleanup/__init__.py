"""Dead code, common subexpressions, no-ops and unread arguments go, bit for bit the same result.

May import the files of ``passes`` itself.
"""
