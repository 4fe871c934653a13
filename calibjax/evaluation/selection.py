"""Which recalibration is enough: composite tests from the simplest on, and the gain by each."""

import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from calibjax import recalibration
from calibjax._core import checks
from calibjax._core.environment import default_batch_size
from calibjax._core.gate import checked
from calibjax._core.pytree import Numbers, PyTree, record
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.composed import bare
from calibjax.hypothesis_tests import aggregated
from calibjax.hypothesis_tests.aggregated import Hypothesis
from calibjax.hypothesis_tests.components import tolerance
from calibjax.hypothesis_tests.ensembles import checked_ensembles
from calibjax.hypothesis_tests.exact import checked_family
from calibjax.kernels import default_kernels
from calibjax.recalibration.local import Gain, default_score, recalibration_gain

_STATIC = {"static": True}


@record
class Repairs:
    """What would repair a model, from the simplest on.

    Attributes:
        pvalues: of calibration up to each recalibration, by name; "nothing" is calibration itself.
        gains: the cross-fitted improvement by each, without "nothing".
        significance_level: of the tests.
        not_fitted: names of the recalibrations that cannot be fitted to these data, whose p-values
            and gains are NaN, each with the reason.
    """

    pvalues: dict[str, jax.Array]
    gains: dict[str, Gain]
    significance_level: float
    not_fitted: tuple[tuple[str, str], ...] = dataclasses.field(default=(), metadata=_STATIC)

    @property
    def enough(self) -> str | None:
        """The first name whose p-value is above `significance_level`; None if there is none."""
        return next((name for name, p in self.pvalues.items() if p > self.significance_level), None)

    def __repr__(self) -> str:
        """A table, and which recalibration is enough in words."""
        gains = {x: f"{g.mean:+.4f} [{g.low:+.4f}, {g.high:+.4f}]" for x, g in self.gains.items()}
        cells = {x: (f"{p:.3g}", gains.get(x, "")) for x, p in self.pvalues.items()}
        cells |= {x: ("not fitted", reason) for x, reason in self.not_fitted}
        lines = [f"{name:12}  {p:>12}  {gain}".rstrip() for name, (p, gain) in cells.items()]
        return "\n".join([f"{'repair':12}  p afterwards  gain in score", *lines, self.sentence])

    @property
    def sentence(self) -> str:
        """Which recalibration is enough, in words."""
        name = self.enough
        if name is None:
            return f"None of the recalibrations tried repairs it: {', '.join(self.gains)}."
        if name == "nothing":
            return f"No sign that it has to be repaired (p = {self.pvalues[name]:.2g})."
        return f"The recalibration {name!r} repairs it (p = {self.pvalues[name]:.2g} afterwards)."


@checked(minimum=2)
def select_recalibration(
    key: jax.Array,
    predictions: Distribution,
    targets: Numbers,
    recalibrations: Mapping[str, Any] | None = None,
    *,
    weights: Numbers | None = None,
    num_draws: int = 999,
    significance_level: float = 0.05,
) -> Repairs:
    """Which recalibration is enough for a model: the simplest up to which it is calibrated.

    Every recalibration is a composite null hypothesis, "calibrated up to T", with the gain of
    `recalibration_gain`. Its p-value is that of the smallest rank, among redraws to which all
    are fitted again, of several statistics: that of `hypothesis_tests.composite_calibration_test`,
    which sees errors of every kind, and for each later recalibration the likelihood ratio,

        n⁻¹ Σ_i log q'_i(y_i) − log q_i(y_i),

    of the predictions q' that it repairs and of q that T does, each fitted to all samples; in place
    of −log q it is the score of `recalibration_gain`. It is close to the most powerful test that
    the later one is needed.
    The first recalibration that is not rejected is named. If each contains those before it, one
    more complicated than necessary is named with probability at most the level, however many there
    are: the simplest true hypothesis would have to be rejected. The default ones are not all nested
    (a beta map of levels does not contain an affine one). Where there are too few data, a simpler
    one is named. One that cannot be fitted to them, to all or to those outside of some fold, is
    never named, and the table says why.

    The guide to recalibration has the rates at which the right one is named for two classes.

    Args:
        key: a JAX random key.
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        recalibrations: by name, from the simplest on; by default

            | predictions | recalibrations |
            | --- | --- |
            | two classes as `Bernoulli` | temperature, `PlattScaling`, `BetaCalibration` |
            | classes | temperature, `MatrixScaling(structure="diagonal")` |
            | numbers | temperature if possible, affine, beta (quantiles), kernel |
            | normal vectors | temperature, affine, kernel |
            | ensembles | affine |
        weights: w ≥ 0 of the samples, [n], also of the fits.
        num_draws: of each test.
        significance_level: of each test.

    Returns:
        The p-values and the gains; `enough` is the name, and printing it gives a table.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or no recalibration can be fitted.
        NotImplementedError: for families without a default recalibration if none is given, and if
            a recalibration of ensembles returns something else.

    Cost: that of a composite test for each recalibration, and of the fits of all K to the redraws
    of each.

    References: none of the four papers has it; Stute, Manteiga and Quindimil (1993), Bootstrap
    based goodness-of-fit-tests, for refitting.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, recalibration
    >>> key, logits = jax.random.key(0), jnp.linspace(-3, 3, 300)
    >>> predictions = distributions.Bernoulli(jax.nn.sigmoid(logits))
    >>> truth = distributions.Bernoulli(jax.nn.sigmoid(logits / 2))
    >>> targets = distributions.sample_targets(key, truth)
    >>> methods = {"temperature": recalibration.TemperatureScaling()}
    >>> print(select_recalibration(key, predictions, targets, methods).enough)
    temperature
    """
    if isinstance(bare(predictions), Ensemble):
        predictions = checked_ensembles(predictions)
    recalibrations = _default(bare(predictions)) if recalibrations is None else recalibrations
    if not isinstance(recalibrations, Mapping) or not recalibrations or "nothing" in recalibrations:
        expected = "a dictionary of at least one by its name, none of them named 'nothing'"
        raise TypeError(f"recalibrations: expected {expected}, got {recalibrations!r}")
    checks.no_plain_objects("recalibrations", dict(recalibrations))
    methods = {"nothing": _Nothing(), **recalibrations}
    first, *others = jax.random.split(key, len(methods) + 1)
    gains, tested, reasons = _fits(first, methods, predictions, targets, weights)
    score = default_score(*(one.repaired for one, _ in tested.values()))
    nan = jnp.full((), jnp.nan)
    keys, pvalues = dict(zip(methods, others, strict=True)), dict.fromkeys(methods, nan)
    later = [one for one, _ in tested.values()]
    for name, (_, drawn) in tested.items():
        try:
            pvalues[name] = _pvalue(jax.random.split(keys[name], num_draws), score, later, drawn)
        except ValueError as error:  # it cannot be fitted to most redraws
            if name == "nothing":
                raise
            reasons[name] = str(error)
        later = later[1:]
    if len(reasons) == len(recalibrations):
        got = "; ".join(f"{name!r}: {reason}" for name, reason in reasons.items())
        raise ValueError(f"recalibrations: expected at least one that can be fitted, got {got}")
    missing = Gain(nan, nan, nan, nan)
    gains = {x: missing if x in reasons else gains[x] for x in recalibrations}
    return Repairs(pvalues, gains, significance_level, tuple(reasons.items()))


def _fits(
    key: jax.Array, methods: Mapping[str, Any], predictions: Any, targets: Any, weights: Any
) -> tuple[dict[str, Gain], dict[str, tuple[Hypothesis, PyTree]], dict[str, str]]:
    """The gain of each, the hypothesis that it is enough, and why others cannot be fitted.

    With each hypothesis comes what is redrawn under it.
    """
    gains, tested, reasons = {}, {}, {}
    folds = {"num_folds": min(5, checks.leading_size("targets", targets)), "weights": weights}
    for name, method in methods.items():
        try:
            if name != "nothing":
                gains |= recalibration_gain(key, {name: method}, predictions, targets, **folds)
            repaired = aggregated.repaired_by(method, predictions, targets, weights)
        except ValueError as error:  # of classes that are apart, say, also outside of one fold only
            reasons[name] = str(error)
            continue
        if isinstance(bare(predictions), Ensemble) and not isinstance(repaired, Ensemble):
            got = f"{checks.described(repaired)} from {name!r}"
            raise NotImplementedError(f"recalibrations: expected repaired ensembles, got {got}")
        original, repaired, drawn = aggregated.as_tested(predictions, repaired, targets)
        kernels = aggregated.kernels_under(repaired, default_kernels(original))
        family = checked_family(kernels, original, targets)
        data = family, original, repaired, targets, weights
        tested[name] = aggregated.hypothesis_of(method, *data), drawn
    return gains, tested, reasons


def _pvalue(keys: jax.Array, score: Any, hypotheses: list[Any], targets: PyTree) -> jax.Array:
    """p-value of the first hypothesis, which others may turn out to be better than.

    There is one program for each recalibration, under all hypotheses.
    """
    one = hypotheses[0]
    draws = _draws(one.redrawn, keys, one.repaired, targets)

    def evaluated(by: Hypothesis) -> tuple[Any, jax.Array]:
        size = default_batch_size(by.plan.num_bytes)
        return aggregated.parts_and_losses(score, by, draws, by is one, batch_size=size)

    (parts, losses), *others = map(evaluated, hypotheses)
    test, ratios = one.result(parts), [losses - better for _, better in others]
    return _smallest(jnp.stack([jnp.append(test.statistic, test.null_samples), *ratios], 1))


@record
class _Nothing:
    """The recalibration that leaves predictions as they are."""

    def fit(self, predictions: Distribution, targets: Any, weights: Any = None) -> tuple[()]:
        """Nothing."""
        return ()

    def apply(self, params: tuple[()], predictions: Distribution) -> Any:
        """The predictions."""
        return predictions


@functools.partial(jax.jit, static_argnums=0)
def _draws(redrawn: Any, keys: jax.Array, repaired: Distribution, targets: PyTree) -> PyTree:
    """The targets, and then the redraws of the composite test with these keys, [B + 1, n, ...]."""
    drawn = jax.vmap(redrawn, (0, None))(keys, repaired)
    return jnp.concatenate([targets[None].astype(drawn.dtype), drawn])


@jax.jit
def _smallest(pool: jax.Array) -> jax.Array:
    """p-value of the smallest rank among several statistics of a pool, [B + 1, k].

    It is NaN if the first statistic of the observed targets is, which are then invalid.
    """
    is_valid = ~jnp.isnan(pool[0, 0])
    pool = jnp.where(jnp.isnan(pool), jnp.inf, pool)
    rounding = tolerance(pool[0], pool[1:])
    ranks = jax.vmap(lambda one: jnp.sum(pool >= one - rounding, 0))(pool)
    smallest = jnp.min(ranks, 1)
    return jnp.where(is_valid, jnp.mean(smallest <= smallest[0]), jnp.nan)


def _default(predictions: Distribution) -> dict[str, Any]:
    """Recalibrations of which each contains the ones before it, or nearly."""
    affine = {"affine": recalibration.AffineScaling()}
    if isinstance(predictions, Ensemble):
        return affine
    if hasattr(predictions, "__jax_array__"):
        more = {"affine": recalibration.PlattScaling(), "beta": recalibration.BetaCalibration()}
    elif has_class_probs(predictions):
        more = {"vector": recalibration.MatrixScaling(structure="diagonal")}
    else:
        is_of_vectors = bool(getattr(predictions.support, "axes", ()))
        beta = {} if is_of_vectors else {"beta": recalibration.QuantileRecalibration()}
        more = affine | beta | {"kernel": recalibration.KernelRecalibration()}
    methods: dict[str, Any] = {}
    for name, method in {"temperature": recalibration.TemperatureScaling(), **more}.items():
        with contextlib.suppress(NotImplementedError, TypeError):  # of families that it is not for
            jax.eval_shape(lambda p, m=method: m.apply(m.identity(p), p), predictions)
            methods[name] = method
    if not methods:
        got = f"None, and no default for {checks.described(predictions)}"
        raise NotImplementedError(f"recalibrations: expected a dictionary, got {got}")
    return methods
