"""calibjax: calibration of probabilistic predictions.

Notation of the papers and names in the code:

| paper | code |
| --- | --- |
| P_X, g(X) | `predictions`, a batched record of `calibjax.distributions` |
| Y | `targets` |
| k | `kernel`, usually `kernels.TensorProduct(prediction, target)` |
| k_𝒫, k_𝒴 | `kernel.prediction`, `kernel.target` |
| W₂, TV | `distances.Wasserstein()`, `distances.TotalVariation()` |
| MW_s | `distances.MixtureWasserstein(order=s)` |
| γ = 1/(2ℓ²), 1/ν | length scales ℓ, ν: `length_scale` |
| E k(Z, z), E k(Z, Z') | `single_expectation`, `double_expectation` in `kernels.expectations` |
| h | `estimators.calibration_kernel` |
| SKCE_b, SKCE_uq, SKCE_ul | `estimators.skce_biased`, `skce`, `skce_block(block_size=2)` |
| SKCE_{k,B} | `estimators.skce_block(block_size=B)` |
| UCME² | `estimators.ucme` |
| A_uq, A_l | `hypothesis_tests.asymptotic_skce_test`, `(…, null="blocks", block_size=2)` |
| D_b, D_uq, D_l | `hypothesis_tests.distribution_free_skce_test(estimator=...)` |
| C | `hypothesis_tests.consistency_test` with `estimators.ece` |
| CME | `hypothesis_tests.cme_test` |
| ECE, MCE | `estimators.ece`, `estimators.mce` with `UniformBins` and other binnings |
| MMCE | `estimators.kernel.mmce` on the results of `estimators.top_label` |
| φ(x), p̂(x), 1(f(x) = y) | `features`, `confidences`, `correct` |
| γ in exp(−‖φ − φ'‖₁ / (dγ)) | `length_scale` of the local methods |
| LCE, MLCE, SLCE | `estimators.lce`, `mlce`, `local_errors(...).error` |
| LoRe | `recalibration.LocalRecalibration` |
| PRR | `scores.decomposition.prediction_rejection_ratio` |
| L_τ, averaged over levels τ | `scores.pinball_loss` |
| T in p^{1/T} | params of `recalibration.TemperatureScaling` |
| max_c g_c(X), 1(Y = argmax) | `confidences`, `correct` |
| h, h_bin, h_kde, h_kkr, h_ukkr, h_sim | `risk.EstimationFunction`s: `Binning`, ... |
| R_CE(h) | `risk.estimation_risk`, in linear time with `block_size` |
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
