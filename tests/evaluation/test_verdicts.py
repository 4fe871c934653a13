"""What is said of models that are wrong in a known way: the verdict names it."""

import jax
import numpy as np
import pytest
import scipy.stats

import calibjax
from calibjax import distributions

N = 120
KEY = jax.random.key(0)
LEVELS = np.array([0.1, 0.5, 0.9])
LOC, NOISE = np.random.default_rng(0).normal(size=(2, 200))
GUMBEL = np.random.default_rng(1).gumbel(size=(200, 4))
LOGITS = 2 * np.random.default_rng(2).normal(size=(200, 4))
MEMBERS = np.random.default_rng(3).normal(size=(200, 8))
SECOND = np.arange(200) % 3 == 1
EXACT = scipy.stats.norm.ppf(np.random.default_rng(4).permutation((np.arange(N) + 0.5) / N))


def _found(samples, **more):
    found = calibjax.evaluate(KEY, *samples, **more)
    assert not any(x in " ".join(found.sentences) for x in ("nan", "-0 %", "-0.0 %", " 0 perc"))
    return found


ONE_SIDED = {  # levels, and the shares of the targets below their quantiles
    "the 95 % quantiles are too low. 74.2 % of the": ([0.9, 0.95, 0.99], [0.7, 0.74, 0.79]),
    "the 95 % quantiles are too low. 70 % of the targets are at most these.": ([0.95], [0.7]),
    "the 99 % quantiles are too low. 90 % of the": ([0.9, 0.99], [0.8, 0.9]),
    "the 5 % quantiles are too high. 30 % of the targets are at most these.": ([0.05], [0.3]),
    "": ([0.9, 0.99], [0.9, 0.99]),
}


@pytest.mark.parametrize("verdict", ONE_SIDED)
def test_one_sided_quantiles(verdict):
    levels, shares = map(np.array, ONE_SIDED[verdict])
    values = np.tile(scipy.stats.norm.ppf(shares), (N, 1))
    values[EXACT.argmin(), -1] = np.inf
    found = _found((distributions.Quantiles(levels, values), EXACT))
    start = f"Miscalibrated: {verdict}" if verdict else "No miscalibration was found in 120 pred"
    assert found.sentences[0].startswith(start)
    names = {x.name for x in found.entries if x.name.endswith("% quantiles")}
    assert names == {f"coverage of the {100 * level:g} % quantiles" for level in levels}
    assert "central" not in str(found)
    assert "1 of 120 predictions have intervals of infinite width." in found.sections[0].remark
    assert not verdict or "QuantileShift()" in found.advice[0].call


@pytest.mark.parametrize(
    ("scale", "shift", "verdict"),
    [
        (0.5, 0, "the predicted distributions are too narrow. The central 80 % intervals contain"),
        (2, 0, "the predicted distributions are too wide. The central 80 % intervals contain 9"),
        (1, 0.7, "the 50 % quantiles are too low. "),
        (1, -0.7, "the 50 % quantiles are too high. "),
    ],
)
def test_quantiles(scale, shift, verdict):
    values = LOC[:N, None] + scale * scipy.stats.norm.ppf(LEVELS)
    targets = LOC[:N] + NOISE[:N] + shift
    found = _found((distributions.Quantiles(LEVELS, values), targets))
    assert found.sentences[0].startswith(f"Miscalibrated: {verdict}")


def test_groups_of_two_columns_are_named():
    pandas = pytest.importorskip("pandas")
    values = LOC[:N, None] + scipy.stats.norm.ppf(LEVELS)
    targets = LOC[:N] + NOISE[:N] + 1.2 * SECOND[:N]
    table = pandas.DataFrame({"sex": ["f", "m"] * (N // 2), "ward": np.arange(N) % 3 + 1})
    found = _found((distributions.Quantiles(LEVELS, values), targets), groups=table)
    told = " ".join(found.sentences)
    assert "the 50 % quantiles are too low in ward = 2" in told
    assert not any(name in told for name in ("ward = 1", "ward = 3", "sex = f", "sex = m"))
    assert "5 groups" in found.description


def _ensemble(loc, scale, shift):
    return distributions.Ensemble(loc[:, None] + scale * MEMBERS + shift)


@pytest.mark.slow
def test_ensembles():
    targets = LOC + NOISE
    for scale, shift, verdict in (
        (0, 0, "the predicted distributions are too narrow. The central"),
        (0.5, 0, "the predicted distributions are too narrow. The central"),
        (2, 0, "the predicted distributions are too wide. The central"),
        (1, -0.7, "the targets are higher than predicted. Their mean rank within the predictions"),
        (1, 0.7, "the targets are lower than predicted. Their mean rank within the predictions"),
    ):
        found = _found((_ensemble(LOC, scale, shift), targets))
        assert found.sentences[0].startswith(f"Miscalibrated: {verdict}"), found.sentences
        assert "class" not in " ".join(x.text for x in found.advice)


@pytest.mark.slow
def test_normals():
    for spread, shift, verdict in (
        (1.6, 0, "the predicted distributions are too narrow. The errors are 1.6"),
        (0.6, 0, "the predicted distributions are too wide. The errors are 0.6"),
        (1, 0.5, "the targets are higher than predicted, by 0."),
        (1, -0.5, "the targets are lower than predicted, by 0."),
    ):
        found = _found((distributions.Normal(LOC, np.ones(200)), LOC + spread * NOISE + shift))
        assert found.sentences[0].startswith(f"Miscalibrated: {verdict}"), found.sentences
    groups = np.arange(200) % 3
    samples = distributions.Normal(LOC, np.ones(200)), LOC + NOISE + SECOND - SECOND.mean()
    told = _found(samples, groups=groups).sentences
    assert told[0].startswith(
        "Miscalibrated: the targets are higher than predicted in group 1, by "
    )


@pytest.mark.slow
def test_wrong_given_the_features():
    """The marginal distribution is right for every prediction, but the features say more."""
    prior = distributions.Normal(np.zeros(200), np.full(200, np.sqrt(2.0)))
    told = _found((prior, LOC + NOISE), features=LOC).sentences
    assert told[0] == (
        "Miscalibrated: wrong given the features. Samples with similar features share the same "
        "error."
    )


@pytest.mark.slow
def test_classes():
    predictions = distributions.CategoricalLogits(LOGITS)
    for factor, verdict in (
        (1 / 2.5, "overconfident. Mean confidence 69.7 %, ac"),
        (3, "underconfident. Mean confidence 69.7 %, ac"),
    ):
        found = _found((predictions, np.argmax(LOGITS * factor + GUMBEL, 1)))
        assert found.sentences[0].startswith(f"Miscalibrated: {verdict}")
        assert found.sentences[1].startswith("Temperature ")
    for shift, kind in ((-2, "over"), (2, "under")):
        labels = np.argmax(LOGITS + GUMBEL + np.array([0, 0, shift, 0]), 1)
        told = _found((predictions, labels), class_names=[*"abcd"]).sentences
        assert f"class c is {kind}estimated" in f"{told[0].replace('C', 'c')} {told[1]}"
    labels = np.argmax(LOGITS * ~SECOND[:, None] + GUMBEL, 1)
    told = " ".join(_found((predictions, labels), groups=np.arange(200) % 3).sentences)
    assert "Overconfident in group 1: mean confidence" in told
    assert not any(f"verconfident in group {g}" in told for g in (0, 2))


@pytest.mark.slow
def test_two_classes():
    for temperature, verdict in ((3, "overconfident"), (1 / 3, "underconfident")):
        probs, chances = (1 / (1 + np.exp(-LOGITS[:, 0] / t)) for t in (1, temperature))
        labels = (scipy.stats.norm.cdf(NOISE) < chances).astype(int)
        told = _found((distributions.Bernoulli(probs), labels)).sentences
        assert told[0].startswith(f"Miscalibrated: {verdict}. Mean confidence "), told
