"""Numbers of public calls are what they were: see `tests.frozen`."""

import zlib

import pytest

from tests.frozen import values
from tests.frozen.calls import calls

BEFORE = values.read()
NAMES = [name for name in values.names() if name in BEFORE]
ANEW = "if this is meant, run `python -m tests.frozen`, and name it in the commit"


def _params():
    """A ninth of the calls that compile quickly are tried in each precision, the others slowly."""
    for name in NAMES:
        is_quick = zlib.crc32(name.encode()) % 9 == 0 and not calls()[name.rsplit(" ", 1)[0]].slow
        yield pytest.param(name, marks=() if is_quick else pytest.mark.slow)


@pytest.mark.parametrize("name", list(_params()))
def test_numbers(name):
    changes = list(values.differences(name, BEFORE[name], values.numbers(name)))
    assert not changes, "\n".join([*changes, ANEW])


def test_nothing_is_gone():
    gone = BEFORE.keys() - set(NAMES)
    assert not gone, "\n".join([*sorted(gone), ANEW])
