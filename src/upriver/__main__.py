"""`python -m upriver` is the command `upriver`."""

import sys

from upriver.cli import main

if __name__ == "__main__":
    sys.exit(main())
