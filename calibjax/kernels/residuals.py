"""Target kernels that are inner products of residuals, which have mean zero under calibration."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jax.typing import ArrayLike

from calibjax._core import checks, matrices
from calibjax._core.arithmetic import einsum, floating_dtype, one_hot
from calibjax._core.pytree import PyTree, parameter, record
from calibjax.distributions import Bernoulli, CategoricalLogits, Normal
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.constraints import positive
from calibjax.distributions.features import bare
from calibjax.kernels.base import Conditional, Kernel
from calibjax.kernels.normal_scores import NormalScore, standard_normal

_LEAST = 1e6  # of probabilities that scores see, in units of the smallest normal number
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(8)  # exact for polynomials of degree 15
SHAPES = "skewness", "peakedness"
_SKEWNESS = 1.3545308064813153, 0.7138394440448623  # a and b of `Shape`, by quadrature
_DRAWS = 128  # that the information is estimated with where there are neither classes nor quantiles


class Residual(Conditional):
    """A target kernel k((p, y), (q, z)) = ⟨r(p, y), r(q, z)⟩ with E_{Y~p} r(p, Y) = 0.

    Subclasses are records with a method `residual(p, y)`, an array [r] for one prediction and one
    target. Expectations vanish, and r is a feature: exact tests evaluate redraws by matrix
    products.
    """

    def residual(self, p: Distribution, y: ArrayLike) -> jax.Array:
        """Residual of one target, [r]."""
        raise NotImplementedError(f"{type(self).__name__} does not define residual(p, y)")

    def expected_norm(self, p: Distribution) -> jax.Array:
        """E ‖r(p, Y)‖², which `estimators.skce_dispersion` and composite tests need."""
        raise NotImplementedError(f"{type(self).__name__} does not define expected_norm(p)")

    def check_predictions(self, predictions: Distribution) -> None:
        """Refuses predictions that the residual is not defined for."""


@record
class PearsonResidual(Residual):
    """Kernel of the Pearson residuals of classes.

        k((p, y), (q, z)) = Σ_c r_c(p, y) r_c(q, z),   r(p, y) = (e_y − p) / √(p + offset).

    In `White`, ⟨e_y − p, e_z − q⟩, classes that are predicted with a small probability hardly
    count. Divided by their standard deviation they count like the others, so that labels that
    came although they were predicted to be unlikely are found: label noise, and overconfident
    models of many classes.

    Attributes:
        offset: bound of the weights of unlikely classes, positive. In units of a probability.

    Cost: O(m) for a pair of samples.

    References: none of the four papers has it; Pearson (1900) for the residuals.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, kernels
    >>> from calibjax.estimators import calibration_kernel
    >>> p = distributions.Categorical(jnp.array([0.9, 0.09, 0.01]))
    >>> for target_kernel in (kernels.White(), kernels.PearsonResidual()):
    ...     kernel = kernels.TensorProduct(kernels.Constant(), target_kernel)
    ...     print([f"{calibration_kernel(kernel, p, y, p, y):.2f}" for y in range(3)])
    ['0.02', '1.64', '1.80']
    ['0.10', '9.18', '49.98']
    """

    offset: jax.Array | float = parameter(positive, default=0.01)

    def residual(self, p: Any, y: ArrayLike) -> jax.Array:
        """(e_y − p) / √(p + offset), [m]."""
        probs = p.class_probs
        residual = one_hot(jnp.asarray(y), probs.shape[-1], probs.dtype) - probs
        return residual * self.label_scales(probs)

    def label_scales(self, probs: jax.Array) -> jax.Array:
        """Factors of the entries of e_y − p, [..., m]."""
        return 1 / jnp.sqrt(probs + jnp.asarray(self.offset, probs.dtype))

    def expected_norm(self, p: Any) -> jax.Array:
        """E ‖r(p, Y)‖² = Σ_c p_c (1 − p_c) / (p_c + offset)."""
        probs = p.class_probs
        return jnp.sum(probs * (1 - probs) / (probs + jnp.asarray(self.offset, probs.dtype)))

    def check_predictions(self, predictions: Distribution) -> None:
        """Refuses predictions that are not of classes."""
        if not has_class_probs(predictions):
            raise NotImplementedError(
                f"no Pearson residuals under {type(predictions).__name__} predictions; expected "
                "predictions of classes"
            )


@record
class Fisher(Residual):
    """Fisher kernel of a recalibration: the product of its scores.

        k((p, y), (q, z)) = s(p, y)ᵀ I⁻¹ s(q, z),   s(p, y) = ∂_θ log (T_θ p)(y)  at  θ = θ₀,

    where T_θ is the recalibration with parameters θ, and θ₀ those that change nothing. With
    `Constant` as the kernel on predictions, n times the biased SKCE is Rao's statistic
    Sᵀ (n I)⁻¹ S with S = Σ_i s(p_i, y_i): `exact_skce_test` is then the score test of θ = θ₀, the
    locally most powerful one against models that T_θ repairs, ranked among exact redraws. Another
    kernel on predictions looks for errors of this kind that change with the prediction.

    `Fisher(TemperatureScaling())` asks whether classes, or any predictions with a density, are
    overconfident or underconfident; `Fisher(PlattScaling())` of `Bernoulli` predictions for the
    intercept and the slope of their log-odds; `Fisher(AffineScaling())` for the shift and the scale
    of numbers and normal vectors, `NormalScore(Fisher(AffineScaling()))` for those of their scores.

    Attributes:
        recalibration: a record with `apply(params, predictions)`, whose result has `log_prob` (or
            consists of confidences), and `identity(predictions)`, the params that change nothing.
        only: name of one of several params, such as "slope"; None for all.
        information: I, [k, k]; None, as a rule: estimators and tests fill in the mean information
            E s sᵀ of their predictions. Without it the kernel is ⟨s, s⟩. It is exact for classes;
            for scalars with quantiles by 8 nodes of a Gauss-Hermite rule, otherwise from 128 fixed
            draws each. It scales a single score only, which no test notices.

    Cost: forward derivatives of the recalibration for each prediction, by k params.

    References: Rao (1948), Large sample tests of statistical hypotheses; Jaakkola and Haussler
    (1998), Exploiting generative models in discriminative classifiers. None of the four papers.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, kernels, recalibration
    >>> kernel = kernels.Fisher(recalibration.TemperatureScaling())
    >>> kernel = kernels.TensorProduct(kernels.Constant(), kernel)
    >>> logits = 2 * jax.random.normal(jax.random.key(0), (300, 5))
    >>> targets = jax.random.categorical(jax.random.key(1), logits / 1.3)  # overconfident
    >>> predictions = distributions.CategoricalLogits(logits)
    >>> test = hypothesis_tests.exact_skce_test(jax.random.key(2), kernel, predictions, targets)
    >>> print(f"{test.pvalue:.3f}")
    0.001
    """

    recalibration: Any
    only: str | None = dataclasses.field(default=None, metadata={"static": True})
    information: jax.Array | None = None

    def residual(self, p: Any, y: ArrayLike) -> jax.Array:
        """Score of one target, [k], standardised if the information is known."""
        score = self.score(p, y)
        if self.information is None:
            return score
        size = jnp.max(jnp.abs(self.information))
        least = 4 * len(score) * jnp.finfo(score.dtype).eps * jnp.where(size > 0, size, 1)
        information = jnp.asarray(self.information, score.dtype) + least * jnp.eye(len(score))
        root = matrices.cholesky(information.astype(score.dtype))
        return matrices.solve_lower(root, score)

    def score(self, p: Any, y: ArrayLike) -> jax.Array:
        """∂_θ log (T_θ p)(y) at the params that change nothing, [k]."""
        batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], _with_finite_logs(p))
        params, structure = jax.tree.flatten_with_path(
            jax.tree.map(
                lambda x: jnp.asarray(x, floating_dtype(batch)), self.recalibration.identity(batch)
            )
        )
        names = tuple(jax.tree_util.keystr(x, simple=True, separator=".") for x, _ in params)
        chosen = names if self.only is None else (checks.choice("only", self.only, names),)
        at = {name: value for name, (_, value) in zip(names, params, strict=True)}

        def log_prob(some: dict[str, jax.Array]) -> jax.Array:
            params = jax.tree.unflatten(structure, [(at | some)[name] for name in names])
            applied = self.recalibration.apply(params, batch)
            applied = applied if hasattr(applied, "log_prob") else Bernoulli(applied)
            return jax.tree.map(lambda leaf: leaf[0], applied).log_prob(y)

        slopes = jax.jacfwd(log_prob)({name: at[name] for name in chosen})
        return jnp.concatenate([slopes[name].reshape(-1) for name in chosen])

    def expected_norm(self, p: Any) -> jax.Array:
        """E ‖r(p, Y)‖², exact for classes; see `information`."""
        targets, weights = _representatives(p)
        residuals = jax.vmap(lambda y: self.residual(p, y))(targets)
        return jnp.sum(weights[:, None].astype(residuals.dtype) * jnp.square(residuals))

    def check_predictions(self, predictions: Distribution) -> None:
        """Refuses predictions that the recalibration cannot be applied to, or without density."""
        for name in ("identity", "apply"):
            if not callable(getattr(self.recalibration, name, None)):
                raise TypeError(
                    "kernel.target.recalibration: expected a record with methods identity and apply"
                    f", such as recalibration.TemperatureScaling(), got "
                    f"{checks.described(self.recalibration)}"
                )
        same = self.recalibration  # traced, so that it is not computed
        jax.eval_shape(lambda p: same.apply(same.identity(p), p), predictions)
        if not hasattr(predictions, "log_prob"):
            raise NotImplementedError(
                f"no scores under {type(predictions).__name__} predictions; expected predictions "
                "with a method log_prob"
            )

    def informed(self, predictions: Distribution) -> "Fisher":
        """The same with the mean information of a batch of predictions."""
        if self.information is not None:
            return self
        information = _information(self, predictions)
        return dataclasses.replace(self, information=information)


@record
class Shape(Residual):
    """Kernel of how far a shape is from that of normal scores: the product of one number each.

        k(s, t) = r(s) r(t),   skewness: r(s) = (s³ (1 + s²)^(−1/2) − a s) / b,
                               peakedness: r(s) = 3 P₄(2 Φ(s) − 1),

    with the distribution function Φ of the standard normal distribution and the Legendre polynomial
    P₄(x) = (35 x⁴ − 30 x² + 3) / 8. Both have mean zero and variance one under it. The first is the
    score of the skewness of sinh-arcsinh distributions, without its part along a shift:
    a = E s⁴ (1 + s²)^(−1/2) makes it uncorrelated with s. The second is the fourth component of
    Neyman's smooth test; it is negative for targets in two humps. As inner kernel of `NormalScore`,
    with `Constant` on predictions, they ask whether *all* predictions have the wrong shape, as
    `NormalScore(Fisher(AffineScaling()))` asks for shift and scale.

    Attributes:
        of: "skewness" or "peakedness".

    Cost: O(1) for a pair of scores.

    References: Jones and Pewsey (2009), Sinh-arcsinh distributions; Neyman (1937), "Smooth test"
    for goodness of fit. None of the four papers.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, kernels
    >>> from calibjax.kernels.residuals import Shape
    >>> kernel = kernels.NormalScore(Shape("skewness"))
    >>> kernel = kernels.TensorProduct(kernels.Constant(), kernel)
    >>> predictions = distributions.Normal(jnp.full(100, 4.0), jnp.full(100, 2.0))
    >>> targets = jax.random.gamma(jax.random.key(0), 4.0, (100,))  # the same mean and variance
    >>> test = hypothesis_tests.exact_skce_test(jax.random.key(1), kernel, predictions, targets)
    >>> print(f"{test.pvalue:.3f}")
    0.001
    """

    of: str = dataclasses.field(default="skewness", metadata={"static": True})

    def residual(self, p: Any, y: ArrayLike) -> jax.Array:
        """The number r of the standardised target, [1]."""
        score = (y - p.loc) / p.scale
        if checks.choice("of", self.of, SHAPES) == "skewness":
            along, size = _SKEWNESS
            square = jnp.square(score)
            return jnp.atleast_1d((score * (square / jnp.sqrt(1 + square)) - along * score) / size)
        square = jnp.square(2 * ndtr(score) - 1)
        return jnp.atleast_1d(3 * (35 * square**2 - 30 * square + 3) / 8)

    def expected_norm(self, p: Any) -> jax.Array:
        """1."""
        return jnp.ones_like(p.loc)

    def check_predictions(self, predictions: Distribution) -> None:
        """Refuses predictions that are not normal."""
        checks.choice("of", self.of, SHAPES)
        if not isinstance(predictions, Normal):
            raise NotImplementedError(
                f"no shape of {type(predictions).__name__} predictions; expected Normal ones, or "
                "the scores that NormalScore(Shape(...)) makes of numbers"
            )


def _with_finite_logs(p: Any) -> Any:
    """Class predictions without probabilities of zero, whose logarithms have no slope."""
    if not hasattr(p, "class_probs") or isinstance(p, CategoricalLogits):
        return p
    info = jnp.finfo(jnp.result_type(p.class_probs))
    least = _LEAST * float(info.tiny)
    if isinstance(p, Bernoulli):
        return Bernoulli(jnp.clip(p.probs, least, 1 - info.eps))
    return CategoricalLogits(jnp.log(jnp.maximum(p.class_probs, least)))


@jax.jit
def _information(kernel: Fisher, predictions: Distribution) -> jax.Array:
    def of_one(p: Any) -> jax.Array:
        targets, weights = _representatives(p)
        scores = jax.vmap(lambda y: kernel.score(p, y))(targets)
        return einsum("t,tk,tl->kl", weights.astype(scores.dtype), scores, scores)

    return jnp.mean(jax.vmap(of_one)(predictions), 0)


def _representatives(p: Any) -> tuple[jax.Array, jax.Array]:
    """Targets and weights with which expectations under a prediction are computed."""
    if hasattr(p, "class_probs"):
        probs = p.class_probs
        return jnp.arange(probs.shape[-1]), probs
    dtype = floating_dtype(p)
    is_integer = getattr(getattr(p, "support", None), "is_integer", False)
    if hasattr(p, "icdf") and not is_integer:
        levels = jax.scipy.special.ndtr(jnp.asarray(_NODES, dtype))
        return jax.vmap(p.icdf)(levels), jnp.asarray(_WEIGHTS / _WEIGHTS.sum(), dtype)
    draws = jax.vmap(p.sample)(jax.random.split(jax.random.key(0), _DRAWS))
    return draws, jnp.full(_DRAWS, 1 / _DRAWS, dtype)


def informed(kernel: Kernel, predictions: Distribution) -> PyTree:
    """A kernel whose Fisher kernels know the mean information of the predictions."""

    def of_part(part: Any) -> Any:
        if isinstance(part, Fisher):
            return part.informed(bare(predictions))
        if isinstance(part, NormalScore) and _has_scores(part.kernel):
            first = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], bare(predictions))
            standard = jax.tree.map(lambda leaf: leaf[None], standard_normal(first))
            return dataclasses.replace(part, kernel=informed(part.kernel, standard))
        return part

    if not _has_scores(kernel):
        return kernel
    return jax.tree.map(
        of_part, kernel, is_leaf=lambda part: isinstance(part, Fisher | NormalScore)
    )


def _has_scores(kernel: Kernel) -> bool:
    parts = jax.tree.leaves(kernel, is_leaf=lambda part: isinstance(part, Fisher))
    return any(isinstance(part, Fisher) for part in parts)
