import pytest

from paper_repro.w19 import timings as w19_timings
from tests.paper_repro import committed


def test_growth():
    """Exponents of powers of n, and the ratios of the times."""
    sizes = (10, 100, 1000)
    published = {("SKCE_b", 2, n): 1e-9 * n**2 for n in sizes}
    times = {("SKCE_b", 2, n): 1e-8 * n for n in sizes}
    (row,) = w19_timings.growth_rows(w19_timings.compared_rows(times, published))
    assert row[2:] == pytest.approx((2, 1, 0.01, 1))


def test_published_times():
    """All sizes of ours are the authors', and the committed table has their times."""
    published = w19_timings.read_times()
    assert len(published) == 200
    settings = w19_timings.SETTINGS["paper"]
    for name in (*w19_timings.ECES, *w19_timings.SKCES):
        for m in settings.classes:
            assert [key[2] for key in published if key[:2] == (name, m)] == list(settings.sizes)
    for row in committed(w19_timings.NAME, "published"):
        place = row["estimator"], int(row["m"]), int(row["n"])
        assert published.pop(place) == float(row["published"])
    assert not published
