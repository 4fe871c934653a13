"""`python -m calibjax FILE`."""

import sys

if __name__ == "__main__":
    try:
        from calibjax.command_line.program import main

        status = main()
    except KeyboardInterrupt:  # before `main` handles it
        print("calibjax: interrupted", file=sys.stderr)
        status = 130
    sys.exit(status)
