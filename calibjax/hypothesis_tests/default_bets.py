"""Default bets, and conversion of those that users hand over."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from calibjax._core import checks
from calibjax.distances import Distance, Euclidean, TotalVariation
from calibjax.distributions import Mixture, MvNormal
from calibjax.distributions.base import Distribution
from calibjax.distributions.features import bare
from calibjax.hypothesis_tests.bets import (
    AffineBet,
    Bet,
    KernelBet,
    LocalBet,
    LogitBet,
    Near,
    RefittedBet,
)
from calibjax.hypothesis_tests.outcomes import NUM_CELLS
from calibjax.kernels import (
    Constant,
    Exponential,
    NormalScore,
    SquaredExponential,
    TensorProduct,
    White,
)
from calibjax.kernels.base import Conditional
from calibjax.kernels.default_scales import distance_of_predictions
from calibjax.kernels.normal_scores import VECTORS
from calibjax.recalibration import (
    AffineScaling,
    KernelRecalibration,
    MatrixScaling,
    TemperatureScaling,
)

_LOCAL = 0.2  # length scale of regression, in mean distances: about a quarter of the median
_SCALES = 0.125, 0.5, 2.0  # of kernels on predictions, in mean distances
_SCORE_SCALES = 0.5, 2.0  # of kernels on normal scores
_CLASS_SCALES = 0.3, 1.0  # of kernels on predictions of classes, total variations


def _default_bets(predictions: Distribution) -> dict[str, Any]:
    """The bets of `e_process` for predictions of this family, by name.

    They do not depend on the values of the predictions, which come later: distances of predictions
    are in units of their mean in the past.
    """
    plain = bare(predictions)
    if hasattr(plain, "class_probs"):
        near = *(Exponential(x, TotalVariation()) for x in _CLASS_SCALES), Constant()
        matrices = _matrix(White(), plain)[None]
        return {
            "temperature": LogitBet(TemperatureScaling()),
            "bias": LogitBet(MatrixScaling(structure="bias")),
            "kernels": KernelBet(Near(near), matrices),
        }
    bets: dict[str, Any] = {
        "shift and scale": AffineBet(),
        "local shift and scale": _local(KernelRecalibration(prior=10.0), predictions),
    }
    if not isinstance(plain, VECTORS):
        near = *map(SquaredExponential, _SCALES), Constant()
        inner = [NormalScore(SquaredExponential(x)) for x in _SCORE_SCALES]
        matrices = jnp.stack([_matrix(kernel, plain) for kernel in inner])
        bets["kernels"] = KernelBet(Near(near, _distance(predictions)), matrices)
    return bets


def checked_bets(bets: object, predictions: Distribution) -> dict[str, Bet]:
    """Bets by name, as they are placed.

    Raises:
        TypeError: if one is none.
        ValueError: if there are none.
        NotImplementedError: if one cannot be placed against these predictions.
    """
    if bets is None:
        return _default_bets(predictions)
    if isinstance(bets, list | tuple):
        raise TypeError(f"bets: expected a dictionary of bets, got {checks.described(bets)}")
    if not isinstance(bets, Mapping):
        bets = {type(bets).__name__: bets}
    if not bets:
        raise ValueError("bets: expected at least one bet, got none")
    return {str(name): _as_bet(f"bets['{name}']", bet, predictions) for name, bet in bets.items()}


def _as_bet(place: str, bet: Any, predictions: Distribution) -> Bet:
    plain = bare(predictions)
    is_of_classes = hasattr(plain, "class_probs")
    if isinstance(bet, Bet):
        return bet
    if isinstance(bet, type):
        raise TypeError(f"{place}: expected a recalibration, got the class {bet.__name__}")
    if isinstance(bet, AffineScaling) and not is_of_classes:
        return AffineBet()
    elif isinstance(bet, KernelRecalibration) and not is_of_classes:
        return _local(bet, predictions)
    elif isinstance(bet, TemperatureScaling | MatrixScaling) and is_of_classes:
        is_full = getattr(bet, "structure", "") == "full"
        return RefittedBet(bet) if is_full else LogitBet(bet)
    elif isinstance(bet, TensorProduct):
        kernel: TensorProduct = checks.kernel_values(bet, place)
        target = kernel.target
        of_numbers = isinstance(target, NormalScore) and not isinstance(plain, VECTORS)
        if not isinstance(target, Conditional) if is_of_classes else of_numbers:
            return KernelBet(Near((kernel.prediction,)), _matrix(target, plain)[None])
        raise NotImplementedError(
            f"{place}.target: expected a kernels.NormalScore for predictions of numbers, or a "
            f"kernel on labels for those of classes, got {checks.described(target)} for "
            f"{checks.described(plain)}"
        )
    elif all(callable(getattr(bet, name, None)) for name in ("fit", "apply")):
        checks.method("predictions", plain, "log_prob")
        checks.function(f"{place}.fit", f"{place}.fit", bet.fit, "p", "y", keywords=("weights",))
        return RefittedBet(bet)
    raise TypeError(
        f"{place}: expected a recalibration of {checks.described(plain)}, such as "
        "recalibration.AffineScaling() of numbers or TemperatureScaling() of classes, or a "
        f"kernels.TensorProduct, got {checks.described(bet)}"
    )


def _distance(predictions: Distribution) -> Distance:
    """That of default kernels, where it does not depend on the predictions, which come later."""
    if isinstance(bare(predictions), MvNormal | Mixture):
        return Euclidean()
    return distance_of_predictions(predictions)


def _local(method: KernelRecalibration, predictions: Distribution) -> LocalBet:
    if method.kernel is not None:
        near = Near((checks.kernel_values(method.kernel),))
    else:
        near = Near((SquaredExponential(_LOCAL),), _distance(predictions))
    return LocalBet(near, method.prior)


def _matrix(kernel: Any, predictions: Any) -> jax.Array:
    """Matrix of a target kernel, of classes or of normal scores in the middle of the cells."""
    if isinstance(kernel, NormalScore):
        points = ndtri((jnp.arange(NUM_CELLS) + 0.5) / NUM_CELLS)
        kernel = kernel.kernel
    else:
        points = jnp.arange(predictions.class_probs.shape[-1])
    return jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))(points, points)
