"""Files that are damaged at random are read, or refused in one line; nothing else happens."""

import random

from calibjax.command_line import load
from calibjax.command_line.reading import InputError
from tests.command_line.examples import GOOD, NORMAL

FILES = [GOOD.encode(), NORMAL.encode(), b"y,prob\nFalse,0.25\nTrue,0.5\nTrue,0.75\n"]
PIECES = b'0123456789.,;-eE"\n\r\t\0 naif'


def damaged(content, rng):
    """Some bytes replaced, left out, put in, or repeated."""
    found = bytearray(content)
    for _ in range(rng.randint(1, 5)):
        if found:
            i = rng.randrange(len(found))
            kind = rng.randrange(4)
            if kind == 0:
                found[i] = rng.randrange(256)
            elif kind == 1:
                del found[i : i + rng.randint(1, 20)]
            else:
                put = rng.choices(PIECES, k=rng.randint(1, 9)) if kind == 2 else found[i : i + 30]
                found[i:i] = bytes(put)
    return bytes(found)


def test_damaged_files(tmp_path):
    rng = random.Random(".csv")
    path = tmp_path / "data.csv"
    refused = 0
    for _ in range(150):
        path.write_bytes(damaged(rng.choice(FILES), rng))
        try:
            load(path)
        except InputError as error:
            refused += 1
            line = " ".join(str(error).split())
            assert str(path) in line
            assert len(line) < 600
            assert line.isprintable()
    assert refused > 100
