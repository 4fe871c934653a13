import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special
from sklearn.linear_model import LogisticRegression

from calibjax.recalibration import PlattScaling
from calibjax.recalibration.confidences import MMCEScaling

METHOD = PlattScaling()

FIT, APPLY = METHOD.fit, METHOD.apply
SMOOTH = PlattScaling(smooth_targets=True)
N = 60


def random_data(rng, size, dtype=np.float64):
    """Confidences, some of them tied, that say more or less, and correctness that fits or not."""
    confidences = rng.beta(3, 1.5, (size, N))
    confidences[::2] = confidences[::2].round(2).clip(0.01, 0.99)
    accuracies = np.where(confidences > 0.7, confidences - 0.3, confidences ** rng.uniform(0.5, 2))
    return confidences.astype(dtype), (rng.uniform(size=(size, N)) < accuracies).astype(int)


DATA = random_data(np.random.default_rng(0), 30)


def as_array(params):
    return np.stack([params.slope, params.intercept], -1)


@pytest.fixture(scope="module")
def compiled_fit():
    with jax.enable_x64(True):
        return jax.jit(jax.vmap(FIT))


def test_platt_scaling_against_scikit_learn(compiled_fit):
    params = compiled_fit(*DATA)
    for i, (confidences, correct) in enumerate(zip(*DATA)):
        model = LogisticRegression(C=np.inf, tol=1e-12, solver="newton-cholesky")
        model.fit(special.logit(confidences)[:, None], correct)
        expected = model.coef_[0, 0], model.intercept_[0]
        np.testing.assert_allclose(as_array(params)[i], expected, rtol=1e-9, atol=1e-9)
    confidences, correct = DATA[0][3], DATA[1][3]
    single = FIT(confidences.astype(np.float32), correct)
    assert single.slope.dtype == single.intercept.dtype == np.float32
    np.testing.assert_allclose(as_array(single), as_array(params)[3], rtol=2e-5)
    images = APPLY(single, np.float32([0.0, 0.3, 1.0]))
    assert images.dtype == np.float32
    eps = np.finfo(np.float32).eps
    odds = special.logit([eps, 0.3, 1 - eps])
    np.testing.assert_allclose(images, special.expit(as_array(single) @ [odds, [1] * 3]), rtol=2e-5)


def test_smooth_targets():
    """The slope of the strictly concave likelihood of Platt's targets is zero."""
    confidences, correct = DATA[0].copy(), DATA[1].copy()
    correct[0], correct[1] = 1, 0
    correct[2] = confidences[2] > 0.5
    params = as_array(jax.jit(jax.vmap(SMOOTH.fit))(confidences, correct))
    ones = correct.sum(1, keepdims=True)
    targets = np.where(correct, (ones + 1) / (ones + 2), 1 / (N - ones + 2))
    odds = special.logit(confidences)
    residuals = special.expit(params[:, :1] * odds + params[:, 1:]) - targets
    np.testing.assert_allclose([residuals.sum(1), (residuals * odds).sum(1)], 0, atol=1e-11)


def test_nearly_separated():
    """The likelihood has a maximum, but far away and flat."""
    confidences = np.linspace(0.1, 0.9, N)
    correct = confidences > 0.6
    correct[[20, 55]] = True, False
    wide = np.concatenate([[1e-9, 1 - 1e-9], confidences[2:]])
    for data in (confidences, wide):
        slope, intercept = as_array(FIT(data, correct))
        odds = special.logit(data)
        residuals = special.expit(slope * odds + intercept) - correct
        np.testing.assert_allclose([residuals.sum(), (residuals * odds).sum()], 0, atol=1e-9)


@pytest.mark.slow
def test_gradient_of_the_fit(compiled_fit):
    confidences, correct = DATA[0][0], DATA[1][0]
    new = np.array([0.0, 0.2, 0.9, 1.0])
    direction = np.random.default_rng(1).normal(size=N) * confidences * (1 - confidences)

    @jax.jit
    def images(confidences, new):
        return APPLY(FIT(confidences, correct), new)

    jacobian, slopes = jax.jit(jax.jacrev(images, (0, 1)))(confidences, new)
    numeric = images(confidences + 1e-6 * direction, new)
    numeric -= images(confidences - 1e-6 * direction, new)
    np.testing.assert_allclose(jacobian @ direction, numeric / 2e-6, rtol=1e-6, atol=1e-9)
    numeric = (images(confidences, new + 1e-6) - images(confidences, new - 1e-6))[1:3] / 2e-6
    np.testing.assert_allclose(np.diag(slopes)[1:3], numeric, rtol=1e-7)
    assert np.all(np.isfinite(jacobian))
    assert np.diag(slopes)[[0, 3]].tolist() == [0, 0]


HALVES = np.repeat([0.3, 0.6], 2)
ONES, ZEROS = [1, 1, 1, 1], [0, 0, 0, 0]


def test_without_a_maximum(compiled_fit):
    """Of one outcome, of thresholds, of confidences that are the same; compiled maps are NaN."""
    correct = np.array([ONES, ZEROS, [0, 0, 1, 1], [0, 0, 0, 1], [1, 1, 0, 0], [1, 0, 0, 1]])
    confidences = np.stack([*[HALVES] * 5, HALVES**0, HALVES, HALVES])
    for r, c in zip(confidences, correct, strict=False):
        with pytest.raises(ValueError, match="confidences: expected different values, correct and"):
            FIT(r, c)
    correct = np.append(correct, [[0, 1, 2, 1], [0, 1, 0, 1]], 0)
    params = compiled_fit(confidences, correct)
    assert np.isnan(as_array(params)).all(1).tolist() == [True] * 7 + [False]


def mmce_loss(parameters, kernel, weight, confidences, correct):
    """Log-loss plus weighted squared MMCE in NumPy; parameters are log a and b."""
    z = np.exp(parameters[0]) * special.logit(confidences) + parameters[1]
    r = special.expit(z)
    matrix = kernel(r[:, None], r) * np.outer(correct - r, correct - r)
    return np.mean(np.logaddexp(0, z) - correct * z) + weight * matrix.mean()


def smallest_loss(*arguments):
    options = {"xatol": 1e-9, "fatol": 1e-14}
    best = optimize.minimize(mmce_loss, np.zeros(2), arguments, "Nelder-Mead", options=options)
    return np.exp(best.x[0]), best.x[1]


@pytest.mark.slow
def test_mmce_scaling_against_scipy():
    """The loss has no minimum where a threshold separates, and its order is never reversed."""
    method = MMCEScaling()
    confidences, correct = DATA[0][:12].copy(), DATA[1][:12].copy()
    confidences[8:] = np.repeat([0.3, 0.6], N // 2)
    correct[8:] = np.repeat([[0, 1], [1, 1], [1, 0], [0, 1]], N // 2, 1)
    correct[11, ::2] = 2
    params = jax.jit(jax.vmap(method.fit))(confidences, correct)
    assert np.isnan(as_array(params)).all(1).tolist() == [False] * 8 + [True, True, False, True]
    for i in range(8):
        expected = smallest_loss(
            lambda r, s: np.exp(-abs(r - s) / 0.4), 10.0, confidences[i], correct[i]
        )
        np.testing.assert_allclose(as_array(params)[i], expected, rtol=1e-6, atol=1e-6)
    images = jax.vmap(method.apply)(params, jnp.sort(confidences, 1))
    assert np.all(jnp.diff(images[:8], axis=1) >= 0)
    np.testing.assert_allclose(images[10], 0.5, atol=1e-6)
