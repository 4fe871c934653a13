import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from paper_repro.data import communities_crime as l21_crime_data
from paper_repro.l21 import crime_networks as l21_crime_networks
from paper_repro.l21 import methods as l21_methods

PART = 40  # samples
COLUMNS = [*{c for names in l21_crime_data.GROUPINGS.values() for c in names.values()}]


def test_communities_are_read(tmp_path):
    """Files like those of UCI, with a column that is mostly missing and one missing number."""
    folder, num, rng = tmp_path / l21_crime_data.FOLDER, 150, np.random.default_rng(0)
    folder.mkdir(parents=True)
    columns = {name: ["1"] * num for name in l21_crime_data.NOT_PREDICTIVE}
    columns["communityname"] = ["town"] * num
    columns |= {name: [f"{x:.2f}" for x in rng.random(num)] for name in sorted(COLUMNS)}
    columns["PolicCars"] = ["?"] * (num - 10) + ["0.5"] * 10
    columns["OtherPerCap"] = ["?"] + [f"{x:.2f}" for x in rng.random(num - 1)]
    crimes = np.array([float(x) for x in columns["racePctHisp"]]) + 0.3 * rng.random(num)
    columns["ViolentCrimesPerPop"] = [f"{x:.2f}" for x in crimes]
    names = "".join(f"@attribute {name} numeric\n" for name in columns)
    (folder / "communities.names").write_text(f"Title: x\n@relation y\n{names}@data\n")
    lines = "\n".join(",".join(row) for row in zip(*columns.values()))
    (folder / "communities.data").write_text(lines + "\n")
    found = l21_crime_data.read_communities(tmp_path)
    numbers = {
        name: np.array([float(x) for x in columns[name]])
        for name in (*COLUMNS, "ViolentCrimesPerPop")
    }
    crimes = numbers["ViolentCrimesPerPop"]
    np.testing.assert_array_equal(found.labels, crimes > np.median(crimes))
    assert found.features.dtype == np.float32
    names = [*sorted(COLUMNS), "OtherPerCap"]
    other = [float(x) for x in columns["OtherPerCap"][1:]]
    numbers["OtherPerCap"] = np.array([np.median(other), *other])
    expected = np.stack([numbers[name] for name in names], 1)
    np.testing.assert_array_equal(found.features, expected.astype(np.float32))
    for grouping, names in l21_crime_data.GROUPINGS.items():
        shares = np.stack([numbers[name] for name in names.values()], 1)
        np.testing.assert_array_equal(found.groups[grouping], shares.argmax(1))


def test_published_communities(data_dir):
    found = l21_crime_data.read_communities(data_dir)
    assert found.features.shape == (1994, 100)
    assert np.all((found.features >= 0) & (found.features <= 1))
    assert found.labels.sum() == 993  # 49 communities have the median
    assert np.bincount(found.groups["shares"]).tolist() == [219, 1572, 88, 115]
    split, other = (l21_crime_data.random_split(seed, 1994) for seed in (0, 1))
    sizes = [len(part) for part in dataclasses.astuple(split)]
    assert sizes == [994, 500, 500]
    assert sorted(np.concatenate(dataclasses.astuple(split))) == list(range(1994))
    assert not np.array_equal(split.evaluation, other.evaluation)


def test_initial_values():
    """Uniform within ±1/√inputs, weights and offsets, as in PyTorch."""
    draw = jax.jit(l21_crime_networks.draw_initial_values, static_argnums=(1, 2))
    layers = draw(jax.random.key(0), 100, (200, 50))
    assert [w.shape for w, _ in layers] == [(100, 200), (200, 50), (50, 2)]
    for (weights, offsets), inputs in zip(layers, (100, 200, 50)):
        assert weights.dtype == offsets.dtype == jnp.float32
        uniform = scipy.stats.uniform(-(inputs**-0.5), 2 * inputs**-0.5)
        assert scipy.stats.kstest(np.ravel(weights), uniform.cdf).pvalue > 1e-3
        assert scipy.stats.kstest(np.ravel(offsets), uniform.cdf).pvalue > 1e-3


def test_loss_with_dropout():
    rng = np.random.default_rng(0)
    layers = [(rng.normal(size=s), rng.normal(size=s[1])) for s in ((3, 5), (5, 8), (8, 2))]
    features, labels = rng.normal(size=(7, 3)), rng.integers(0, 2, 7)
    weights = np.array([1.0, 1, 1, 1, 0, 0, 0])
    key = jax.random.key(1)
    found = jax.jit(l21_crime_networks.loss)(
        layers, key, l21_crime_networks.Ensemble(features, jnp.asarray(labels)), weights
    )
    x = features
    for w, b in layers[:-1]:
        x = x @ w + b
        x = np.where(x > 0, x, 0.01 * x)
    kept = np.asarray(jax.random.bernoulli(key, 0.6, x.shape))
    assert 0.4 < kept.mean() < 0.8
    outputs = (x * kept / 0.6) @ layers[-1][0] + layers[-1][1]
    losses = np.log(np.exp(outputs).sum(1)) - outputs[np.arange(7), labels]
    np.testing.assert_allclose(found, losses[:4].mean(), rtol=1e-6)


def test_maximum_of_calibrated_confidences():
    """Against all outcomes and their probabilities."""
    confidences, groups = np.array([0.9, 0.7, 0.75, 0.95, 0.3]), np.array([0, 0, 0, 1, 1])
    mean = square = 0.0
    for outcome in itertools.product((0, 1), repeat=5):
        cells = [(g, b) for g in (0, 1) for b in range(5)]
        members = [(groups == g) & (bins(confidences) == b) for g, b in cells]
        errors = [abs(np.mean((confidences - outcome)[x])) for x in members if x.any()]
        weight = np.prod(np.where(outcome, confidences, 1 - confidences))
        mean, square = mean + weight * max(errors), square + weight * max(errors) ** 2
    data = l21_methods.Data(None, None, jnp.asarray(groups), None, None, {})
    args = jax.random.key(0), jnp.asarray(confidences), data, 5, 20000
    error = np.sqrt((square - mean**2) / 20000)
    assert abs(l21_methods.calibrated_maximum(*args) - mean) < 4 * error


def bins(confidences):
    """Numbers of the five intervals, which are closed at their upper ends."""
    return np.maximum(np.ceil(5 * confidences).astype(int) - 1, 0)


def test_metrics():
    """All metrics of one method against loops; a certain and wrong confidence among them."""
    rng = np.random.default_rng(0)
    r, g, x = rng.uniform(size=PART), np.arange(PART) % 4, rng.normal(size=(PART, 2))
    k = (rng.uniform(size=PART) < r).astype(int)
    r[np.flatnonzero(k == 0)[0]] = 1.0
    arrays = map(jnp.asarray, (r, k, g))
    embeddings = dict.fromkeys(("t-SNE", "PCA"), jnp.asarray(x))
    data = l21_methods.Data(*arrays, None, None, embeddings)
    found = l21_methods.evaluate(data.confidences, data, 5)
    gaps = {}
    for group in (None, *range(4)):
        for b in range(5):
            chosen = (bins(r) == b) & ((g == group) if group is not None else True)
            if chosen.any():
                gaps[group, b] = chosen.sum(), abs(np.mean((r - k)[chosen]))
    everyone = [x for (group, _), x in gaps.items() if group is None]
    in_groups = [x for (group, _), x in gaps.items() if group is not None]
    expected = {
        "ECE": sum(num * gap for num, gap in everyone) / PART,
        "MCE": max(gap for _, gap in everyone),
        "Brier": np.mean((r - k) ** 2),
        "maximum": max(gap for _, gap in in_groups),
        "infinite": 1,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-12, err_msg=name)
    for clip in l21_methods.CLIPS:
        inside = np.clip(r, clip, 1 - clip)
        nll = -np.mean(np.where(k == 1, np.log(inside), np.log1p(-inside)))
        np.testing.assert_allclose(found[f"NLL_{clip:g}"], nll)
    distances = np.abs(x[:, None] - x).sum(2) / 2
    for i in (0, 20, 39):
        weights = np.exp(-distances / l21_methods.CURVE_LENGTH_SCALES[i])
        weights = weights * (bins(r)[:, None] == bins(r))
        errors = np.abs(weights @ (r - k)) / weights.sum(1)
        np.testing.assert_allclose(found["MLCE curve (t-SNE)"][i], errors.max(), atol=1e-12)
        np.testing.assert_allclose(found["mean LCE curve (t-SNE)"][i], errors.mean(), atol=1e-12)
