import pytest

from experiments.harness import source
from paper_repro.w21 import synthetic_simulation as simulation
from paper_repro.w21 import synthetic_tables as tables
from tests.paper_repro import committed


def _cells(kind, model, num_samples, last):
    """Evaluated cells with n samples, up to the last procedure."""
    finished = []
    for place, procedure, parts in simulation.stream(kind, model):
        if place.num_samples == num_samples:
            result = simulation.evaluate([procedure], parts)[0]
            finished.append(tables.Cell(place, procedure.label, **result))
            if place.slug == last:
                return finished
    raise AssertionError(last)


@pytest.mark.parametrize(
    ("model", "last"), [("calibrated", "unbiased"), ("uncalibrated", "biased")]
)
def test_estimates_equal_the_published_ones(model, last):
    """Ten digits of mean errors and variances with n = 4; the true SKCE of one model is unknown."""
    rows = tables.error_rows(_cells("estimates", model, 4, last))
    assert len(rows) == (4 if model == "calibrated" else 1)
    for row in rows:
        assert abs(row.variance_difference) < 1e-9
        assert abs(row.mean_difference) < 1e-9 or model == "uncalibrated"


@pytest.mark.parametrize("model", simulation.MODELS)
def test_test_errors_equal_the_published_ones(model):
    """With n = 4, and with the authors' resamples."""
    published = tables.published_cells("tests")
    for cell in _cells("tests", model, 4, "bootstrap"):
        assert cell.test_error == float(published[cell.key]["testerror"])


def test_numbers_of_the_results_equal_the_published_ones():
    """The committed tables; the documentation says where they do not."""
    errors = committed("w21_synthetic", "errors")
    kinds = "mean error, relative difference", "variance, relative difference"
    assert len(errors) == 80
    assert max(abs(float(row[kind])) for row in errors for kind in kinds) < 1e-9
    kinds = "test error, published", "test error, ours"
    rows = [[row[kind] for kind in kinds] for row in committed("w21_synthetic", "tests")]
    published = [row for row in rows if row[0]]
    equal = [row for row in published if row[1] and float(row[0]) == float(row[1])]
    text = (source.ROOT / "docs/reproductions/w21.md").read_text()
    assert f"{len(equal)} of {len(published)} cells **equal**" in text
