"""``python -m fxremat``: see :mod:`fxremat.cli`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
