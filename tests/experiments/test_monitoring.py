"""Streams that drift, and the lines of the table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import emos, epit, monitoring


@pytest.mark.parametrize("family", monitoring.BETS)
def test_streams_are_calibrated_until_the_change(family):
    key = jax.random.key(3)
    predictions, targets = monitoring.stream(family, "abrupt", key)
    residuals = np.asarray(monitoring.residuals(predictions, targets))
    before, after = residuals[: monitoring.CHANGE], residuals[monitoring.CHANGE :]
    assert abs(before.mean()) < 3 / np.sqrt(len(before))
    assert abs(np.mean(before**2) - 1) < 0.25
    assert abs(after.mean()) > 4 / np.sqrt(len(after))


def test_rows():
    first, second = monitoring.rows_of("normals", "abrupt", {"a": [0, 900, 1050, 1100], "b": [5]})
    assert (first["alarm before 1000"], first["median delay"]) == (0.25, 100)
    assert first["alarm after, of the others"] == pytest.approx(2 / 3)
    assert np.isnan(second["median delay"])


@pytest.mark.slow
def test_emos_finds_its_parameters_again():
    """Of 4000 rows of its own model; standard errors are below 0.05."""
    generator = np.random.default_rng(0)
    spread = generator.uniform(0.5, 3, (4000, 1))
    members = jnp.asarray(
        generator.normal(10, 5, (4000, 1)) + spread * generator.normal(size=(4000, 11))
    )
    true = jnp.array([1.0, 0.9, 1.0, 0.7])
    law = emos.normal(true, members)
    observed = law.loc + law.scale * generator.normal(size=4000)
    found = emos.fitted(jnp.array([0.0, 1, 1, 1]), members, observed)
    np.testing.assert_allclose(found, true, atol=0.15)
    np.testing.assert_allclose(law.scale[0] ** 2, 1 + 0.49 * np.var(members[0], ddof=1), rtol=1e-6)


@pytest.mark.slow
def test_power_in_the_design_of_epit():
    """A standard deviation that is far too large is seen by all, a calibrated forecast by few."""
    wrong = epit.simulate(0.0, 0.5, 20)
    assert all(counts[-1] == 20 for counts in wrong.values())
    right = epit.simulate(0.0, 0.0, 20)
    assert all(counts[-1] <= 4 for counts in right.values())
