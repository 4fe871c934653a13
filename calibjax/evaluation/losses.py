"""Proper scores, and what temperature scaling would win."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import recalibration, scores
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.evaluation.data import Data, Part, measured
from calibjax.evaluation.record import Section
from calibjax.evaluation.sentences import IDLE
from calibjax.recalibration.base import tempered
from calibjax.recalibration.local import Gain

_ROUNDING = 8  # in units of the last place
_TITLE = "What recalibration would gain"


class _Score(NamedTuple):
    """A score, the tasks that have it, and what it needs of the predictions."""

    function: Callable[..., jax.Array]
    tasks: tuple[str, ...]
    needed: str
    unit: str = ""


_CLASSES, _NUMBERS = ("classification", "binary"), ("regression", "counts", "multivariate")
_LIKELIHOOD = "negative log-likelihood"
_SCORES = {
    _LIKELIHOOD: _Score(scores.negative_log_likelihood, _CLASSES + _NUMBERS, "log_prob", "in nats"),
    "Brier score": _Score(scores.brier_score, _CLASSES, "class_probs"),
    "CRPS": _Score(scores.crps, ("regression", "ensembles"), "crps", "in the unit of the targets"),
    "pinball loss": _Score(
        scores.pinball_loss, ("quantiles",), "values", "in the unit of the targets"
    ),
    "accuracy": _Score(scores.accuracy, _CLASSES, "class_probs"),
    "mean squared error": _Score(
        scores.mean_squared_error,
        (*_NUMBERS, "ensembles"),
        "mean",
        "in the squared unit of the targets",
    ),
}


def proper_scores(data: Data) -> Part:
    """The scores that exist for the task."""
    inner, entries, units = bare(data.predictions, MonteCarlo), [], []
    for name, score in _SCORES.items():
        has_thresholds = name != "CRPS" or jnp.ndim(data.targets) == 1
        if data.task in score.tasks and hasattr(inner, score.needed) and has_thresholds:
            call = f"scores.{score.function.__name__}(predictions, targets{data.and_weights})"
            compute = functools.partial(score.function, *data.samples, weights=data.weights)
            entries.append(measured(name, compute, call))
            units += [f" The {name} is {score.unit}."] * bool(score.unit)
    remark = f"Smaller is better{', except for the accuracy' * data.is_of_classes}. A proper score "
    remark += "mixes calibration with sharpness: a better score alone does not mean better "
    remark += "calibration." + "".join(units)
    number = 0
    if any(x.name == _LIKELIHOOD and x.value == np.inf for x in entries):
        number = int(data.known(_are_impossible(inner, data.targets)).sum())
    sections = (Section("Scores", tuple(entries), remark),) if entries else ()
    return Part(sections, {"num_impossible": number})


# Which targets have probability, or density, zero, [N].
_are_impossible = jax.jit(jax.vmap(lambda p, y: p.log_prob(y) == -jnp.inf))


def temperature(data: Data) -> Part:
    """The temperature that would repair the predictions, and what it wins on held-out data."""
    named_loss = _loss(data)
    inner = bare(data.predictions, MonteCarlo)
    if named_loss is None or not hasattr(inner, "tempered"):
        return Part()
    name, loss = named_loss
    samples, weights = (inner, data.targets), data.weights
    # Its name is shown only if it is not the default.
    option = "" if loss is scores.negative_log_likelihood else f"scores.{loss.__name__}"
    method, shown = recalibration.TemperatureScaling(loss), "predictions, targets"
    call = f"recalibration.TemperatureScaling({option})"
    if data.task == "ensembles":  # their CRPS is not twice differentiable
        compute = functools.partial(method.fit, *samples, weights=weights)
        value = measured("temperature", compute, f"{call}.fit({shown}{data.and_weights})")
    else:
        compute = functools.partial(
            recalibration.temperature_interval, *samples, loss=loss, weights=weights
        )
        more = f", loss={option}" * bool(option) + data.and_weights
        interval = f"recalibration.temperature_interval({shown}{more})"
        value = measured("temperature", compute, interval)
    if not np.isfinite(value.value):
        return Part((Section(_TITLE, (), f"The temperature {value.note or 'is not finite'}."),))
    if _is_idle(inner):
        return Part((Section(_TITLE, (), IDLE),), {"is_idle": True})

    def held_out() -> Gain:
        methods = {"temperature": method}
        gains = recalibration.recalibration_gain(
            data.at(2), methods, *samples, score=loss, weights=weights
        )
        return gains["temperature"]

    methods, more = f"{{'temperature': {call}}}", f", score={option}" * bool(option)
    call = f"recalibration.recalibration_gain(jax.random.fold_in(key, 2), {methods}, {shown}"
    call += f"{more}{data.and_weights})['temperature']"
    gain = measured(f"held-out gain in {name}", held_out, call)
    findings = {"temperature": value, "gain": gain, "gain_unit": name}
    remark = "All predictions p become q ∝ p^(1/T)"
    if data.task == "ensembles":
        remark = "The deviations of all members from their mean are multiplied by √T"
    remark += " with one temperature T, see recalibration.TemperatureScaling: above one they "
    remark += "become less certain. The gain is that of predictions that T was not fitted to "
    remark += "(five folds)."
    return Part((Section(_TITLE, (value, gain), remark),), findings)


@jax.jit
def _is_idle(predictions: Distribution) -> jax.Array:
    """Whether temperatures do not change the predictions, up to rounding."""
    hotter = jax.vmap(tempered, (0, None))(predictions, 2.0)
    before, after = (getattr(p, "class_probs", p) for p in (predictions, hotter))

    def is_close(x: jax.Array, y: jax.Array) -> jax.Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):  # indices, which stay as they are
            return jnp.array(True)
        return jnp.all(jnp.abs(x - y) <= _ROUNDING * jnp.finfo(x.dtype).eps * jnp.abs(x))

    return jnp.all(jnp.stack(jax.tree.leaves(jax.tree.map(is_close, before, after))))


def _loss(data: Data) -> tuple[str, Callable[..., Any]] | None:
    """Name and function of the loss that the temperature minimises, if there is one."""
    if data.task == "ensembles":
        is_scalar = jnp.ndim(data.targets) == 1
        is_floating = jnp.issubdtype(jnp.result_type(data.targets), jnp.floating)
        return ("CRPS", scores.crps) if is_scalar and is_floating else None
    if not hasattr(bare(data.predictions, MonteCarlo), "log_prob"):
        return None
    value = scores.negative_log_likelihood(data.predictions, data.targets, weights=data.weights)
    if np.isfinite(float(value)):
        return "log score, nats", scores.negative_log_likelihood
    return ("Brier score", scores.brier_score) if data.is_of_classes else None
