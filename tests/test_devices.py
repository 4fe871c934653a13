"""Predictions that are split over devices give what they give on one."""

import functools
import importlib.util
import pathlib
import re
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from calibjax import distances, estimators, hypothesis_tests, kernels, scores
from calibjax.distributions import Categorical, Normal, sample_targets

SCRIPT = pathlib.Path(__file__).parent.parent / "docs" / "devices.py"
RNG = np.random.default_rng(1)
LOC, SCALE, TARGETS = RNG.normal(size=64), RNG.uniform(0.5, 1, 64), RNG.normal(size=64)
PROBS, LABELS = RNG.dirichlet(np.ones(3), 64), RNG.integers(0, 3, 64)
NORMAL_KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
)
CLASS_KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.TotalVariation()), kernels.White()
)


def placing(axis):
    mesh = jax.make_mesh((4,), ("rows",), axis_types=(axis,))
    sharding = NamedSharding(mesh, PartitionSpec("rows"))
    return lambda tree: jax.tree.map(lambda array: jax.device_put(array, sharding), tree)


@pytest.fixture(params=[AxisType.Explicit, AxisType.Auto], ids=["explicit", "automatic"])
def place(request):
    return placing(request.param)


@pytest.fixture
def place_explicitly():
    """For what has no code of its own for devices."""
    return placing(AxisType.Explicit)


def close(ours, expected):
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    "function",
    [
        functools.partial(estimators.skce, NORMAL_KERNEL),
        functools.partial(estimators.skce_biased, NORMAL_KERNEL),
        functools.partial(estimators.skce_block, NORMAL_KERNEL, block_size=5),
    ],
    ids=["skce", "skce_biased", "skce_block"],
)
def test_estimates(place, function):
    split = place((Normal(LOC, SCALE), TARGETS))
    expected = function(Normal(LOC, SCALE), TARGETS)
    close(function(*split), expected)
    close(jax.jit(function)(*split), expected)


@pytest.mark.parametrize("name", ["skce", "ece", "exact_skce_test"])
def test_rows_filled_up_with_weight_zero(place, name):
    """61 rows, as the guide to devices fills them up to 64."""
    test = functools.partial(
        hypothesis_tests.exact_skce_test, jax.random.key(0), CLASS_KERNEL, num_draws=21
    )
    function = {
        "skce": functools.partial(estimators.skce, CLASS_KERNEL),
        "ece": functools.partial(estimators.ece, binning=estimators.EqualMassBins(5)),
        "exact_skce_test": lambda *data, **weights: (
            lambda found: (found.pvalue, found.estimate, found.null_samples)
        )(test(*data, **weights)),
    }[name]
    n, index = 61, np.arange(64)
    data = Categorical(PROBS[:n]), LABELS[:n]
    expected = function(*data)
    filled = place(jax.tree.map(lambda x: x[index % n], data))
    close(function(*filled, weights=place(np.where(index < n, 1.0, 0.0))), expected)
    # The rows that are added would change something.
    assert not np.allclose(jax.tree.leaves(function(*filled))[-1], jax.tree.leaves(expected)[-1])


@pytest.mark.parametrize(
    ("function", "data"),
    [
        (scores.brier_decomposition, (Categorical(PROBS), LABELS)),
        (scores.crps_decomposition, (Normal(LOC, SCALE), TARGETS)),
        (scores.rejection_curve, (PROBS[:, 0], LABELS == 0)),
        (scores.prediction_rejection_ratio, (PROBS[:, 0], LABELS == 0)),
        (functools.partial(scores.decision_cost, ratio=2.0), (PROBS[:, 0], LABELS == 0)),
        (functools.partial(kernels.gram_matrix, distances.Wasserstein()), (Normal(LOC, SCALE),)),
    ],
    ids=lambda value: getattr(getattr(value, "func", value), "__name__", ""),
)
def test_what_has_no_loop_over_pairs(place_explicitly, function, data):
    close(function(*place_explicitly(data)), function(*data))


def test_near_linear_time(place_explicitly):
    landmarks = Categorical(PROBS[:8])
    kernel = kernels.TensorProduct(
        kernels.LowRank(CLASS_KERNEL.prediction, landmarks), CLASS_KERNEL.target
    )
    expected = estimators.skce(kernel, Categorical(PROBS), LABELS)
    close(estimators.skce(kernel, *place_explicitly((Categorical(PROBS), LABELS))), expected)


def test_local_errors_stay_split(place):
    neighbourhood = estimators.Neighbourhood.laplacian(0.2, 5)
    data = PROBS, PROBS.max(1), (PROBS.argmax(1) == LABELS).astype(int)
    split = place(data)
    errors = estimators.lce(neighbourhood, *split)
    close(errors, estimators.lce(neighbourhood, *data))
    assert errors.sharding.is_equivalent_to(split[1].sharding, 1)
    close(estimators.mlce(neighbourhood, *split), estimators.mlce(neighbourhood, *data))


@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_exact_pvalues_are_identical(place, small, monkeypatch):
    """Whether redraws are split over the devices, or pairs."""
    if not small:
        monkeypatch.setattr(hypothesis_tests._redraw.pool, "_SMALL", 0)
    test = functools.partial(
        hypothesis_tests.exact_skce_test, jax.random.key(0), CLASS_KERNEL, num_draws=21
    )
    expected = test(Categorical(PROBS), LABELS)
    jax.clear_caches()
    found = test(*place((Categorical(PROBS), LABELS)))
    assert float(found.pvalue) == float(expected.pvalue)
    close(found.components, expected.components)


def test_bootstrap_pvalues_are_identical(place_explicitly):
    test = functools.partial(
        hypothesis_tests.bootstrap_skce_test, jax.random.key(0), CLASS_KERNEL, num_draws=21
    )
    expected = test(Categorical(PROBS), LABELS)
    found = test(*place_explicitly((Categorical(PROBS), LABELS)))
    assert float(found.pvalue) == float(expected.pvalue)
    np.testing.assert_allclose(found.null_samples, expected.null_samples, atol=1e-13)


@pytest.mark.slow
def test_any_statistic(place_explicitly):
    statistic = functools.partial(estimators.skce_biased, CLASS_KERNEL)
    test = functools.partial(hypothesis_tests.exact_test, jax.random.key(0), statistic, num_draws=9)
    expected = test(Categorical(PROBS), LABELS)
    found = test(*place_explicitly((Categorical(PROBS), LABELS)))
    assert float(found.pvalue) == float(expected.pvalue)


def test_draws_are_those_of_one_device(place):
    expected = sample_targets(jax.random.key(0), Normal(LOC, SCALE))
    split = place(Normal(LOC, SCALE))
    drawn = sample_targets(jax.random.key(0), split)
    np.testing.assert_array_equal(drawn, expected)
    assert drawn.sharding.is_equivalent_to(split.loc.sharding, 1)


def test_wrong_values_are_refused(place_explicitly):
    scale = np.where(np.arange(64) == 37, -1.0, SCALE)
    with pytest.raises(ValueError, match=r"predictions.scale: expected .*scale\[37\] = -1"):
        estimators.skce(NORMAL_KERNEL, *place_explicitly((Normal(LOC, scale), TARGETS)))
    probs = np.where(np.arange(64)[:, None] == 5, 0.5, PROBS)
    with pytest.raises(ValueError, match=r"predictions.probs.*\[5\] = 1.5"):
        estimators.skce(CLASS_KERNEL, *place_explicitly((Categorical(probs), LABELS)))
    labels = np.where(np.arange(64) == 3, 7, LABELS)
    with pytest.raises(ValueError, match=r"targets\[3\] = 7"):
        estimators.skce(CLASS_KERNEL, *place_explicitly((Categorical(PROBS), labels)))


def outputs(*commands):
    """What each of some processes prints, which run at the same time."""
    running = [
        subprocess.Popen([sys.executable, SCRIPT, *command], stdout=subprocess.PIPE, text=True)
        for command in commands
    ]
    try:
        return [process.communicate(timeout=600)[0] for process in running]
    finally:
        for process in running:
            process.kill()


def numbers(printed):
    rows = re.findall(r"^(\S.*?)  +(\S+)$", printed, re.M)
    return {name: float(value) for name, value in rows}


def test_estimates_of_the_script():
    """With the devices of this process; the commands in its docstring are a slow test."""
    spec = importlib.util.spec_from_file_location("devices", SCRIPT)
    assert spec
    assert spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    data = script.data(64)
    mesh = jax.make_mesh((4,), ("rows",))
    found = script.estimates(*(script.on_mesh(mesh, array) for array in data))
    close(found, script.estimates(*data))


@pytest.mark.slow
def test_script_on_devices_and_processes():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = ["--port", str(free.getsockname()[1])]
    one, four = outputs(["--devices", "1"], [])
    both = outputs(["--process", "0", *port], ["--process", "1", *port])
    expected = numbers(one)
    assert len(expected) == 5
    for printed in (four, both[0]):
        found = numbers(printed)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            if name.startswith("p-value"):
                assert found[name] == value
            else:
                np.testing.assert_allclose(found[name], value, rtol=1e-12)
