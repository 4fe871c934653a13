import jax
import numpy as np
import pytest

from paper_repro import cells


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


def test_tables(tmp_path):
    cells.write_table(tmp_path, "t", ["quantity", "ours"], [["p", 0.123456], ["n", None]], "Note.")
    assert (tmp_path / "t.csv").read_text() == "quantity,ours\np,0.123456\nn,\n"
    assert (tmp_path / "t.md").read_text().splitlines() == [
        "| quantity | ours |",
        "| --- | --- |",
        "| p | 0.123 |",
        "| n |  |",
        "",
        "Note.",
    ]


def test_wrong_options_are_named(capsys, tmp_path):
    with pytest.raises(SystemExit):
        cells.parse(["--preset", "huge"], "x", "y")
    assert "argument --preset: invalid choice: 'huge'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cells.parse(["--data", str(tmp_path / "missing")], "x", "y")
    assert "--data: expected a folder" in capsys.readouterr().err
    run, _ = cells.parse(["--data", str(tmp_path)], "x", "y")
    with pytest.raises(ValueError, match=r"--data: expected a folder with a/b\.csv"):
        run.published("a", "b.csv")


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
