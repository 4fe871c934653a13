"""The gate of all public functions: what passes it, and what it says of wrong values.

`tests.registry` holds a valid call of each function, and the table of wrong values.
"""

import inspect
import itertools
import json
import pathlib
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax
from calibjax import distributions, estimators, kernels, scores, streaming
from calibjax._core import checks
from calibjax._core.gate import _TOGETHER, checked
from calibjax.distances import MixtureWasserstein
from calibjax.distributions import Categorical, Ensemble, Normal
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.estimators.kernel import mmce
from calibjax.hypothesis_tests import asymptotic_skce_test, e_process
from calibjax.recalibration import PlattScaling, recalibration_gain
from tests import registry
from tests.registry.outcomes import ALLOWED, Outcome, evaluate, is_traced, try_compiled, try_eagerly
from tests.test_signatures import every_name

GATE = checked(lambda: None).__code__  # of every function that passes its arguments through it
# Methods of public records that are called with data; others are called on one pair inside `vmap`.
METHODS = {"fit", "apply", "evaluate", "diagonal", "cross_fitted", "interval", "from_predictions"}
METHODS |= {"update", "merge", "result", "laplacian"}
UNGATED = {
    **registry.EXEMPT,
    "estimators.Neighbourhood.laplacian": "makes a record, which is checked where it is used",
    "interoperability.": "hands over what other libraries check, or checks labels of any kind",
    "recalibration.Recalibrator": "has abstract methods",
    "risk.EstimationFunction": "has abstract methods",
}
UNCHECKED = {  # arguments, by name
    "arguments": "are those of the recalibration of each group",
    "bets": "are recalibrations, or any records with their methods",
    "bound": "is that of a kernel, or checked in its place",
    "class_names": "are names",
    "kernels": "are checked one by one, each with its reduction",
    "models": "are checked one by one",
    "recalibrations": "are checked one by one",
    "reference": "is one of the models",
    "sizes": "are checked one by one",
}

CALLS = [*registry.calls().values()]
# What is said of the ordinary faults of a user, by kind of argument and wrong value.
SAID = json.loads((pathlib.Path(registry.__file__).parent / "said.json").read_text())
LENGTHS = "one row less"  # of two lengths, one is wrong
THEIRS = {"interoperability.RecalibratedClassifier[weights]"}  # scikit-learn refuses them
LATE = "new", "p", "q"  # arguments that are looked at when something was fitted

ROOMS = ("distributions", "distances", "kernels", "estimators", "hypothesis_tests")
ROOMS += ("recalibration", "risk", "scores", "streaming", "interoperability", "calibjax")
MODES = {"float32": (False, np.float32), "float64": (True, np.float64)}
SHARE = 40  # one in so many wrong values is tried in the fast suite
_TRIED = itertools.count(1)


@pytest.fixture(autouse=True)
def _few_programs(request):
    yield
    if "call" not in request.fixturenames or next(_TRIED) % 20 == 0:
        jax.clear_caches()  # thousands of programs would run out of memory maps


def _functions():
    """All public functions, and methods of public records, by name."""
    for name, value in every_name():
        if not isinstance(value, type):
            yield name, value
        is_on_pairs = name.startswith(("distances", "distributions"))
        is_class = isinstance(value, type) and not is_on_pairs
        for method in METHODS & set(dir(value) if is_class else ()):
            yield f"{name}.{method}", inspect.unwrap(getattr(value, method), stop=_is_gated)


def _is_gated(function):
    return getattr(function, "__code__", None) is GATE


def test_every_public_function_has_passed_through_the_gate():
    ungated, unchecked = set(), set()
    for name, function in _functions():
        if not callable(function) or name.startswith(tuple(UNGATED)):
            continue
        if not _is_gated(function):
            ungated.add(name)
            continue
        known = inspect.getclosurevars(function).nonlocals["known"]()
        together = {x for names in _TOGETHER for x in names}
        missing = inspect.signature(function).parameters.keys() - known.keys() - together
        unchecked |= {f"{name}({argument})" for argument in missing - UNCHECKED.keys()}
    assert sorted(unchecked) == []
    assert sorted(ungated) == []


def _refuse(tried):
    """Fails with the list of wrong outcomes, and of ordinary faults that are not named."""
    assert not [str(one) for one in tried if one.outcome not in ALLOWED]
    refused = [one for one in tried if one.outcome is Outcome.REFUSED and one.call not in THEIRS]
    ordinary = [one for one in refused if one.mutant in SAID.get(one.kind, ())]
    assert not [str(one) for one in ordinary if not _is_named(one)]


def _is_named(one):
    """Whether an ordinary fault is named in the form that all messages have."""
    call = registry.calls()[one.call]
    names = (one.argument, *call.arguments[one.argument].called)
    names = (*names, "state") if one.mutant == "all zero" else names  # of accumulators
    names = (*names, *call.arguments) if one.mutant == LENGTHS else names
    called = "|".join(map(re.escape, names))
    form = rf"\w+: (.*\W)?({called})(\W.*)?: expected .*, got .*"
    is_said = re.search(SAID[one.kind][one.mutant], one.said) is not None
    return re.match(form, one.said, re.DOTALL) is not None and is_said


def _first_of_each(room, is_chosen):
    """One call of each function of a subpackage."""
    rooms = [call.covers[0].rpartition(".")[0].partition(".")[0] or "calibjax" for call in CALLS]
    calls = [call for call, own in zip(CALLS, rooms, strict=True) if own == room]
    return list({call.covers[0]: call for call in reversed(calls) if is_chosen(call)}.values())


@pytest.mark.parametrize("room", ROOMS)
def test_ordinary_faults_are_named(room):
    """And some of the others are refused, or are the right numbers in another form."""
    tried = []
    for call in _first_of_each(room, lambda call: call.covers[0] != "distributions.monte_carlo"):

        def chosen(number, name, mutant, call=call):
            is_known = mutant.name in SAID.get(call.arguments[name].kind, ())
            is_known |= not (number % SHARE or (mutant.meanings and call.slow))
            return is_known and name not in LATE

        with jax.enable_x64(False):
            tried += try_eagerly(call, np.float32, chosen)
    assert tried
    _refuse(tried)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_all_wrong_values(call, mode):
    x64, dtype = MODES[mode]
    with jax.enable_x64(x64):
        evaluate(call, call.values(dtype))  # the right ones are taken
        _refuse([*try_eagerly(call, dtype)])


# Compiling what plots are drawn from is slow, and what scikit-learn calls is not compiled.
@pytest.mark.parametrize("room", ROOMS[:-2])
def test_some_wrong_numbers_under_jit(room):
    calls = _first_of_each(room, lambda call: call.compiled and not call.slow)
    chosen = sorted(calls, key=lambda call: call.name)[:: 8 if len(calls) > 8 else 1]
    with jax.enable_x64(False):
        tried = [t for call in chosen for t in try_compiled(call, np.float32)]
    assert tried
    _refuse(tried)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [*MODES, "one argument"])
@pytest.mark.parametrize("call", [c for c in CALLS if c.compiled], ids=lambda call: call.name)
def test_all_wrong_numbers_under_jit(call, mode):
    """Also where one argument is traced, and everything else is known when compiling."""
    x64, dtype = MODES.get(mode, MODES["float32"])
    traced = [k for k, argument in call.arguments.items() if is_traced(argument)]
    with jax.enable_x64(x64):
        for name in [None] if mode in MODES else traced if len(traced) > 1 else []:
            _refuse([*try_compiled(call, dtype, only=name)])


VALUES = [0, 1, 1, 0, 1, 0]  # labels, locations, weights
N = len(VALUES)
CONFIDENCES = np.float32([0.1, 0.3, 0.35, 0.6, 0.7, 0.9])
PROBS, Y = np.stack([1 - CONFIDENCES, CONFIDENCES], 1), np.float32([0.3, -1, 0.4, 2, 0.1, -0.7])
NORMALS = Normal(Y, 1.0)
KEY, WHITE, EXPONENTIAL = jax.random.key(0), kernels.White(), kernels.Exponential()
BINNING = estimators.UniformBins(5)
OF_CLASSES = kernels.TensorProduct(EXPONENTIAL, WHITE)
OF_NUMBERS = kernels.TensorProduct(EXPONENTIAL, kernels.SquaredExponential())


# Forms of numbers beyond those of the registry's table.
TAKEN = {
    "tuple": tuple,
    "integers": lambda values: [np.int64(x) for x in values],
    "bfloat16": lambda values: jnp.array(values, jnp.bfloat16),
    "no mask": lambda values: np.ma.masked_array(values, mask=False),
    "Index": lambda values: pytest.importorskip("pandas").Index(values),
}


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", TAKEN)
def test_values_that_are_taken(name, x64):
    """They have the numbers of JAX arrays."""

    def results(values, numbers):
        return (
            scores.crps(Normal(numbers, 1.0), Y),
            scores.crps(Normal(Y, 1), numbers),
            scores.accuracy(Categorical(PROBS), values),
            scores.brier_score(Categorical(PROBS), np.array(VALUES), weights=values),
            mmce(EXPONENTIAL, CONFIDENCES, values),
        )

    with jax.enable_x64(x64):
        found, expected = (results(x, x) for x in (TAKEN[name](VALUES), jnp.array(VALUES)))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_numbers_of_python_and_integers_do_not_change_the_precision_or_overflow():
    predictions = Normal(np.zeros(3, "float32"), 0.3)
    assert scores.crps(predictions, np.arange(3)).dtype == jnp.float32
    draws = np.array([[1, 5, 9], [2, 200, 4]])
    for dtype in ("uint8", "uint64"):
        found = scores.crps(Ensemble(draws.astype(dtype)), np.array([3, 200], dtype))
        assert found == scores.crps(Ensemble(draws), np.array([3, 200]))
        one, two = np.array([1, 0], dtype), np.array([0, 1], dtype)
        assert calibjax.distances.Euclidean().squared(one, two) == 2
    largest = np.int32(2**31 - 1), np.int32(-(2**31))
    assert calibjax.distances.Manhattan()(*largest) == 2.0**32 - 1


@pytest.mark.parametrize(
    ("loc", "targets", "place"),
    [
        (1.7e9 + 3, 1.7e9, r"predictions.loc: .* got .*1700000003.0"),
        (1.7e9, 1.7e9 + 3, r"targets: .* got .*1700000003.0"),
        (1.7e9, 1_700_000_003, "targets: expected integers that float32 holds exactly"),
    ],
)
def test_numbers_that_float32_does_not_resolve(loc, targets, place):
    predictions, targets = Normal(np.full(2, loc), np.ones(2)), np.full(2, targets)
    np.testing.assert_allclose(scores.crps(predictions, targets), 2.4365747, rtol=1e-6)
    with jax.enable_x64(False):  # others are the same in float32, or their scales are wide enough
        with pytest.raises(ValueError, match=place):
            scores.crps(predictions, targets)
        scores.crps(Normal(np.full(2, 1.7e9), np.ones(2)), np.full(2, 1.7e9 + 128))
        scores.crps(Normal(np.full(2, 1.7e9 + 3), np.full(2, 86400.0)), np.full(2, 1.7e9 + 5))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.bool_])
def test_memory_is_copied(dtype):
    """Also where XLA would take the memory of NumPy as it is, for its address."""
    size = 64 * np.dtype(dtype).itemsize
    memory = np.empty(size + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    numbers = memory[begin : begin + size].view(dtype)
    numbers[:] = np.arange(64)
    given, found = numbers.copy(), checks.as_arrays("x", numbers)
    numbers[:] = 1
    np.testing.assert_array_equal(found, given)


def test_largest_label():
    largest = 2.0**31 - 1
    assert checks.integer("targets", np.array([largest])) == largest
    with pytest.raises(ValueError, match="targets: expected integer class labels"):
        checks.integer("targets", np.array([largest + 1]))


@calibjax.checked(minimum=2, copies=True)
def mean_residual(key, predictions, targets, *, weights=None, norm: float = 1.0):
    """A user's own estimator."""
    del key
    residuals = (targets - predictions.mean()) / jnp.sqrt(predictions.variance())
    return jnp.average(jnp.abs(residuals) ** norm, weights=weights)


def test_an_estimator_of_a_user():
    loc, scale = np.arange(3.0), np.ones(3)
    assert inspect.isfunction(mean_residual)
    assert inspect.getdoc(mean_residual) == "A user's own estimator."
    assert [*inspect.signature(mean_residual).parameters][-2:] == ["weights", "norm"]
    assert mean_residual(KEY, Normal([0, 1, 2], 1), [1, 2, 5], weights=[2, 1, 1], norm=2) == 3
    traced = jax.jit(lambda scale, w: mean_residual(KEY, Normal(loc, scale), 0 * loc, weights=w))
    assert traced(scale, scale) == 1
    assert np.isnan(traced(-scale, scale))
    assert np.isnan(traced(scale, -scale))
    for wrong, error, message in (
        ((Normal(loc, scale), loc), TypeError, r"key: expected one random key .* got Normal"),
        ((KEY, Normal(loc, -scale), loc), ValueError, "predictions.scale: expected positive"),
        ((KEY, loc, loc), TypeError, "predictions: expected a batch of distributions"),
        ((KEY, Normal(loc, scale), loc[1:]), ValueError, "targets: expected .* got 2"),
        ((KEY, Normal(loc[:1], 1), loc[:1]), ValueError, "predictions: expected at least 2 samp"),
        ((KEY, Normal(loc, scale)), TypeError, "mean_residual: missing a required argument"),
    ):
        with pytest.raises(error, match=message):
            mean_residual(*wrong)


def _in_another_order(call):
    """A call with tables whose rows have the same labels in another order."""

    def run():
        pandas = pytest.importorskip("pandas")
        table, column = pandas.DataFrame(PROBS, list("abcdef")), pandas.Series(VALUES, [*"fabcde"])
        return call(table, column)

    return run


def _skce(predictions, targets=VALUES, kernel=OF_CLASSES):
    return estimators.skce(kernel, predictions, targets)


REFUSED = TypeError, ValueError, NotImplementedError
# Faults that one kind of predictions, of kernels or of records knows, with what is said of them.
KNOWN = {
    "key left out": (
        lambda: calibjax.evaluate(Categorical(PROBS), VALUES),
        r"key: expected one random key such as jax.random.key\(0\), got Categorical$",
    ),
    "one probability each": (
        lambda: _skce(Categorical(PROBS[:, 0])),
        r"probs: expected shape \[n, m\].*, got \(6,\);.*distributions.Bernoulli\(probs\)",
    ),
    "probabilities of both classes": (
        lambda: _skce(distributions.Bernoulli(PROBS)),
        r"probs: expected shape \[n\].*, got \(6, 2\);.*distributions.Categorical\(probs\)",
    ),
    "transposed draws": (
        lambda: _skce(Ensemble(np.zeros((5, 6))), Y, OF_NUMBERS),
        r"expected .*, got .*transpose draws",
    ),
    "rows of targets": (
        _in_another_order(lambda p, y: _skce(Categorical(p), y)),
        "targets: expected rows with the labels of predictions",
    ),
    "rows of parameters": (
        _in_another_order(lambda p, y: scores.crps(Normal(p[0], y + 1.0), Y)),
        "expected rows with the labels of predictions",
    ),
    "draws of another kind": (
        lambda: _skce(MonteCarlo(Categorical(PROBS), Ensemble(np.stack([Y, Y], 1)))),
        r"predictions\.draws\.values: expected",
    ),
    "missing draws": (
        lambda: _skce(Ensemble(np.full((N, 2), -(2**31), np.int32)), Y, OF_NUMBERS),
        "values: expected draws",
    ),
    "labels beyond a matrix": (
        lambda: kernels.gram_matrix(kernels.LabelKernel(np.eye(2)), np.array([0, 1, 2])),
        r"xs: expected labels in 0, \.\.\., 1, got xs\[2\] = 2",
    ),
    "kernel on pairs": (
        lambda: estimators.lce(
            estimators.Neighbourhood(OF_NUMBERS, estimators.UniformBins(1)),
            PROBS,
            CONFIDENCES,
            VALUES,
        ),
        "kernel: expected a kernel on single points.*got TensorProduct",
    ),
    "points of two kinds": (
        lambda: kernels.gram_matrix(kernels.SquaredExponential(), Y, Normal(Y, 1)),
        "ys: expected entries like those of xs, arrays with entries .*, got Normal",
    ),
    "a score that is not estimated": (
        lambda: recalibration_gain(
            KEY, {"a": PlattScaling()}, distributions.Bernoulli(CONFIDENCES), VALUES, score="kl"
        ),
        "score: expected one of 'l1', 'l2', got 'kl'",
    ),
    "blocks of more than half": (
        lambda: asymptotic_skce_test(
            KEY, OF_CLASSES, Categorical(PROBS), VALUES, null="blocks", block_size=4
        ),
        "block_size: expected",
    ),
    "levels twice": (
        lambda: scores.pinball_loss(distributions.Quantiles([0.3], Y[:, None]), Y, levels=[0.5]),
        "levels: expected None for Quantiles",
    ),
    "no components": (
        lambda: _skce(distributions.Mixture(None, Categorical(np.zeros((N, 0, 3))))),
        r"predictions.components.probs: expected shape \[n, k, m\]",
    ),
    "no draws": (lambda: scores.energy_score(NORMALS, Y), "expected draws,.*monte_carlo draws"),
    "no crps": (
        lambda: scores.crps(distributions.Dirichlet(PROBS), PROBS),
        r"crps has no closed form for Dirichlet; define its crps\(y\)",
    ),
    "components without a score": (
        lambda: scores.crps(
            distributions.Mixture(None, distributions.Laplace([[0.0]], [[1.0]])), [0]
        ),
        "crps has no closed form for Mixture of Laplace",
    ),
    "a curve of classes": (
        lambda: estimators.reliability_curve(KEY, Categorical(PROBS), VALUES, binning=BINNING),
        "predictions: expected Bernoulli, got .*top_label makes them",
    ),
    "a curve of more bins than it may have": (
        lambda: estimators.reliability_curve(
            KEY, distributions.Bernoulli(CONFIDENCES), VALUES, binning=BINNING, max_bins=1
        ),
        "expected at most max_bins = 1 different bins, got",
    ),
    "default kernels of equal certain predictions": (
        lambda: kernels.default_kernel(Ensemble(np.zeros((N, 2)))),
        "predictions: expected values that differ for a length scale, got one",
    ),
    "streaming with a narrow kernel": (
        lambda: streaming.SKCE(
            kernels.TensorProduct(
                kernels.Nystrom(kernels.Constant(), distributions.Beta(CONFIDENCES, CONFIDENCES)),
                kernels.SquaredExponential(1e-3),
            )
        ).init(),
        "kernel.target: expected a length scale >= .* for Beta predictions",
    ),
    "streaming without landmarks": (
        lambda: streaming.SKCE(OF_NUMBERS, Y).init(),
        r"kernel: expected TensorProduct\(Nystrom\(kernel, landmarks\), target kernel\)",
    ),
    "bet on weighted draws": (
        lambda: e_process(Ensemble(np.zeros((N, 3)), np.full((N, 3), 1 / 3)), Y),
        "predictions: expected ensembles of scalars without weights",
    ),
    "bet with the target of classes": (
        lambda: e_process(NORMALS, Y, bets={"a": OF_CLASSES}),
        r"bets\['a'\].target: expected a kernels.NormalScore for numbers.* for Normal",
    ),
    "kernel as bet": (
        lambda: e_process(NORMALS, Y, bets={"a": kernels.White()}),
        r"bets\['a'\]: expected a recalibration of Normal, or a kernels.TensorProduct, got White",
    ),
    "params of another kind": (
        lambda: PlattScaling().apply({"slope": 1}, CONFIDENCES),
        "params: expected SigmoidMap as fit returns it, got dict",
    ),
    "no feature": (
        lambda: kernels.gram_matrix(EXPONENTIAL, np.zeros((N, 0))),
        "xs: expected at least one feature, got none",
    ),
    "predictions as targets": (
        lambda: _skce(NORMALS, NORMALS, OF_NUMBERS),
        "targets: expected an array of targets, got Normal",
    ),
    "check of no argument": (
        lambda: checked(lambda predictions: None, target=None),
        "expected checks of its arguments predictions, got target",
    ),
    "single distributions": (
        lambda: kernels.gram_matrix(kernels.Exponential(1.0, MixtureWasserstein()), NORMALS),
        "expected two mixtures, got Normal and Normal",
    ),
    "uniform of no width": (
        lambda: scores.crps(distributions.Uniform(np.zeros(N), np.full(N, 1e-40)), np.zeros(N)),
        r"predictions\.high.*: expected",
    ),
}


@pytest.mark.parametrize("case", KNOWN)
def test_faults_that_few_functions_know(case):
    call, message = KNOWN[case]
    with jax.enable_x64(False), pytest.raises(REFUSED, match=message):
        call()


def test_other_points_may_have_rows_with_other_labels():
    pandas = pytest.importorskip("pandas")
    tables = (pandas.DataFrame(PROBS, [*labels]) for labels in ("abcdef", "ghijkl"))
    found = kernels.gram_matrix(EXPONENTIAL, *tables)
    np.testing.assert_allclose(found, kernels.gram_matrix(EXPONENTIAL, PROBS), rtol=1e-6)


def test_logits_that_are_probabilities():
    with pytest.warns(UserWarning, match=r"predictions\.logits: all rows are probabilities"):
        scores.brier_score(distributions.CategoricalLogits(PROBS), VALUES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores.brier_score(distributions.CategoricalLogits(np.log(PROBS)), VALUES)
        scores.brier_score(distributions.CategoricalLogits(PROBS + 1), VALUES)
