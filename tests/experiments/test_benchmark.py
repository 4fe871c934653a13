import pytest

from experiments.benchmark import peers, steps

NAMES = [name for name, entry in peers.ENTRIES.items() if entry.package == "sklearn" and entry.rtol]


@pytest.mark.parametrize("name", NAMES)
def test_values_of_scikit_learn(name, monkeypatch):
    """Both sides of an entry, whose values agree."""
    monkeypatch.setattr(peers, "CALLS", 1)
    ours, theirs = (peers.measure(name, 200, side) for side in ("ours", "sklearn"))
    assert ours["value"] == pytest.approx(theirs["value"], rel=1e-9)
    assert min(ours["first"], ours["seconds"], theirs["seconds"]) > 0


def test_worker_measures_a_call():
    found = steps.in_checkout(steps.ROOT, "ece classes 20")
    assert found["first"] > found["warm"] > 0


@pytest.mark.parametrize(
    "name", sorted({" ".join(x.split()[:2]) for x in steps.CALLS if "page" not in x})
)
def test_calls_can_be_prepared(name):
    assert callable(steps.prepare(*name.split(), 20))
