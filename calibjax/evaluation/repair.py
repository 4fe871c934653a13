"""Which recalibration is enough: composite tests from the simplest on, and what each earns."""

from collections.abc import Mapping
from typing import Any

import jax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import record
from calibjax.distributions import Samples
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.features import bare
from calibjax.hypothesis_tests import (
    aggregated_skce_test,
    composite_calibration_test,
    default_kernels,
)
from calibjax.hypothesis_tests.composite import kernels_under, repaired_by
from calibjax.kernels import Constant, Fisher, TensorProduct
from calibjax.recalibration import (
    AffineScaling,
    BetaScaling,
    KernelRecalibration,
    PlattScaling,
    QuantileRecalibration,
    TemperatureScaling,
    VectorScaling,
)
from calibjax.recalibration.gain import Gain, recalibration_gain


@record
class Repairs:
    """What would repair a model, from the simplest on.

    Attributes:
        pvalues: of calibration up to each recalibration, by name; "nothing" is calibration itself.
        gains: the cross-fitted improvement by each, without "nothing".
        level: of the tests.
    """

    pvalues: dict[str, jax.Array]
    gains: dict[str, Gain]
    level: float

    @property
    def enough(self) -> str | None:
        """The first name with a p-value above the level; None if there is none."""
        return next((name for name, p in self.pvalues.items() if p > self.level), None)

    def __repr__(self) -> str:
        """A table, and which recalibration is enough in words."""
        lines = [f"{'repair':12}  p afterwards  gain in score"]
        for name, p in self.pvalues.items():
            gain = self.gains.get(name)
            earned = "" if gain is None else f"{gain.mean:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]"
            lines.append(f"{name:12}  {p:12.3g}  {earned}".rstrip())
        return "\n".join([*lines, self.sentence])

    @property
    def sentence(self) -> str:
        """Which recalibration is enough, in words."""
        name = self.enough
        if name is None:
            return "None of these recalibrations repairs it."
        if name == "nothing":
            return f"No sign that it has to be repaired (p = {self.pvalues[name]:.2g})."
        gain = self.gains[name]
        change = "earns" if gain.mean >= 0 else "costs"
        return (
            f"The recalibration {name!r} repairs it (p = {self.pvalues[name]:.2g} afterwards) and "
            f"{change} {abs(gain.mean):.2g} [{gain.low:.2g}, {gain.high:.2g}] in score."
        )


def what_would_repair(
    key: jax.Array,
    predictions: Distribution,
    targets: ArrayLike,
    recalibrations: Mapping[str, Any] | None = None,
    *,
    num_draws: int = 199,
    level: float = 0.05,
) -> Repairs:
    """Which recalibration is enough for a model: the simplest up to which it is calibrated.

    Every recalibration is a composite null hypothesis, "calibrated up to T", with the p-value of
    `hypothesis_tests.composite_calibration_test`, with kernels that also see the scores of beta
    maps and `VectorScaling` where these come later, and earns what `recalibration_gain` says.
    The first recalibration that is not rejected is named. If each contains those before it, one
    more complicated than necessary is named with probability at most the level, however many there
    are: the simplest true hypothesis would have to be rejected. The default ones are not all nested
    (a beta map of levels does not contain an affine one). Where there are too few data, a simpler
    one is named.

    Args:
        key: a JAX random key.
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        recalibrations: by name, from the simplest on; by default

            | predictions | recalibrations |
            | --- | --- |
            | two classes as `Bernoulli` | temperature, `PlattScaling`, `BetaScaling` |
            | classes | temperature, `VectorScaling` |
            | numbers | temperature if possible, affine, beta (quantiles), kernel |
            | normal vectors | temperature, affine, kernel |
        num_draws: of each test.
        level: of each test.

    Returns:
        The p-values and the gains; `enough` is the name, and printing it gives a table.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: for ensembles.

    Cost: that of a composite test for each recalibration.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, recalibration
    >>> key, logits = jax.random.key(0), jnp.linspace(-3, 3, 300)
    >>> predictions = distributions.Bernoulli(jax.nn.sigmoid(logits))
    >>> truth = distributions.Bernoulli(jax.nn.sigmoid(logits / 2))
    >>> targets = distributions.sample_targets(key, truth)
    >>> methods = {"temperature": recalibration.TemperatureScaling()}
    >>> print(what_would_repair(key, predictions, targets, methods).enough)
    temperature
    """
    predictions, targets = checks.predictions_and_targets(predictions, targets, minimum=2)
    if recalibrations is None:
        recalibrations = _default(bare(predictions))
    if not isinstance(recalibrations, Mapping) or not recalibrations or "nothing" in recalibrations:
        raise TypeError(
            "recalibrations: expected a dictionary of at least one, none of them named 'nothing', "
            f"got {recalibrations!r}"
        )
    level = float(checks.proportion("level", level))
    keys = jax.random.split(checks.random_key(key), len(recalibrations) + 2)
    pvalues = {}
    for i, (name, method) in enumerate({"nothing": None, **recalibrations}.items()):
        seen = _towards(predictions, dict(list(recalibrations.items())[i:]))
        data: Any = predictions, targets
        test: Any = aggregated_skce_test
        if method is not None:
            seen = kernels_under(repaired_by(method, *data), seen)
            test, data = composite_calibration_test, (method, *data)
        pvalues[name] = test(keys[i + 1], *data, kernels=seen, num_draws=num_draws).pvalue
    gains = recalibration_gain(keys[0], recalibrations, predictions, targets)
    return Repairs(pvalues, gains, level)


def _towards(predictions: Any, others: Mapping[str, Any]) -> dict[str, Any]:
    """The default kernels, and the scores of more complicated recalibrations, which are sharper."""
    scores = {
        f"towards {name}": {"score": TensorProduct(Constant(), Fisher(method))}
        for name, method in others.items()
        if isinstance(method, BetaScaling | QuantileRecalibration | VectorScaling)
    }
    return default_kernels(predictions) | scores


def _default(predictions: Any) -> dict[str, Any]:
    """Recalibrations of which each contains the ones before it, or nearly."""
    if isinstance(predictions, Samples):
        raise NotImplementedError("predictions: expected distributions, got Samples")
    found: dict[str, Any] = {}
    if hasattr(predictions, "tempered"):
        found["temperature"] = TemperatureScaling()
    if has_class_probs(predictions):
        is_binary = hasattr(predictions, "__jax_array__")
        more = {"affine": PlattScaling(), "beta": BetaScaling()}
        return found | (more if is_binary else {"vector": VectorScaling()})
    found["affine"] = AffineScaling()
    if not getattr(predictions.support, "axes", ()):
        found["beta"] = QuantileRecalibration()
    return found | {"kernel": KernelRecalibration()}
