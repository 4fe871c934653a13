"""Which recalibration is enough: composite tests from the simplest on, and what each earns."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.environment import default_batch_size
from calibjax._core.gate import checked
from calibjax._core.pytree import Numbers, PyTree, record
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.composed import bare
from calibjax.evaluation.data import Data, Part, measured
from calibjax.evaluation.record import Entry, Section
from calibjax.hypothesis_tests.aggregated import (
    Hypothesis,
    as_tested,
    hypothesis_of,
    kernels_under,
    parts_and_losses,
    repaired_by,
)
from calibjax.hypothesis_tests.components import tolerance
from calibjax.hypothesis_tests.ensembles import checked_ensembles
from calibjax.hypothesis_tests.exact import checked_family
from calibjax.kernels import default_kernels
from calibjax.recalibration import (
    AffineScaling,
    BetaCalibration,
    KernelRecalibration,
    MatrixScaling,
    PlattScaling,
    QuantileRecalibration,
    TemperatureScaling,
)
from calibjax.recalibration.local import Gain, default_score, recalibration_gain

_TITLE = "What would repair it"
_REMARK = (
    "The p-value of calibration after each recalibration, from the simplest on, and by how much it "
    "improves the score of predictions that it was not fitted to (five folds). The first with a "
    "p-value above 0.05 is named; see select_recalibration."
)
_PLACE = 14  # of its random key among those of the evaluation
_NUM_DRAWS = 199  # within an evaluation


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
    not_fitted: tuple[tuple[str, str], ...] = dataclasses.field(
        default=(), metadata={"static": True}
    )

    @property
    def enough(self) -> str | None:
        """The first name whose p-value is above `significance_level`; None if there is none."""
        return next((name for name, p in self.pvalues.items() if p > self.significance_level), None)

    def __repr__(self) -> str:
        """A table, and which recalibration is enough in words."""
        lines, reasons = [f"{'repair':12}  p afterwards  gain in score"], dict(self.not_fitted)
        for name, p in self.pvalues.items():
            if name in reasons:
                lines.append(f"{name:12}  {'not fitted':>12}  {reasons[name]}")
                continue
            gain = self.gains.get(name)
            earned = "" if gain is None else f"{gain.mean:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]"
            lines.append(f"{name:12}  {p:12.3g}  {earned}".rstrip())
        return "\n".join([*lines, self.sentence])

    @property
    def sentence(self) -> str:
        """Which recalibration is enough, in words."""
        name = self.enough
        if name is None:
            return f"None of the recalibrations tried repairs it: {', '.join(self.gains)}."
        if name == "nothing":
            return f"No sign that it has to be repaired (p = {self.pvalues[name]:.2g})."
        gain = self.gains[name]
        sign, change = (1, "earns") if gain.mean >= 0 else (-1, "costs")
        low, high = sorted((sign * gain.low, sign * gain.high))
        text = (
            f"The recalibration {name!r} repairs it (p = {self.pvalues[name]:.2g} afterwards) and "
            f"{change} {sign * gain.mean:.2g} (95 % interval {low:.2g} to {high:.2g}) in held-out "
            "score"
        )
        later = list(self.gains)[list(self.gains).index(name) + 1 :]
        is_best = sign > 0 and all(self.gains[x].mean <= gain.mean for x in later)
        return f"{text}{'; nothing more complicated earns more' if later and is_best else ''}."


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

    Every recalibration is a composite null hypothesis, "calibrated up to T", and earns what
    `recalibration_gain` says. Its p-value is that of the smallest rank, among redraws to which all
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
    if recalibrations is None:
        recalibrations = _default(bare(predictions))
    _check_names(recalibrations)
    first, *others = jax.random.split(key, len(recalibrations) + 2)
    samples = predictions, targets, weights
    gains, fitted, reasons = _fits(first, recalibrations, *samples)
    methods = {"nothing": _Nothing(), **recalibrations}
    fitted = {"nothing": bare(predictions), **fitted}
    hypotheses, score = _hypotheses(methods, fitted, *samples), default_score(*fitted.values())
    pvalues, later = _pvalues(dict(zip(methods, others, strict=True)), score, hypotheses, num_draws)
    reasons |= later
    if len(reasons) == len(recalibrations):
        got = "; ".join(f"{name!r}: {reason}" for name, reason in reasons.items())
        raise ValueError(f"recalibrations: expected at least one that can be fitted, got {got}")
    nan = jnp.full((), jnp.nan)
    missing = Gain(nan, nan, nan, nan)
    return Repairs(
        {name: pvalues.get(name, nan) for name in methods},
        {name: missing if name in reasons else gains[name] for name in recalibrations},
        significance_level,
        tuple(reasons.items()),
    )


def _check_names(recalibrations: Any) -> None:
    if not isinstance(recalibrations, Mapping) or not recalibrations or "nothing" in recalibrations:
        expected = "a dictionary of at least one by its name, none of them named 'nothing'"
        raise TypeError(f"recalibrations: expected {expected}, got {recalibrations!r}")
    checks.no_plain_objects("recalibrations", dict(recalibrations))


def _fits(
    key: jax.Array, recalibrations: Mapping[str, Any], *samples: Any
) -> tuple[dict[str, Gain], dict[str, Any], dict[str, str]]:
    """The gain of each, the predictions that it repairs, and why others cannot be fitted."""
    predictions, targets, weights = samples
    num_folds = min(5, checks.leading_size("targets", targets))
    gains, fitted, reasons = {}, {}, {}
    for name, method in recalibrations.items():
        try:
            gains |= recalibration_gain(
                key, {name: method}, predictions, targets, weights=weights, num_folds=num_folds
            )
            fitted[name] = repaired_by(method, *samples)
        except ValueError as error:  # of classes that are apart, say, also outside of one fold only
            reasons[name] = str(error)
    return gains, fitted, reasons


def _hypotheses(
    methods: Mapping[str, Any], fitted: Mapping[str, Any], *samples: Any
) -> dict[str, tuple[Hypothesis, PyTree]]:
    """The hypothesis that each recalibration is enough, and what is redrawn under it."""
    predictions, targets, weights = samples
    is_ensemble = isinstance(bare(predictions), Ensemble)
    defaults = None if is_ensemble else default_kernels(predictions)

    def hypothesis(name: str, repaired: Distribution) -> tuple[Hypothesis, PyTree]:
        if is_ensemble and not isinstance(repaired, Ensemble):
            got = f"{checks.described(repaired)} from {name!r}"
            raise NotImplementedError(f"recalibrations: expected repaired ensembles, got {got}")
        original, repaired, drawn = as_tested(predictions, repaired, targets)
        kernels = kernels_under(repaired, defaults or default_kernels(original))
        family = checked_family(kernels, original, targets)
        return hypothesis_of(methods[name], family, original, repaired, targets, weights), drawn

    return {name: hypothesis(name, repaired) for name, repaired in fitted.items()}


def _pvalues(
    keys: Mapping[str, jax.Array],
    score: Callable[..., jax.Array],
    hypotheses: Mapping[str, tuple[Hypothesis, PyTree]],
    num_draws: int,
) -> tuple[dict[str, jax.Array], dict[str, str]]:
    """Those of the hypotheses, from the simplest on, and why others have none."""
    pvalues, reasons, later = {}, {}, [one for one, _ in hypotheses.values()]
    for name, (one, drawn) in hypotheses.items():
        later = later[1:]
        try:
            pvalues[name] = _pvalue(keys[name], score, one, later, drawn, num_draws)
        except ValueError as error:  # it cannot be fitted to most redraws
            if name == "nothing":
                raise
            reasons[name] = str(error)
    return pvalues, reasons


def repairs(data: Data) -> Part:
    """The table of what would repair the model."""
    samples = data.known((data.predictions, data.targets))
    weights = jnp.asarray(data.known(data.weights)) if data.has_weights else None
    call = f"select_recalibration(jax.random.fold_in(key, {_PLACE}), predictions, targets"
    call += f"{data.and_weights}, num_draws={_NUM_DRAWS})"
    try:
        selection = select_recalibration(
            data.at(_PLACE), *samples, weights=weights, num_draws=_NUM_DRAWS
        )
    except (ValueError, NotImplementedError) as error:
        return Part((Section(_TITLE, (), f"select_recalibration does not apply: {error}."),))
    entries = []
    for name in selection.pvalues:
        if reason := dict(selection.not_fitted).get(name):
            entries.append(Entry(f"p-value after {name}", math.nan, note=reason))
            continue
        after = f"p-value after {name}" if name in selection.gains else "p-value without a repair"
        pvalue = float(selection.pvalues[name])
        entries.append(Entry(after, pvalue, call=f"{call}.pvalues[{name!r}]"))
        if name in selection.gains:
            gain = functools.partial(selection.gains.__getitem__, name)
            entries.append(measured(f"held-out gain by {name}", gain, f"{call}.gains[{name!r}]"))
    text = "" if selection.enough == "nothing" else selection.sentence
    remarks = (text,) if text else ()
    return Part((Section(_TITLE, tuple(entries), _REMARK),), remarks=remarks)


def _pvalue(
    key: jax.Array,
    score: Any,
    one: Hypothesis,
    others: list[Hypothesis],
    targets: PyTree,
    num_draws: int,
) -> jax.Array:
    """p-value of a hypothesis, which others may turn out to be better than.

    There is one program for each recalibration, under all hypotheses.
    """
    draws = _draws(one.redrawn, jax.random.split(key, num_draws), one.repaired, targets)

    def evaluated(by: Hypothesis) -> tuple[Any, jax.Array]:
        size = default_batch_size(by.plan.num_bytes)
        return parts_and_losses(score, by, draws, by is one, batch_size=size)

    parts, losses = evaluated(one)
    test = one.result(parts)
    ratios = [losses - evaluated(other)[1] for other in others]
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
def _draws(
    redrawn: Callable[..., PyTree], keys: jax.Array, repaired: Distribution, targets: PyTree
) -> PyTree:
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
    if isinstance(predictions, Ensemble):
        return {"affine": AffineScaling()}
    methods: dict[str, Any] = {"temperature": TemperatureScaling()}
    if has_class_probs(predictions):
        is_binary = hasattr(predictions, "__jax_array__")
        more = {"affine": PlattScaling(), "beta": BetaCalibration()}
        methods |= more if is_binary else {"vector": MatrixScaling(structure="diagonal")}
    else:
        methods["affine"] = AffineScaling()
        if not getattr(predictions.support, "axes", ()):
            methods["beta"] = QuantileRecalibration()
        methods["kernel"] = KernelRecalibration()
    methods = {name: method for name, method in methods.items() if _applies(method, predictions)}
    if not methods:
        got = f"None, and no default for {checks.described(predictions)}"
        raise NotImplementedError(f"recalibrations: expected a dictionary, got {got}")
    return methods


def _applies(method: Any, predictions: Distribution) -> bool:
    """Whether a family of distributions has a recalibration."""
    try:
        jax.eval_shape(lambda p: method.apply(method.identity(p), p), predictions)
    except (NotImplementedError, TypeError):
        return False
    return True
