"""Where predictions are wrong: places, their p-values, and the sentences on them."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from calibjax import distributions
from calibjax.evaluation.data import checked_data
from calibjax.evaluation.regions import (
    View,
    _search,
    by_levels,
    cells_of,
    find_places,
    of_classes,
    spans,
    unions,
    where_wrong,
)

N = 60
CUTS = np.array([-1.0, 0.0, 1.0])


def _views(random):
    """Normals around 0 or 2, and targets in four cells."""
    loc = 2.0 * (np.arange(N) % 2)
    levels = scipy.stats.norm.cdf(CUTS - loc[:, None])
    probs = np.diff(np.concatenate([np.zeros((N, 1)), levels, np.ones((N, 1))], 1))
    number = len(spans(4))
    view = View(
        cells=cells_of(loc + random.normal(size=N), CUTS),
        probs=probs,
        redrawn=by_levels(levels),
        bins=np.arange(N) % 2,
        regions=np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
        events=unions(4),
        region_words=("low", "high", ""),
        event_words=tuple(map(str, range(number))),
        region_calls=("", "", ""),
        event_calls=(("", ""),) * number,
        weights=np.ones(N),
    )
    return view, lambda generator: generator.uniform(size=N)


def test_totals_and_moments_by_loops():
    view, draw = _views(np.random.default_rng(0))
    w = np.random.default_rng(2).integers(0, 4, N).astype(float)
    view = dataclasses.replace(view, weights=w)
    redrawn = view.redrawn(draw(np.random.default_rng(1)))
    means, variances = view.moments()
    for r, region in enumerate(view.regions):
        for j, event in enumerate(view.events):
            inside = [i for i in range(N) if region[view.bins[i]]]
            chances = [sum(p for p, e in zip(view.probs[i], event) if e) for i in inside]
            assert view.totals(redrawn)[r, j] == sum(w[i] * event[redrawn[i]] for i in inside)
            assert means[r, j] == pytest.approx(w[inside] @ chances)
            spread = [p * (1 - p) for p in chances]
            assert variances[r, j] == pytest.approx(w[inside] ** 2 @ spread)


def test_pvalue_by_hand():
    """That of the largest standardised difference among the same redraws."""
    view, draw = _views(np.random.default_rng(3))
    [place], number = find_places([view], draw, 7, 99)
    means, variances = view.moments()
    seen = variances >= 5
    generator = np.random.default_rng(7)

    def sizes(cells):
        return np.where(seen, abs(view.totals(cells) - means) / np.sqrt(variances), 0)

    redrawn = [sizes(view.redrawn(draw(generator))).max() for _ in range(99)]
    assert number == seen.sum()
    assert sizes(view.cells)[place.region, place.event] == sizes(view.cells).max()
    assert place.exact_pvalue == (1 + np.sum(redrawn >= sizes(view.cells).max())) / 100
    assert place.pvalue >= place.exact_pvalue
    inside = view.regions[place.region][view.bins] > 0
    assert place.observed == view.events[place.event][view.cells[inside]].mean()
    # A difference is beyond the range if and only if the exact p-value is at most 5 %.
    assert (abs(place.observed - place.predicted) > place.chance) == (place.exact_pvalue <= 0.05)
    at = place.region, place.event
    assert place.chance * place.number == pytest.approx(sorted(redrawn)[-5] * variances[at] ** 0.5)


def _one_event(cells, probs, weights):
    """Whether labels are 1, among all samples."""
    n = len(probs)
    view = View(
        cells=np.asarray(cells, int),
        probs=np.stack([1 - probs, probs], 1),
        redrawn=lambda u: (u < probs).astype(int),
        bins=np.zeros(n, int),
        regions=np.ones((1, 1)),
        events=np.array([[0.0, 1.0]]),
        region_words=("",),
        event_words=("event",),
        region_calls=("",),
        event_calls=(("", ""),),
        weights=weights,
    )
    return find_places([view], lambda random: random.uniform(size=n), 0, 99)[0]


def test_observed_scatter_counts_where_it_is_larger():
    """Half of the probabilities are 0.1 too low and half too high: the scatter is the larger."""
    n = 400
    probs = np.where(np.arange(n) < n // 2, 0.98, 0.02)
    labels = np.arange(n) % 20 < 11
    [place] = _one_event(labels, probs, np.ones(n))
    residuals = labels - probs
    observed = residuals.sum() / (residuals.std(ddof=1) * np.sqrt(n))
    random = np.random.default_rng(0)
    sd = np.sqrt(np.sum(probs * (1 - probs)))
    redrawn = [np.sum(random.uniform(size=n) < probs) - n / 2 for _ in range(99)]
    assert place.exact_pvalue == 0.01
    assert place.pvalue == (1 + np.sum(np.abs(redrawn) / sd >= observed)) / 100 > 0.01


def test_samples_without_weight_are_not_counted():
    weights = np.where(np.arange(400) % 4, 4 / 3, 0)
    [place] = _one_event(np.ones(400), np.full(400, 0.5), weights)
    assert place.number == 300


def test_level():
    """Of 300 calibrated data sets: the standard error of 5 % is 1.3 %."""
    random = np.random.default_rng(0)
    found = [
        find_places([view], draw, i, 39) for i in range(300) for view, draw in [_views(random)]
    ]
    exact, both = (
        np.array([getattr(x[0][0], p) for x in found]) for p in ("exact_pvalue", "pvalue")
    )
    assert np.mean(exact <= 0.05) < 0.09
    assert np.mean(both <= 0.05) < 0.09
    assert np.mean(exact <= 0.5) > 0.4


def test_redrawn_labels_have_the_predicted_frequencies():
    random = np.random.default_rng(0)
    probs = random.dirichlet(np.ones(3), 20).astype(np.float32)
    predictions = distributions.Categorical(probs)
    data = checked_data(jax.random.key(0), predictions, random.integers(0, 3, 20), None, None, None)
    search = of_classes(data)
    labels = np.stack([search.draw(random) for _ in range(4000)])
    frequencies = np.stack([(labels == c).mean(0) for c in range(3)], 1)
    assert abs(frequencies - probs).max() < 5 * 0.5 / np.sqrt(4000)
    # All views see the same labels.
    own = [view.redrawn(labels[0]) for view in search.views]
    for c in range(3):
        np.testing.assert_array_equal(own[c], labels[0] == c)
    np.testing.assert_array_equal(own[3], labels[0] == probs.argmax(1))
    np.testing.assert_array_equal(own[4], labels[0])


_LOC, _WHOLE = np.linspace(-1, 1, 40), np.arange(40) % 5
_OF_EACH_TASK = {
    "two classes": lambda d: (distributions.Bernoulli(d(np.linspace(0.1, 0.9, 40))), _WHOLE % 2),
    "classes": lambda d: (
        distributions.Categorical(d(np.tile([0.2, 0.3, 0.5], (40, 1)))),
        _WHOLE % 3,
    ),
    "normals": lambda d: (distributions.Normal(d(_LOC), d(1.0)), d(_LOC[::-1])),
    "counts": lambda d: (distributions.Poisson(d(2 + _LOC)), _WHOLE),
    "quantiles": lambda d: (
        distributions.Quantiles(d([0.2, 0.5, 0.8]), d(_LOC[:, None] + [-1, 0, 1])),
        d(_LOC[::-1]),
    ),
    "ensembles": lambda d: (distributions.Ensemble(d(_LOC[:, None] + _LOC[:9])), d(_LOC[::-1])),
    "vectors": lambda d: (
        distributions.DiagNormal(d(np.c_[_LOC, _LOC]), d(np.ones((40, 2)))),
        d(np.c_[_LOC, _LOC[::-1]]),
    ),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("task", _OF_EACH_TASK)
def test_every_task_in_both_precisions(task, dtype):
    def converted(values):
        return np.asarray(values, dtype)

    with jax.enable_x64(dtype == np.float64):
        data = checked_data(jax.random.key(0), *_OF_EACH_TASK[task](converted), None, None, None)
        part = where_wrong(data, None)
    assert all(0 < place.pvalue <= 1 for place in part.findings["places"])
    assert all(np.isfinite(entry.value) for entry in part.sections[0].entries)


@pytest.mark.parametrize("task", _OF_EACH_TASK)
def test_places_are_those_of_their_calls(task):
    """What a table prints beside a place counts the same samples; redraws use the same cells."""
    predictions, targets = _OF_EACH_TASK[task](lambda values: np.asarray(values, float))
    random = np.random.default_rng(0)
    if task == "classes":
        predictions = distributions.Categorical(random.dirichlet(np.ones(3), 40))
    if task == "ensembles":  # of different widths
        predictions = distributions.Ensemble(random.normal(size=(40, 9)))
    if task == "quantiles":
        values = _LOC[:, None] + (1.5 + _LOC[::-1, None]) * np.array([-1, 0, 1])
        predictions = distributions.Quantiles(np.array([0.2, 0.5, 0.8]), values)
    data = checked_data(jax.random.key(0), predictions, targets, None, None, None)
    search = _search(data, None)
    result = types.SimpleNamespace(arrays=data.arrays)
    samples = jax.tree.map(jnp.asarray, data.known((data.predictions, data.targets)))
    known = {"jax": jax, "jnp": jnp, "predictions": samples[0], "targets": samples[1]}
    known |= {"result": result, "distributions": distributions, "key": jax.random.key(0)}
    for view in search.views:
        totals, (means, _) = view.totals(view.cells), view.moments()
        for r, call in enumerate(view.region_calls):
            inside = np.asarray(eval(call, known) if call else np.ones(40, bool))
            for j in random.choice(len(view.event_calls), min(len(view.event_calls), 4), False):
                happened, chances = (np.asarray(eval(x, known)) for x in view.event_calls[j])
                assert totals[r, j] == np.sum(happened[inside])
                # Targets are compared with pools that contain them, and members do not.
                predicted = totals[r, j] - view.factor * (totals[r, j] - means[r, j])
                np.testing.assert_allclose(predicted, chances[inside].sum(), rtol=1e-6, atol=1e-9)
    drawn = {"two classes": targets, "classes": targets, "ensembles": np.zeros(40, int)}
    drawn["quantiles"] = drawn["normals"] = data.arrays.get("pit")
    if task in drawn:  # the targets themselves
        for view in search.views:
            np.testing.assert_array_equal(view.redrawn(np.asarray(drawn[task])), view.cells)


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.1, 0.2])
def test_range_leaves_out_what_is_significant(shift):
    """A difference is outside of its range exactly if its adjusted p-value is at most 5 %."""
    random = np.random.default_rng(5)
    probs = random.uniform(0.1, 0.8, 80)
    labels = (random.uniform(size=80) < probs + shift).astype(int)
    predictions = distributions.Bernoulli(probs)
    data = checked_data(jax.random.key(0), predictions, labels, None, None, None)
    part = where_wrong(data, None)
    for observed, predicted, difference in zip(*[iter(part.sections[0].entries)] * 3, strict=True):
        assert difference.value == pytest.approx(observed.value - predicted.value)
        low, high = difference.by_chance
        assert low == -high
        assert (abs(difference.value) > high) == (difference.pvalue <= 0.05)
