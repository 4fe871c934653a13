"""What the program is doing, on the standard error."""

import time
from typing import TextIO

_WIDTH = 24


class Stages:
    """A bar that moves on a terminal; elsewhere a line for each stage, with the seconds so far."""

    def __init__(self, file: TextIO, *, has_report: bool) -> None:
        """Says everything in the file; a report is one more stage."""
        self._file = file
        self._more, self._total = int(has_report), 1
        self._is_terminal = self._file.isatty()
        self._start = time.monotonic()

    def __call__(self, name: str, number: int, total: int) -> None:
        """Says that a stage of the evaluation begins, see `evaluate`."""
        self._total = total + self._more
        self._show(name, number)

    def report(self) -> None:
        """Says that the report, the last stage, begins."""
        self._show("figures and report", self._total - 1)

    def _show(self, name: str, number: int) -> None:
        total = self._total
        seconds = f"after {time.monotonic() - self._start:.0f} s"
        if self._is_terminal:
            done = _WIDTH * number // total
            bar = "█" * done + "░" * (_WIDTH - done)
            self._write(f"\r\x1b[K{bar} {number + 1}/{total} {name} ({seconds})")
        else:
            self._write(f"calibjax: {number + 1}/{total} {name} ({seconds})\n")

    def say(self, message: str) -> None:
        """A line of its own."""
        self.clear()
        self._write(f"calibjax: {message}\n")

    def clear(self) -> None:
        """Removes the bar."""
        if self._is_terminal:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()
