"""Adjusted p-values and ranges of calibrated models, against loops and by simulation."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import calibjax
from calibjax import distributions, hypothesis_tests
from calibjax.evaluation.assembly import adjusted
from calibjax.evaluation.data import chance
from calibjax.evaluation.record import Entry, Part, Section
from calibjax.evaluation.sections import LEVELS
from calibjax.hypothesis_tests.components import adjusted_pvalues, simulated_pvalue
from calibjax.hypothesis_tests.result import CalibrationTestResult
from tests.evaluation import samples

KEY = jax.random.key(0)
N = 120
TIED = [samples.quantiles_of_counts, samples.rain, samples.rounded]
KINDS = [samples.binary, samples.classes, samples.normals, samples.ensembles]
KINDS += [samples.quantiles, samples.one_sided, *TIED]


def _adjusted(sets, pvalues):
    """Adjusted p-values by name, for sets of tests that share their redraws each."""
    tests = {(str(i), name): x for i, part in enumerate(sets) for name, x in part.items()}
    names = [name for _, name in tests]
    sections = [Section("", (Entry(x, 0.0, pvalue=pvalues[x]),), test=x) for x in names]
    part = adjusted(Part(tuple(sections), tests=tests))
    return {x.name: x.pvalue for section in part.sections for x in section.entries}


def _result(pool):
    """Of a pool of one statistic, [B + 1], or of several with adjusted p-values, [B + 1, K]."""
    statistic, draws = pool[0], pool[1:]
    several = adjusted_pvalues(statistic, draws) if pool.ndim > 1 else None
    pvalue = simulated_pvalue(statistic, draws)
    return CalibrationTestResult(statistic, pvalue, None, draws, several)


def _smallest(test):
    return float(np.min(test.pvalue if test.adjusted_pvalue is None else test.adjusted_pvalue))


def test_adjusted_pvalues_by_loops():
    """The smallest p-value of every data set of the pool, as if it were the observed one."""
    random = np.random.default_rng(0)
    common = random.normal(size=200)
    pools = {
        "all": common + random.normal(size=200),
        "means": np.abs(common[:, None] + random.normal(size=(200, 3))),
        "spread": np.round(4 * np.abs(random.normal(size=200))),  # with ties
    }
    tests = {name: _result(pool) for name, pool in pools.items()}
    smallest = []
    for b in range(200):
        order = [b, *(i for i in range(200) if i != b)]
        smallest.append(min(_smallest(_result(pool[order])) for pool in pools.values()))
    pvalues = {name: _smallest(test) for name, test in tests.items()}
    for name, found in _adjusted([tests], pvalues).items():
        p = pvalues[name]
        assert found == pytest.approx(np.mean(np.array(smallest) <= p + 1e-6))
        assert p <= found <= 3 * p + 1e-6


def test_missing_values_count_against_rejection():
    pool = np.arange(100.0)[::-1].copy()
    pool[5:15] = np.nan
    test = CalibrationTestResult(pool[0], None, None, pool[1:])
    assert _adjusted([{"all": test}], {"all": 0.11}) == {"all": pytest.approx(0.11)}


def test_ranges():
    """The 5th of 199 draws from both ends, and the 25th of 999: the observed one is another."""
    assert chance(np.random.default_rng(0).permutation(199)) == (4, 194)
    assert chance(np.arange(999)) == (24, 974)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_family_wise_error_and_ranges(kind):
    """Of 300 data sets: the standard error of 5 % is 1.3 %, of 150 with groups 1.8 %."""
    random, blamed, held = np.random.default_rng(0), [], collections.defaultdict(list)
    for seed in range(300):
        groups = np.arange(N) % 3 if seed % 2 else None
        found = calibjax.evaluate(jax.random.key(seed), *kind(random, N), groups=groups)
        blamed.append(not found.sentences[0].startswith("No miscalibration was found"))
        for section in found.sections:
            ranges = [(x.by_chance, x.value) for x in section.entries if x.by_chance is not None]
            if ranges and section.title != "Where it is wrong":  # after a rejection
                held[section.title].append(all(low <= x <= high for (low, high), x in ranges))
    assert np.mean(blamed) <= 0.07, np.mean(blamed)
    for title, each in held.items():
        assert np.mean(each) >= (0.9 if title == "Groups" else 0.92), (title, np.mean(each))


@pytest.mark.parametrize("kind", TIED)
def test_ties_are_no_sign_of_miscalibration(kind):
    """Days without rain, counts and rounded values tie with the quantiles that predict them."""
    found = calibjax.evaluate(jax.random.key(1), *kind(np.random.default_rng(1), N))
    assert found.sentences[0].startswith("No miscalibration was found in 120 predictions (smallest")
    assert "Ties with members or quantiles are broken at random" in found.sections[0].remark


@pytest.mark.slow
def test_tests_of_numbers_see_the_same_redraws():
    random = np.random.default_rng(0)
    loc, scale = random.normal(size=40), random.uniform(0.5, 2, 40)
    predictions = distributions.Normal(jnp.asarray(loc), jnp.asarray(scale))
    found = calibjax.evaluate(KEY, predictions, loc + scale, groups=np.arange(40) % 2).tests
    components = found["calibration"].components.of_kernel("directions, shift")
    key, identity = jax.random.fold_in(KEY, 1), lambda p, y: 1.0 * y
    redraws = hypothesis_tests.exact_test(key, identity, predictions, loc + scale).null_samples
    for place, y in [*enumerate(np.asarray(redraws))][:30:17]:
        score = (y - loc) / scale
        below = np.array([np.mean(score <= scipy.stats.norm.ppf(x)) for x in LEVELS]) - LEVELS
        errors = [np.mean(y - loc), np.mean(score**2) - 1, *below, *(below[6:3:-1] - below[:3])]
        drawn = found["mean errors"].null_samples[place, 0]
        np.testing.assert_allclose(np.sort(drawn), np.sort(np.abs(errors)), rtol=1e-4, atol=1e-6)
        own = found["mean errors"].null_samples[place, 2, 0]
        np.testing.assert_allclose(own, abs(np.mean((y - loc)[1::2])), rtol=1e-4)
        expected = np.mean(np.outer(score, score)[~np.eye(40, dtype=bool)])
        own = components.unbiased.null_samples[place]
        np.testing.assert_allclose(own, expected, rtol=1e-3, atol=1e-4)
