"""`python -m calibjax FILE`."""

import sys

from calibjax.command_line.program import main

if __name__ == "__main__":
    sys.exit(main())
