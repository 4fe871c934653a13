import io
import json

import jax
import numpy as np
import pytest

from experiments.harness import cells


def test_cells_are_computed_once_and_again_when_parameters_differ(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"value": len(calls)}

    assert cells.cell(tmp_path, "a/b", {"n": 4}, compute) == {"value": 1}
    assert cells.cell(tmp_path, "a/b", {"n": 4}, compute) == {"value": 1}
    assert cells.cell(tmp_path, "a/b", {"n": 5}, compute) == {"value": 2}
    assert cells.cell(tmp_path, "a/c", {"n": 5}, compute) == {"value": 3}


def test_an_interrupted_cell_leaves_nothing(tmp_path):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cells.cell(tmp_path, "a", {}, interrupted)
    with pytest.raises(ValueError, match="not JSON compliant"):
        cells.cell(tmp_path, "a", {}, lambda: {"value": float("nan")})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_keys_belong_to_names():
    draw = lambda name: jax.random.normal(cells.key_of(name), (3,))  # noqa: E731
    np.testing.assert_array_equal(draw("a"), draw("a"))
    assert not np.array_equal(draw("a"), draw("b"))


def test_array_cells(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"x": np.arange(3.0)}

    for parameters, num in (({"n": 1}, 1), ({"n": 1}, 1), ({"n": 2}, 2)):
        found = cells.arrays(tmp_path, "a/b", parameters, compute)
        assert list(found) == ["x"]
        np.testing.assert_array_equal(found["x"], [0, 1, 2])
        assert len(calls) == num


def saved(**arrays):
    """Bytes of a file of numpy.savez."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def npy(array):
    """Bytes of a file of numpy.save."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


WHOLE = json.dumps({"parameters": {"n": 1}, "result": {"x": 1}})
DAMAGED = {
    "empty": "",
    "truncated": WHOLE[:-3],
    "binary": b"\xff\xfe\x00",
    "a list": "[1, 2]",
    "a number": "3",
    "foreign": '{"a": 1}',
    "without parameters": '{"result": {"x": 1}}',
    "without result": '{"parameters": {"n": 1}}',
    "of another kind": '{"parameters": {"n": 1}, "result": [1]}',
    "arrays": saved(parameters='{"n": 1}', x=np.arange(3)),
}
DAMAGED_ARRAYS = {
    "empty": b"",
    "truncated": saved(parameters='{"n": 1}', x=np.arange(100))[:-300],
    "text": WHOLE.encode(),
    "foreign": saved(x=np.arange(3)),
    "wrong parameters": saved(parameters="{", x=np.arange(3)),
    "objects": saved(parameters='{"n": 1}', x=np.array([{}], object)),
    "one array": npy(np.arange(3)),
    "changed": saved(parameters='{"n": 1}', x=np.zeros(100)).replace(b"\x00" * 90, b"\x01" * 90),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damaged_cells_are_computed_again(tmp_path, capsys, content):
    path = tmp_path / "cells" / "a.json"
    path.parent.mkdir()
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    for _ in range(2):
        assert cells.cell(tmp_path, "a", {"n": 1}, lambda: {"x": 2}) == {"x": 2}
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"{path} is damaged (")
    assert lines[0].endswith(") and computed again.")


@pytest.mark.parametrize("content", DAMAGED_ARRAYS.values(), ids=DAMAGED_ARRAYS)
def test_damaged_arrays_are_computed_again(tmp_path, capsys, content):
    path = tmp_path / "cells" / "a.npz"
    path.parent.mkdir()
    path.write_bytes(content)
    for _ in range(2):
        found = cells.arrays(tmp_path, "a", {"n": 1}, lambda: {"x": np.ones(2)})
        np.testing.assert_array_equal(found["x"], [1, 1])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"{path} is damaged (")
