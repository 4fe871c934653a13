"""calibjax: calibration of probabilistic predictions.

Notation of the papers and names in the code:

| symbol | papers | code |
| --- | --- | --- |
| P_X, g(X) | W21, W19 | `predictions`, a batched record of `calibjax.distributions` |
| Y | all | `targets` |
| k | W19, W21 | `kernel`, usually `kernels.TensorProduct(prediction, target)` |
| k_𝒫, k_𝒴 | W21 | `kernel.prediction`, `kernel.target` |
| W₂, TV | W19, W21 | `distances.Wasserstein()`, `distances.TotalVariation()` |
| MW_s | W21 | `distances.MixtureWasserstein(order=s)` |
| γ in exp(−γ d²) | W21 | `length_scale` ℓ of `kernels.SquaredExponential`: γ = 1/(2ℓ²) |
| γ in exp(−γ d) | W21 | `length_scale` ℓ of `kernels.Exponential`: γ = 1/ℓ |
| ν in exp(−d/ν) | W19 | the same: ν = ℓ |
| E k(Z, z) | W21 | `kernels.expectations.single_expectation` |
| E k(Z, Z') | W21 | `kernels.expectations.double_expectation` |
| h | W19, W21 | `estimators.calibration_kernel` |
| SKCE_b | W19 | `estimators.skce_biased` |
| SKCE_uq, here SKCE_u | W19 | `estimators.skce` |
| SKCE_ul | W19 | `estimators.skce_block(block_size=2)` |
| SKCE_{k,B} | W21 | `estimators.skce_block(block_size=B)` |
| UCME² | W21 | `estimators.ucme` |
| A_uq, A_l | W19 | `hypothesis_tests.asymptotic_skce_test`, `(…, null="blocks", block_size=2)` |
| D_b, D_uq, D_ul (or D_l) | W19 | `hypothesis_tests.distribution_free_skce_test(estimator=...)` |
| C | W19 | `hypothesis_tests.consistency_test` with `estimators.ece` |
| CME | W21 | `hypothesis_tests.cme_test` |
| ECE, MCE | W19, L21 | `estimators.ece`, `estimators.mce` with `UniformBins` and other binnings |
| MMCE | W19, L21 | `estimators.kernel.mmce` on the results of `estimators.top_label` |
| φ(x) | L21 | `features` |
| p̂(x), max_c g_c(X) | L21, W19 | `confidences` |
| 1(f(x) = y), 1(Y = argmax) | L21, W19 | `correct` |
| γ in exp(−‖φ − φ'‖₁ / (dγ)) | L21 | `length_scale` of the local methods |
| LCE, MLCE, SLCE | L21 | `estimators.lce`, `mlce`, `local_errors(...).error` |
| LoRe | L21 | `recalibration.LocalRecalibration` |
| PRR | L21 | `scores.decomposition.prediction_rejection_ratio` |
| L_τ, averaged over levels τ | W21 | `scores.pinball_loss` |
| T in p^{1/T} | W21 | params of `recalibration.TemperatureScaling` |
| h, h_bin, h_kde, h_kkr, h_ukkr, h_sim | G24 | `risk.EstimationFunction`s: `Binning`, ... |
| R_CE(h) | G24 | `risk.estimation_risk` |
"""

from calibjax import (
    _start,  # noqa: F401 - before JAX is imported
    distances,
    distributions,
    estimators,
    hypothesis_tests,
    interoperability,
    kernels,
    operators,
    plotting,
    recalibration,
    risk,
    scores,
    streaming,
)
from calibjax._core.gate import checked
from calibjax._core.pytree import record
from calibjax.evaluation.assembly import evaluate
from calibjax.evaluation.comparing import compare
from calibjax.evaluation.selection import select_recalibration

__version__ = "0.1.0"

__all__ = ["checked", "compare", "evaluate", "record", "select_recalibration"]

_SUBPACKAGES = (
    distances,
    distributions,
    estimators,
    hypothesis_tests,
    interoperability,
    kernels,
    operators,
    plotting,
    recalibration,
    risk,
    scores,
    streaming,
)


def __dir__() -> list[str]:
    return [*__all__, *(package.__name__.rpartition(".")[2] for package in _SUBPACKAGES)]
