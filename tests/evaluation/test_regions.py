"""Where predictions are wrong: regions, their p-values, and what is said of them."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from calibjax import distributions
from calibjax.evaluation.data import checked_data
from calibjax.evaluation.regions import (
    Cuts,
    View,
    _by_levels,
    _counts,
    find_regions,
    search,
    where_wrong,
)
from tests.evaluation import samples

N = 60
EDGES = np.array([-1.0, 0.0, 1.0])
ONES = np.ones(N)
KEY = jax.random.key(0)


def _cuts(edges, ranges=()):
    return Cuts(np.asarray(edges), "x", lambda low, high: f"{low} to {high}", ranges)


def _found(views, draw, weights, seed, num_draws):
    """Largest errors of samples that count by these weights."""
    mean = lambda values, rows: f"mean{values}{rows}"  # noqa: E731
    key = jax.random.key(seed)
    data = types.SimpleNamespace(shares=weights, at=lambda _: key, mean_of=mean)
    return find_regions(data, views, draw, num_draws), np.asarray(jax.random.key_data(key)).ravel()


def _at(view, entry):
    """Region and event of an entry."""
    pairs = np.ndindex(len(view.regions.ranges), len(view.events.ranges))
    for r, j in pairs:
        where = view.regions.called(*view.regions.ends(r))
        name = view.events.called(*view.events.ends(j))
        if entry.name == name + f", where {where}" * bool(view.regions.call(r)):
            return r, j
    raise AssertionError(entry.name)


def _views(random):
    """Normals around 0 or 2, and targets in four cells."""
    loc = 2.0 * (np.arange(N) % 2)
    levels = scipy.stats.norm.cdf(EDGES - loc[:, None])
    probs = np.diff(np.concatenate([np.zeros((N, 1)), levels, np.ones((N, 1))], 1))
    events, regions = (_cuts(x) for x in (EDGES, [0.5]))
    cells = events.cells(loc + random.normal(size=N))
    view = View(events, regions, cells, probs, _by_levels(levels), np.arange(N) % 2)
    return view, lambda generator: generator.uniform(size=N)


def test_totals_and_moments_by_loops():
    view, draw = _views(np.random.default_rng(0))
    w = np.random.default_rng(2).integers(0, 4, N).astype(float)
    redrawn = view.redrawn(draw(np.random.default_rng(1)))
    totals, (means, variances) = view.totals(redrawn, w), view.moments(w)
    assert totals.shape == (3, 10)
    for r, region in enumerate(view.regions.unions):
        for j, event in enumerate(view.events.unions):
            inside = [i for i in range(N) if region[view.bins[i]]]
            chances = [sum(p for p, e in zip(view.probs[i], event) if e) for i in inside]
            assert totals[r, j] == sum(w[i] * event[redrawn[i]] for i in inside)
            assert means[r, j] == pytest.approx(w[inside] @ chances)
            spread = [p * (1 - p) for p in chances]
            assert variances[r, j] == pytest.approx(w[inside] ** 2 @ spread)


def test_pvalue_by_hand():
    """That of the largest standardised difference among the same redraws."""
    view, draw = _views(np.random.default_rng(3))
    [(entry, size)], seed = _found([view], draw, ONES, 7, 99)
    region, event = at = _at(view, entry)
    means, variances = view.moments(ONES)
    seen = variances >= 5
    generator = np.random.default_rng(seed)

    def sizes(cells):
        return np.where(seen, abs(view.totals(cells, ONES) - means) / np.sqrt(variances + ~seen), 0)

    redrawn = np.array([sizes(view.redrawn(draw(generator))).max() for _ in range(99)])
    largest = sizes(view.cells).max()
    assert sizes(view.cells)[at] == largest
    inside = view.regions.unions[region][view.bins] > 0
    happened = view.events.unions[event]
    residuals = happened[view.cells[inside]] - view.probs[inside] @ happened
    observed = abs(residuals.mean()) / residuals.std(ddof=1) * np.sqrt(inside.sum())
    assert entry.pvalue == (1 + np.sum(redrawn >= min(largest, observed))) / 100
    assert (entry.value, size) == (happened[view.cells[inside]].mean(), inside.sum())
    assert entry.difference == pytest.approx(residuals.mean())
    chance = sorted(redrawn)[-5] * variances[at] ** 0.5 / size
    ends = max(0, entry.expected - chance), min(1, entry.expected + chance)
    assert entry.by_chance == pytest.approx(ends)
    assert entry.call.startswith("mean((x >") or entry.call.startswith("mean((x <=")


def _one_event(labels, probs, weights):
    """Whether labels are 1, among all samples."""
    n = len(probs)
    events, everywhere = _cuts([0.5], ((1, 2),)), _cuts(np.zeros(0), ((0, 1),))
    chances = np.stack([1 - probs, probs], 1)
    cells, bins = np.asarray(labels, int), np.zeros(n, int)
    view = View(events, everywhere, cells, chances, lambda u: (u < probs).astype(int), bins)
    return _found([view], lambda random: random.uniform(size=n), weights, 0, 99)


@pytest.mark.parametrize("number", [220, 203])  # the second error is as small as by chance
def test_observed_scatter_counts_where_it_is_larger(number):
    """Half of the probabilities are too low and half too high: the scatter is the larger."""
    n = 400
    probs = np.where(np.arange(n) < n // 2, 0.98, 0.02)
    labels = np.arange(n) * 7 % n < number
    [(entry, _)], seed = _one_event(labels, probs, np.ones(n))
    residuals = labels - probs
    observed = residuals.sum() / (residuals.std(ddof=1) * np.sqrt(n))
    random = np.random.default_rng(seed)
    sd = np.sqrt(np.sum(probs * (1 - probs)))
    redrawn = np.array([abs(np.sum(random.uniform(size=n) < probs) - n / 2) for _ in range(99)])
    by_chance = (1 + np.sum(redrawn >= residuals.sum())) / 100
    assert entry.pvalue == (1 + np.sum(redrawn / sd >= observed)) / 100 > by_chance


def test_events_that_are_too_rare():
    assert _one_event(np.zeros(400), np.full(400, 1e-4), np.ones(400))[0] == []


def test_samples_without_weight_are_not_counted():
    weights = np.where(np.arange(400) % 4, 4 / 3, 0)
    [(_, number)], _ = _one_event(np.ones(400), np.full(400, 0.5), weights)
    assert number == 300


def test_redrawn_labels_have_the_predicted_frequencies():
    random = np.random.default_rng(0)
    probs = random.dirichlet(np.ones(3), 20).astype(np.float32)
    predictions = distributions.Categorical(probs)
    data = checked_data(KEY, predictions, random.integers(0, 3, 20), None, None, None)
    views, draw = search(data)
    labels = np.stack([draw(random) for _ in range(4000)])
    frequencies = np.stack([(labels == c).mean(0) for c in range(3)], 1)
    assert abs(frequencies - probs).max() < 5 * 0.5 / np.sqrt(4000)
    # All views see the same labels.
    cells = [view.redrawn(labels[0]) for view in views]
    for place in range(3):
        np.testing.assert_array_equal(cells[place], labels[0] == place)
    np.testing.assert_array_equal(cells[3], labels[0] == probs.argmax(1))


KINDS = [getattr(samples, x) for x in ["binary", "classes", "normals", "quantiles", "ensembles"]]
KINDS += [pytest.param(samples.counts, marks=pytest.mark.slow)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_task_in_single_precision(kind):
    predictions, targets = kind(np.random.default_rng(0), 40)
    with jax.enable_x64(False):
        given = predictions, targets if targets.dtype.kind == "i" else targets.astype(np.float32)
        part = where_wrong(checked_data(KEY, *given, None, None, None))
    entries = part.sections[0].entries
    assert [finding.entry for finding in part.findings] == [x.name for x in entries]
    for entry in entries:
        assert 0 < entry.pvalue <= 1
        low, high = entry.by_chance
        assert 0 <= low <= entry.expected <= high <= 1
        assert entry.pvalue > 0.05 or not low <= entry.value <= high


def _chances(data, p, low, high):
    """Predicted probabilities of targets in (low, high], of the first view."""
    if isinstance(p, distributions.Normal):
        return np.diff(scipy.stats.norm.cdf([low, high], p.loc[:, None], p.scale[:, None]))[:, 0]
    if isinstance(p, distributions.Poisson):
        return np.diff(scipy.stats.poisson.cdf([low, high], p.rate[:, None]))[:, 0]
    if isinstance(p, distributions.Ensemble | distributions.Quantiles):
        return np.full(40, min(high, 1) - max(low, 0))
    return p.class_probs[:, data.shown_classes[0]]


@pytest.mark.parametrize("kind", KINDS)
def test_regions_are_those_of_their_calls(kind):
    """What a table prints beside a region counts the same samples; redraws use the same cells."""
    random = np.random.default_rng(0)
    data = checked_data(KEY, *kind(random, 40), None, None, None)
    views, _ = search(data)
    predictions, targets = jax.tree.map(jnp.asarray, data.known((data.predictions, data.targets)))
    known = {"jax": jax, "jnp": jnp, "predictions": predictions, "targets": targets, "key": KEY}
    known["result"] = types.SimpleNamespace(arrays=data.arrays)
    known["distributions"] = distributions
    if data.task in ("regression", "counts"):
        assert np.ptp(np.bincount(views[1].bins, minlength=3)) <= 1  # by the predicted mean
    for view in views:
        totals, (means, _) = view.totals(view.cells, data.shares), view.moments(data.shares)
        for r in range(len(view.regions.ranges)):
            call = view.regions.call(r)
            inside = np.asarray(eval(call, known) if call else np.ones(40, bool))
            for j in random.choice(count := len(view.events.ranges), min(count, 4), False):
                ends = view.events.ends(j)
                event = view.events.call(j)  # none for all targets
                happened = np.asarray(eval(event, known) if event else np.ones(40, bool))
                assert totals[r, j] == np.sum(happened[inside])
                if view is views[0]:
                    expected = _chances(data, predictions, *ends)[inside].sum()
                    np.testing.assert_allclose(means[r, j], expected, rtol=1e-5, atol=1e-7)
    pit = data.arrays.get("pit")
    drawn = {"classification": targets, "binary": targets}
    drawn["quantiles"] = drawn["regression"] = drawn["ensembles"] = pit
    for view in views if data.task in drawn else []:  # the targets themselves
        cells = view.redrawn(np.asarray(drawn[data.task]))
        np.testing.assert_array_equal(cells, view.cells)


def test_ranges_of_counts_in_words():
    """Between cuts that are no whole numbers."""
    cuts = (-np.inf, 2.5), (2.5, 3.5), (2.5, 5.5), (5.5, np.inf)
    assert [_counts(*each) for each in cuts] == ["at most 2", "of 3", "from 3 to 5", "at least 6"]
