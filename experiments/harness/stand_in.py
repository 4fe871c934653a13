"""Marks results that are of stand-in data, for lack of the data of a paper."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from experiments.harness.data_files import DOWNLOAD
from experiments.harness.messages import log

# Columns that have these words in their names are left out.
PUBLISHED = ("published", "ImageNet", "verdict")
_HEADER: ContextVar[str] = ContextVar("header", default="")


@contextlib.contextmanager
def marked(experiment: str, what: str, needed: str) -> Iterator[None]:
    """Tables and figures that are written within say so, and have no published columns or verdicts.

    Args:
        experiment: name of the experiment.
        what: the data in place of that of the paper.
        needed: the data that the paper has.
    """
    token = _HEADER.set(f"stand-in data: {what}")
    log(f"{experiment} runs on {header()}; that of the paper is {needed}, see `{DOWNLOAD}`.")
    try:
        yield
    finally:
        _HEADER.reset(token)


def header() -> str:
    """What the header of a table or figure says; empty where the data is that of the paper."""
    return _HEADER.get()


def is_published(column: str) -> bool:
    """Whether a column is left out of tables of stand-in data."""
    return any(word in column for word in PUBLISHED)
