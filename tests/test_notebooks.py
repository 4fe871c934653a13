"""The notebooks are committed without outputs, and their cells run."""

import json
import pathlib

import jax
import pytest

FOLDER = pathlib.Path(__file__).parents[1] / "docs" / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))


def code_of(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_no_outputs_are_committed(path):
    for cell in code_of(path):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_cells_run(path):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    names = {"__name__": "notebook"}
    with jax.enable_x64(False):
        for cell in code_of(path):
            exec(compile("".join(cell["source"]), str(path), "exec"), names)
    plt.close("all")


def test_there_is_one_for_each_reader():
    assert [path.stem for path in PATHS] == ["classifier", "forecaster", "researcher"]
