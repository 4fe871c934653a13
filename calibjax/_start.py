"""Handler of Ctrl-C, installed before JAX, whose import takes seconds.

It ends the process, because JAX ignores exceptions in some of its callbacks.
"""

import os
import signal
import sys
from typing import Any


def end_if_interrupted() -> None:
    """End the process at Ctrl-C, unless it is ignored (`nohup`) or handled elsewhere."""

    def end(*_: Any) -> None:
        os.write(2, b"calibjax: interrupted\n")
        os._exit(130)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)


# `python -m calibjax`, while its package is imported, or the installed script.
_PROGRAM = os.path.basename(sys.argv[0] if sys.argv else "").removesuffix(".exe")
if _PROGRAM == "calibjax" or (_PROGRAM == "-m" and "calibjax" in sys.orig_argv):
    end_if_interrupted()
