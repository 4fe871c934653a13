"""The command line, `python -m calibjax FILE`: reads predictions and targets, and evaluates them.

It is built on `calibjax.evaluate`; docs/command_line.md says which files it reads.
"""

from calibjax.command_line.program import load, main

__all__ = ["load", "main"]
