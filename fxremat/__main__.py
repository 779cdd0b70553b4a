"""``python -m fxremat``: see :mod:`fxremat.cli.parser`."""

import sys

from fxremat.cli.parser import main

if __name__ == "__main__":
    sys.exit(main())
