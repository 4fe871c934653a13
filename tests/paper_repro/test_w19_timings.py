import jax
import numpy as np
import pytest

from paper_repro import cells, w19_timings


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def test_procedures_are_the_estimators():
    predictions, labels = w19_timings.draw_sample(3, 12)
    values = {
        name: float(procedure(predictions, labels, 0.5))
        for name, procedure in w19_timings.PROCEDURES.items()
    }
    assert len(values) == 8
    assert 0 <= values["ECE, uniform bins"] <= 1
    assert values["SKCE_b"] > values["SKCE_uq"]
    assert len({round(value, 12) for name, value in values.items() if "SKCE" in name}) == 6


def test_the_experiment_writes_its_results(tmp_path, monkeypatch):
    chosen = ("ECE, uniform bins", "ECE, data-dependent bins", "SKCE_b", "SKCE_uq")
    chosen += tuple(f"{name} {w19_timings.HEURISTIC}" for name in chosen[2:])
    procedures = {name: w19_timings.PROCEDURES[name] for name in chosen}
    monkeypatch.setattr(w19_timings, "PROCEDURES", procedures)
    monkeypatch.setitem(w19_timings.SETTINGS, "quick", w19_timings.Settings((2,), (10, 20), 0.0))
    w19_timings.run(cells.Run("quick", None, tmp_path))
    folder = tmp_path / "quick" / "w19_timings"
    assert {path.name for path in folder.iterdir() if path.is_file()} == {
        *("times.csv", "times.md", "claims.csv", "claims.md", "figure_37.png")
    }
    rows = [line.split(",") for line in (folder / "times.csv").read_text().splitlines()]
    assert len(rows) == 3
    assert np.all(np.array([row[2:] for row in rows[1:]], float) > 0)
    claims = (folder / "claims.md").read_text()
    assert "SKCE_b with median heuristic, n = 20, m = 2" in claims
    assert "times as long" in claims
