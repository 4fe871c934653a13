"""Lines that a program prints."""

from typing import TextIO

from tqdm import tqdm


def log(message: str, file: TextIO | None = None) -> None:
    """Prints a line without breaking a progress bar, to the standard output by default."""
    tqdm.write(message, file=file)
