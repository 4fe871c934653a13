"""Several models of the same targets: numbers, sentences, and what is refused."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax
from calibjax import distributions, estimators, hypothesis_tests, kernels, scores
from calibjax.distributions import Categorical, Normal, Quantiles
from calibjax.evaluation import comparing
from calibjax.evaluation.record import Entry
from calibjax.kernels import defaults
from tests.evaluation import golden

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
N = 60
A, B, NOISE = RNG.normal(size=(3, N))
TARGETS = A + B + 0.5 * NOISE
MODELS = {
    "first": Normal(A, np.full(N, np.sqrt(1.25))),
    "second": Normal(B, np.full(N, np.sqrt(1.25))),
    "sharp": Normal(A + B, np.full(N, 0.5)),
}
WEIGHTS = RNG.uniform(0.5, 2, N)


def compared_of(models, targets, score=None, weights=None, clusters=None):
    return comparing.compared(KEY, models, targets, weights, clusters, score)


def test_every_number_is_that_of_its_call():
    found = calibjax.compare(KEY, MODELS, TARGETS, weights=WEIGHTS)
    modules = jax, jnp, hypothesis_tests, estimators, scores, distributions, kernels
    names = {module.__name__.rpartition(".")[2]: module for module in modules} | {"jnp": jnp}
    names |= {"models": MODELS, "targets": TARGETS, "weights": WEIGHTS, "key": KEY, "result": found}
    assert ", with weights (effectively " in found.description
    for entry in found.entries:
        assert "weights=weights" in entry.call
        value = eval(entry.call, names)
        name = "pvalue" if "p-value" in entry.name else "estimate"
        value = getattr(value, name, value)
        np.testing.assert_allclose(entry.value, value, rtol=1e-9, atol=1e-12, err_msg=entry.name)


def test_pvalues_are_adjusted_by_themselves():
    compared = compared_of(MODELS, TARGETS, weights=WEIGHTS)
    [section] = comparing.of_scores(compared).sections
    found = {entry.name.partition(":")[0]: entry.pvalue for entry in section.entries[3:]}
    raw = {}
    for name in found:
        two = (MODELS[x] for x in name.split(" - "))
        difference = hypothesis_tests.score_difference(*two, TARGETS, weights=WEIGHTS)
        raw[name] = float(difference.pvalue)
    assert len(raw) == 3
    largest = 0.0
    for rank, name in enumerate(sorted(raw, key=raw.__getitem__)):
        largest = max(largest, (3 - rank) * raw[name])
        np.testing.assert_allclose(found[name], min(largest, 1), rtol=1e-9)


def test_what_is_said():
    """Two models that each know one half, and one that knows both."""
    labels = (A + B + 0.3 * NOISE > 0).astype(int)
    logits = {"first": 1.3 * A, "second": 1.3 * B, "sharp": 3 * (A + B)}
    models = {name: 1 / (1 + np.exp(-x)) for name, x in logits.items()}
    stages = []
    found = calibjax.compare(KEY, models, labels, progress=lambda *stage: stages.append(stage))
    assert stages == [("scores", 0, 2), ("calibration", 1, 2)]
    told = "\n".join(found.sentences)
    assert "sharp has a better log score than first: it is lower by" in told
    assert found.sentences[0].startswith("sharp has the best log score: it is lower by 0.30 nats")
    assert "each question" in found.notes[0]
    assert found.task == "binary"
    assert found.description.startswith("3 models (first, second, sharp) of 60 targets: binary")
    assert json.loads(found.to_json())["num_samples"] == N
    assert "Which is better calibrated?" in str(found)


def test_names_with_braces():
    models = {"{a}": MODELS["first"], "b{}": MODELS["second"]}
    rows = compared_of(models, TARGETS).rows_of("x", lambda p, y: 1.0, "f({}, targets)")
    assert rows["{a}"].call == "f(models['{a}'], targets)"
    assert rows["b{}"].call == "f(models['b{}'], targets)"


def test_clusters():
    clusters = np.arange(N) // 3
    result = calibjax.compare(KEY, MODELS, TARGETS, clusters=clusters)
    names = [x.name for x in result.entries if " - " in x.name and x.name.endswith("log score")]
    assert names == [
        f"{x}: log score" for x in ("first - second", "first - sharp", "second - sharp")
    ]
    samples = MODELS["first"], MODELS["sharp"], TARGETS
    kernel, tested = (result.other_kernels[x] for x in ("SKCE", "exact test"))
    difference = hypothesis_tests.skce_difference(kernel, *samples, clusters=clusters)
    np.testing.assert_allclose(result["first - sharp: SKCE"].value, difference.estimate, rtol=1e-9)
    difference = hypothesis_tests.score_difference(*samples, clusters=clusters)
    error = result[names[1]].standard_error
    np.testing.assert_allclose(error, difference.standard_error, rtol=1e-9)
    key, options = jax.random.fold_in(KEY, 1), {"clusters": clusters}
    pvalues = [
        float(hypothesis_tests.cluster_skce_test(key, tested, p, TARGETS, **options).pvalue)
        for p in MODELS.values()
    ]
    smallest = result[f"{[*MODELS][np.argmin(pvalues)]}: p-value"]
    assert smallest.pvalue == pytest.approx(min(1, 3 * min(pvalues)))


def test_arrays_and_scores():
    probs = RNG.uniform(0.05, 0.95, 40)
    labels = RNG.binomial(1, probs)
    models = {
        "a": probs,
        "b": distributions.Bernoulli(np.where(np.arange(40) == 0, 1 - labels[0], 0.5)),
    }
    compared = compared_of(models, labels)
    assert compared.score[1] == "Brier score"  # the log score is infinite
    [section] = comparing.of_scores(compared).sections
    expected = scores.brier_score(distributions.Bernoulli(probs), labels)
    np.testing.assert_allclose(section.entries[0].value, expected, rtol=1e-6)

    def misses(predictions, targets):
        return jnp.mean(jnp.abs(predictions.probs - targets))

    compared = compared_of(models, labels, score=misses)
    [section] = comparing.of_scores(compared).sections
    assert [entry.name for entry in section.entries] == ["a: misses", "b: misses", "a - b: misses"]
    np.testing.assert_allclose(section.entries[0].value, np.abs(probs - labels).mean(), rtol=1e-6)


def test_kernel_of_all_predictions_together():
    kernel = comparing.common_kernels(compared_of(MODELS, TARGETS))["SKCE"]
    together = jax.tree.map(lambda *x: np.concatenate(x), *MODELS.values())
    expected = kernels.default_kernel(together).prediction.length_scale
    np.testing.assert_allclose(kernel.prediction.length_scale, expected, rtol=1e-9)


def test_families_that_differ():
    ensembles = distributions.Ensemble(RNG.normal(size=(N, 5)))
    compared = compared_of({"a": MODELS["first"], "b": ensembles}, TARGETS)
    assert compared.score[1] == "CRPS"
    assert not comparing.common_kernels(compared)
    laplace = {"a": MODELS["first"], "b": distributions.Laplace(A, np.ones(N))}
    assert not comparing.common_kernels(compared_of(laplace, TARGETS))
    counts = RNG.poisson(3, N)
    models = {
        "a": distributions.Poisson(np.full(N, 3.0)),
        "b": Normal(np.full(N, 3.0), np.full(N, 1.7)),
    }
    compared = compared_of(models, counts)
    assert compared.score[1] != "log score"  # a density and a probability


def test_many_samples(monkeypatch):
    """Tests have a kernel of low rank; of very many samples there are scores only."""
    monkeypatch.setattr(defaults, "MANY", 30)
    monkeypatch.setattr(defaults, "NUM_LANDMARKS", 20)
    probs = RNG.dirichlet(np.ones(3), N)
    compared = compared_of(
        {"a": Categorical(probs), "b": Categorical(probs[::-1])}, np.zeros(N, int)
    )
    found = comparing.common_kernels(compared)
    assert isinstance(found["exact test"].prediction, kernels.Nystrom)
    assert not isinstance(found["SKCE"].prediction, kernels.Nystrom)
    monkeypatch.setattr("calibjax.evaluation.sections.PAIRS", N**2 - 1)
    assert not comparing.common_kernels(compared)


def _scores(high, pvalue):
    difference = Entry("a - b: log score", -0.031, low=-0.047, high=high, pvalue=pvalue)
    return [Entry("a: log score", 1.0), Entry("b: log score", 1.031), difference]


def _tests(*pvalues, difference=1.0):
    rows = [Entry(f"{x}: p-value", p, pvalue=p) for x, p in zip("ab", pvalues)]
    return [*rows, Entry("a - b: SKCE", 0.01, pvalue=difference)]


SAID = {
    "better score": (comparing.of_scores, _scores(-0.015, 0.0004)),
    "perhaps a better score": (comparing.of_scores, _scores(0.02, 0.3)),
    "one is not calibrated": (comparing.calibration, _tests(0.02, 0.1, difference=0.03)),
    "both are calibrated": (comparing.calibration, _tests(0.2, 0.1, difference=0.3)),
}


@pytest.mark.parametrize("name", SAID)
def test_sentences(monkeypatch, name):
    """p-values are adjusted, for models and for pairs."""
    question, entries = SAID[name]
    rows = {x.name: x for x in entries}
    one = lambda name, *_, **__: rows.get(name, Entry(name, math.nan))  # noqa: E731
    monkeypatch.setattr(comparing, "measured", one)
    compared = compared_of({"a": MODELS["first"], "b": MODELS["second"]}, TARGETS)
    arguments = [comparing.common_kernels(compared)] * (question is comparing.calibration)
    part = question(compared, *arguments)
    golden.compare(name, part.remarks)


THREE = np.full((N, 3), 1 / 3)
LEVELS = Quantiles(np.array([0.3, 0.6]), np.stack([A, A + 1], 1))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"models": {"a": MODELS["first"]}}, TypeError, "expected a dictionary of at least two"),
        (
            {"models": MODELS | {"b": Normal(A[:50], np.ones(50))}},
            *(ValueError, r"models\['b'\]: targets: expected one for each of the 50 predictions"),
        ),
        ({"models": MODELS | {"b": Normal(A, -np.ones(N))}}, ValueError, "'b'.: predictions.scale"),
        ({"clusters": np.zeros(N, int)}, ValueError, "clusters.*at least 10"),
        ({"weights": 1.0 * (np.arange(N) < 9)}, ValueError, "weights.*at least 10 positive"),
        ({"weights": np.ones(N), "score": lambda p, y: 0.0}, TypeError, "argument 'weights'"),
        ({"score": "crps"}, TypeError, "score"),
    ],
)
def test_refusals(options, error, message):
    with pytest.raises(error, match=message):
        calibjax.compare(KEY, **{"models": MODELS, "targets": TARGETS} | options)


def test_traced_targets_and_models_of_other_kinds():
    with pytest.raises(TypeError, match="traced"):
        jax.jit(lambda y: calibjax.compare(KEY, MODELS, y).num_samples)(TARGETS)
    others = Quantiles(np.array([0.3, 0.7]), LEVELS.values)
    two = [(MODELS["first"], Categorical(THREE)), (MODELS["first"], LEVELS), (others, LEVELS)]
    for first, second in two:
        with pytest.raises(ValueError, match="quantiles of the same levels by all models"):
            calibjax.compare(KEY, {"a": first, "b": second}, np.zeros(N, int))


def test_equal_differences_decide_nothing():
    """Two constant models, of which the bolder one happens to have been right twelve times."""
    models = {x: distributions.Bernoulli(np.full(12, p)) for x, p in (("a", 0.9), ("b", 0.8))}
    found = calibjax.compare(jax.random.key(0), models, np.ones(12, int))
    assert found["a - b: log score"].pvalue == 1
    assert not any("better" in x for x in found.sentences)
    assert "Infinity" not in found.to_json()
