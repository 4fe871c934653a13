import pytest

from experiments.benchmark import steps


def test_worker_measures_a_call():
    found = steps.in_checkout(steps.ROOT, "ece classes 20")
    assert found["first"] > found["warm"] > 0


@pytest.mark.parametrize(
    "name", sorted({" ".join(x.split()[:2]) for x in steps.CALLS if "page" not in x})
)
def test_calls_can_be_prepared(name):
    assert callable(steps.prepare(*name.split(), 20))
