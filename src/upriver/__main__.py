"""`python -m upriver` is the command `upriver`."""

import sys

try:
    from upriver.cli import main
except KeyboardInterrupt:
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(main())
