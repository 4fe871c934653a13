import hashlib
import io
import json

import jax
import numpy as np
import pytest

from experiments.harness import cells
from experiments.harness.cells import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path, "a1")


def test_an_interrupted_cell_leaves_nothing(store, tmp_path):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cells.cell(store, "a", {}, interrupted)
    with pytest.raises(ValueError, match="not JSON compliant"):
        cells.cell(store, "a", {}, lambda: {"value": float("nan")})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_keys_belong_to_names_and_places():
    """And not to the cells."""
    key_data = jax.random.key_data
    whole = key_data(jax.random.split(cells.key_of("x/500/data"), 500))
    for span in ((500, 1000), (550, 600), (990, 1000)):
        found = key_data(cells.keys_of("x", "data", span))
        np.testing.assert_array_equal(found, whole[span[0] - 500 : span[1] - 500])
    assert not np.array_equal(key_data(cells.key_of("a")), key_data(cells.key_of("b")))


def test_cells_of_data_sets():
    assert cells.spans(1200, 64) == [(0, 500), (500, 1000), (1000, 1200)]
    assert cells.spans(120, 1024) == [(0, 50), (50, 100), (100, 120)]


SUFFIXES = {"cell": "json", "arrays": "npz"}


def result(kind, x):
    """What is stored, a number or an array of it."""
    return {"x": np.full(2, x) if kind == "arrays" else x}


def saved(**arrays):
    """Bytes of a file of numpy.savez."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


DIGEST = hashlib.sha256(b'{"x": 1}').hexdigest()
OLD = {"fingerprint": "a1", "parameters": {"n": 1}, "result": {"x": 1}}  # of older versions
CELL = OLD | {"name": "a", "digest": DIGEST}
WHOLE = json.dumps(CELL)
DAMAGED = {
    "empty": "",
    "truncated": WHOLE[:-3],
    "binary": b"\xff\xfe\x00",
    **{f"without {x}": json.dumps({k: v for k, v in CELL.items() if k != x}) for x in CELL},
    "of another number": WHOLE.replace('{"x": 1}', '{"x": 3}'),
}
ABOUT = {"fingerprint": "a1", "parameters": '{"n": 1}'}
DAMAGED_ARRAYS = {
    "empty": b"",
    "truncated": saved(**ABOUT, x=np.arange(100))[:-300],
    "foreign": saved(x=np.arange(3)),
    "without digest": saved(**ABOUT, name="a", x=np.arange(3)),
    "with other arrays": saved(**ABOUT, name="a", digest="0", y=np.arange(3)),
    "changed": saved(**ABOUT, x=np.zeros(100)).replace(b"\x00" * 90, b"\x01" * 90),
}


@pytest.mark.parametrize(
    ("kind", "content"),
    [*(("cell", x) for x in DAMAGED), *(("arrays", x) for x in DAMAGED_ARRAYS)],
)
def test_damaged_cells_are_computed_again(store, tmp_path, capsys, kind, content):
    content = (DAMAGED if kind == "cell" else DAMAGED_ARRAYS)[content]
    path = tmp_path / "cells" / f"a.{SUFFIXES[kind]}"
    path.parent.mkdir()
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    for _ in range(2):
        found = getattr(cells, kind)(store, "a", {"n": 1}, lambda: result(kind, 2))
        np.testing.assert_array_equal(found["x"], result(kind, 2)["x"])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{path} is damaged (")


def test_cells_of_other_code(tmp_path):
    """Are computed again, and kept where they are trusted; the others are counted, too."""
    one = {"n": 1}
    before, after = Store(tmp_path, "a1"), Store(tmp_path, "b2")
    trusting = Store(tmp_path, "b2", trust=True)
    cells.cell(before, "a", one, lambda: {"x": 1})
    assert cells.cell(before, "a", one, lambda: {"x": 2}) == {"x": 1}  # computed once
    cells.arrays(before, "b", one, lambda: {"x": np.zeros(1)})
    (tmp_path / "cells" / "c.json").write_text("{")
    (tmp_path / "cells" / "d.npz").write_bytes(b"")
    assert [store.stale() for store in (before, after, trusting)] == [(0, 2), (2, 2), (2, 2)]
    assert cells.cell(trusting, "a", one, lambda: {"x": 2}) == {"x": 1}
    assert cells.cell(trusting, "a", {"n": 2}, lambda: {"x": 3}) == {"x": 3}  # other parameters
    np.testing.assert_array_equal(cells.arrays(trusting, "b", one, lambda: 1 / 0)["x"], [0])
    assert cells.cell(before, "e", one, lambda: {"x": 1}) == {"x": 1}
    assert cells.cell(after, "e", one, lambda: {"x": 2}) == {"x": 2}
    found = cells.arrays(after, "b", one, lambda: {"x": np.ones(1)})
    np.testing.assert_array_equal(found["x"], [1])
    assert after.stale() == (0, 3)
