"""Numbers of public calls are what they were: see `tests.frozen`."""

import zlib

import pytest

from tests.frozen import values
from tests.frozen.calls import calls

BEFORE = values.read()
NAMES = [name for name in values.names() if name in BEFORE["calls"]]
ANEW = "if this is meant, run `python -m tests.frozen`, and name it in the commit"


def _params():
    """A third of the calls that compile quickly are tried in each precision, the others slowly."""
    for name in NAMES:
        is_quick = zlib.crc32(name.encode()) % 3 == 0 and not calls()[name.rsplit(" ", 1)[0]].slow
        yield pytest.param(name, marks=() if is_quick else pytest.mark.slow)


@pytest.mark.parametrize("name", list(_params()))
def test_numbers(name):
    changes = list(values.differences(name, BEFORE["calls"][name], values.numbers(name)))
    assert not changes, "\n".join([*changes, ANEW])


def test_nothing_is_gone():
    gone = BEFORE["calls"].keys() - set(NAMES) | BEFORE["tables"].keys() - values.tables().keys()
    assert not gone, "\n".join([*sorted(gone), ANEW])


def test_tables():
    now = values.tables()
    changed = [name for name, x in BEFORE["tables"].items() if now.get(name, x) != x]
    assert not changed, "\n".join([*changed, ANEW])
