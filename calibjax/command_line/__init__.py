"""The command line, `python -m calibjax FILE`: reads predictions and targets, evaluates them.

It is built on `calibjax.evaluate`, and for several files on `calibjax.compare`.
docs/command_line.md says which files it reads.
"""

from calibjax.command_line.program import load

__all__ = ["load"]
