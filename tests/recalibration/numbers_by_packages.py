"""Writes numbers_by_packages.json: what other packages fit to the same predictions.

    python -m venv ORACLES && ORACLES/bin/pip install betacal venn-abers probmetrics netcal
    ORACLES/bin/python tests/recalibration/numbers_by_packages.py

Not run by the tests, which need none of these packages: they take the predictions from here, and
the numbers from the file. Nothing of the library is imported. Of dirichletcal, which no longer
runs with the present NumPy and JAX, only the loss is here, minimised by SciPy.
"""

import json
import pathlib

import numpy as np

PLACE = pathlib.Path(__file__).with_suffix(".json")
N, M, PENALTY = 400, 4, 0.1
_RNG = np.random.default_rng(37)
LOGITS = 1.5 * _RNG.normal(size=(N, M))
LOGITS -= np.log(np.exp(LOGITS).sum(1, keepdims=True))
_SCORES = LOGITS * [0.5, 0.8, 1.1, 0.7] + [0.5, 0.0, -0.5, 0.2] + _RNG.gumbel(size=(N, M))
LABELS = _SCORES.argmax(1)
CONFIDENCES = _RNG.beta(0.8, 1.2, N).clip(0.01, 0.99).round(3)  # with ties
CORRECT = (_RNG.uniform(size=N) < CONFIDENCES**1.6).astype(int)
NEW = np.array([0.004, 0.2, CONFIDENCES[7], 0.55, 0.8, 0.9999])


def nll(slopes, biases):
    """Mean negative log-likelihood of the map A z + b of the logits."""
    z = LOGITS @ np.broadcast_to(slopes, (M, M)).T + biases
    return np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(N), LABELS])


def odir(slopes, biases):
    """Loss of Kull et al. (2019), §3, with penalties λ = μ, of their means."""
    outside = slopes[~np.eye(M, dtype=bool)]
    return nll(slopes, biases) + PENALTY * (np.mean(outside**2) + np.mean(biases**2))


def smallest(loss, start):
    """A minimum by BFGS, then by a simplex in its neighbourhood: no derivatives of ours."""
    from scipy.optimize import minimize

    best = minimize(loss, start, method="BFGS", options={"gtol": 1e-10})
    for _ in range(3):
        best = minimize(loss, best.x, method="BFGS", jac="3-point", options={"gtol": 1e-11})
    return best.x


def main():
    """Fits everything."""
    import torch
    from betacal import BetaCalibration
    from netcal.scaling import BetaCalibration as NetcalBeta
    from netcal.scaling import TemperatureScaling
    from probmetrics.calibrators import logistic, temperature_scaling
    from probmetrics.distributions import CategoricalLogits
    from sklearn.linear_model import LogisticRegression
    from venn_abers import VennAbers

    probs = np.exp(LOGITS)
    logits = CategoricalLogits(torch.tensor(LOGITS)), torch.tensor(LABELS)
    found = {"temperature": {}, "vector": {}, "matrix": {}, "beta": {}}

    guo = temperature_scaling.TemperatureScalingCalibrator(max_bisection_steps=60)
    guo._fit_torch_impl(*logits)
    found["temperature"]["probmetrics"] = float(1 / guo.invtemp_)
    netcal = TemperatureScaling()
    netcal.fit(probs, LABELS)
    found["temperature"]["netcal"] = float(np.ravel(1 / netcal.temperature)[0])
    slope = smallest(lambda x: nll(x * np.eye(M), 0), np.ones(1))
    found["temperature"]["SciPy"] = float(1 / slope[0])

    vector = logistic.VectorScalingCalibrator()
    vector._fit_torch_impl(*logits)
    found["vector"]["probmetrics"] = [*(1 / vector.temp_).tolist(), *vector.bias_.tolist()]
    start = np.r_[np.ones(M), np.zeros(M)]
    best = smallest(lambda x: nll(np.diag(x[:M]), x[M:]), start)
    found["vector"]["SciPy"] = best.tolist()

    odir_best = smallest(
        lambda x: odir(x[: M * M].reshape(M, M), x[M * M :]), np.r_[np.eye(M).ravel(), np.zeros(M)]
    )
    found["matrix"]["SciPy"] = odir_best.tolist()
    free = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10**5, solver="newton-cg")
    found["matrix without penalty"] = {
        "scikit-learn": free.fit(LOGITS, LABELS).predict_proba(LOGITS[:5]).tolist()
    }

    betacal = BetaCalibration("abm").fit(CONFIDENCES, CORRECT)
    rise, fall, _ = betacal.calibrator_.map_
    found["beta"]["betacal"] = [rise, fall, float(betacal.calibrator_.lr_.intercept_[0])]
    netcal = NetcalBeta()
    netcal.fit(CONFIDENCES, CORRECT)
    found["beta"]["netcal"] = netcal.transform(NEW).tolist()

    venn_abers = VennAbers()
    two = np.stack([1 - CONFIDENCES, CONFIDENCES], 1)
    venn_abers.fit(two, CORRECT)
    values, intervals = venn_abers.predict_proba(np.stack([1 - NEW, NEW], 1))
    found["venn_abers"] = {"venn-abers": [*intervals.T.tolist(), values[:, 1].tolist()]}
    PLACE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
