"""G24: the simulation, and the comparison of estimators on networks."""

import csv

import numpy as np
import pytest

from experiments.harness import command_line, figures, stand_in
from paper_repro.g24 import networks as g24_networks
from paper_repro.g24 import networks_figures, paper_tables, published_code
from paper_repro.g24 import networks_tables as tables
from paper_repro.g24 import simulation as g24_simulation
from paper_repro.g24.networks_figures import LABELS
from tests import oracles
from tests.paper_repro import write_cifar10


@pytest.fixture(autouse=True)
def _no_rendering(monkeypatch):
    monkeypatch.setattr(figures, "_drawn", lambda *arguments: b"")


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_risks_are_those_of_the_published_code():
    """`ce_estimator_simulation(range(1), 0.04, 5, 500, T, temp=0.3)` after np.random.seed(0)."""
    thetas = np.array([2**-2.5, 2**-5, 1.0, 2**2.5])
    published = [0.008048468800261069, 0.024390690119136076]
    published += [0.006944460901059195, 0.008489910041847324]
    probs, labels = g24_simulation.draw(np.random.RandomState(0))
    found = g24_simulation.evaluate(np.log(probs), labels, thetas)
    np.testing.assert_allclose(found["risk"], published, rtol=1e-12)


def test_simulation(tmp_path, monkeypatch):
    settings = g24_simulation.Settings(3, 10)
    monkeypatch.setitem(g24_simulation.SETTINGS, "quick", settings)
    run = command_line.Run("quick", None, tmp_path)
    g24_simulation.run(run)
    folder = run.folder(g24_simulation.NAME)
    store = run.store(g24_simulation.NAME, g24_simulation.__file__)
    found = g24_simulation.results(store, settings)
    random = np.random.RandomState(0)
    drawn = [g24_simulation.draw(random) for _ in range(3)]
    probs, _ = drawn[1]
    np.testing.assert_allclose(found["accuracy"], [np.mean(p.argmax(1) == y) for p, y in drawn])
    assert 0.8 < found["accuracy"].mean() < 0.97
    powers = probs**0.3
    predictions = powers / powers.sum(1, keepdims=True)
    truth = (predictions - probs) @ (predictions - probs).T
    np.testing.assert_allclose(found["error"][1], np.trace(truth) / 500)
    for i in (0, 10, 19):
        powers = probs ** settings.thetas[i]
        gaps = predictions - powers / powers.sum(1, keepdims=True)
        values = gaps @ gaps.T
        excess = np.mean((values - truth)[~np.eye(500, dtype=bool)] ** 2)
        np.testing.assert_allclose(found["excess"][1, i], excess, atol=1e-15)
    table = rows_of(folder / "risks.csv")
    np.testing.assert_allclose([float(row[1]) for row in table[1:]], found["risk"].mean(0))


def test_published_code():
    """Risks on the published split, with other labels and fewer samples, by plain loops."""
    rng = np.random.default_rng(0)
    points, targets, learned = rng.uniform(size=100), *rng.integers(0, 2, (2, 100))
    np.random.seed(0)  # noqa: NPY002
    order = np.random.choice(100, 100, replace=False)[:80]  # noqa: NPY002
    kept = np.full(100, True)
    kept[order[::16]] = False  # one in each fold, so that it is compiled once
    roots = []
    for fold in np.split(order, 5):
        rest, held_out = np.setdiff1d(order, fold), fold[1:]
        bins, errors = np.ceil(5 * points), points - targets
        means = [(points - learned)[rest][bins[rest] == bins[i]].mean() for i in held_out]
        risk = oracles.estimation_risk(np.outer(means, means), errors[held_out][:, None])
        roots.append(100 * np.sqrt(risk))
    function, grid = published_code.FUNCTIONS["bins"], np.array([5])
    options = {"learned": learned, "kept": kept}
    found = published_code.root_risk(function, grid, points, targets, **options)
    assert found == pytest.approx(np.mean(roots))


@pytest.mark.slow
def test_networks(tmp_path, monkeypatch):
    settings = g24_networks.Settings(50, ("a", "b"))
    monkeypatch.setitem(g24_networks.SETTINGS, "quick", settings)
    zero, bins = g24_networks.ZEROS, g24_networks.BINS
    estimators = {"top-label": {"h = 0": zero, "bins": bins}, "canonical": {"h = 0": zero}}
    monkeypatch.setattr(g24_networks, "ESTIMATORS", {"cifar10": estimators})
    monkeypatch.setattr(paper_tables, "write_tables", lambda *arguments: None)  # of all estimators
    monkeypatch.setattr(networks_figures, "plot", lambda *arguments: None)
    data = write_cifar10(tmp_path / "data", "a", "b", num=60)
    run = command_line.Run("quick", data, tmp_path)
    g24_networks.run(run)
    networks = g24_networks.read_networks(run, settings)
    names = ["cifar10_a", "cifar10_b"]
    assert [network.name for network in networks] == names
    folder = run.folder(g24_networks.NAME)
    store = run.store(g24_networks.NAME, g24_networks.__file__)
    results = g24_networks.finished_cells(store, settings, networks, {"cifar10": estimators})
    assert list(results) == [(n, x, y) for n in names for x, ys in estimators.items() for y in ys]
    probs, labels = np.asarray(networks[1].predictions.class_probs), np.asarray(networks[1].labels)
    correct = probs.argmax(1) == labels
    for notion, residuals in (
        ("canonical", probs - np.eye(10)[labels]),
        ("top-label", (probs.max(1) - correct)[:, None]),
    ):
        found = results["cifar10_b", notion, "h = 0"]
        assert found["folds"].shape == found["losses"].shape == (40,)
        squares = np.square(residuals @ residuals.T)[np.ix_(found["tuning"], found["tuning"])]
        others = (found["folds"][:, None] == found["folds"]) & ~np.eye(40, dtype=bool)
        expected = (squares * others).sum(1) / others.sum(1)
        np.testing.assert_allclose(found["losses"], expected)
        assert found["test_values"].shape == (5, 10)
        np.testing.assert_array_equal(found["test_values"], 0)
    bins = results["cifar10_b", "top-label", "bins"]
    np.testing.assert_array_equal(bins["grid"], np.arange(5, 101, 5))
    best = bins["risks"].mean(0).argmin()
    np.testing.assert_allclose(bins["root"], np.sqrt(bins["test_values"].mean()))
    for fold in range(5):
        losses = bins["losses"][bins["folds"] == fold]
        np.testing.assert_allclose(bins["risks"][fold, best], losses.mean())
    zero = results["cifar10_b", "top-label", "h = 0"]
    text = next(r for r in rows_of(folder / "differences.csv") if r[0] == "cifar10_b")[3]
    difference = 1e4 * (bins["risks"][:, best].mean() - zero["risks"].mean())
    assert float(text.split(" ±")[0]) == pytest.approx(difference, rel=0.01)


def made_up(offsets):
    """Results with these mean losses, known up to noise that they share and noise of each."""
    rng = np.random.default_rng(1)
    shared, folds = rng.exponential(size=100), np.arange(100) % 5
    results = {}
    for (network, notion, name), offset in offsets.items():
        losses = shared + offset + 0.01 * rng.normal(size=100)
        risks = np.array([losses[folds == fold].mean() for fold in range(5)])[:, None]
        scalars = dict.fromkeys(("estimate", "standard_error", "root"), np.array(0.1))
        scalars |= dict.fromkeys(("sampling_error", "root_standard_error"), np.array(0.1))
        results[network, notion, name] = scalars | {
            "grid": np.array([1.0, 2.0]),
            "risks": np.append(risks, risks + 1, 1),
            "folds": folds,
            "losses": losses,
            "test_values": np.zeros((5, 3)),
            "num_nan": np.array(0),
            "seconds": np.array(1.0),
        }
    return results


def test_claims_and_winners(tmp_path):
    top = {"h = 0": 0.5, "15 bins": 0.1, "bins": 0.0, "kde": 0.3, "kkr": 0.1, "ukkr": 0.001}
    canonical = {"h = 0": 0.0, "kde": 0.0, "kkr": 0.0, "ukkr": 0.2}
    offsets = {("cifar10_x", "top-label", name): x for name, x in top.items()}
    offsets |= {("cifar10_x", "canonical", name): x for name, x in canonical.items()}
    results = made_up(offsets)
    tables.write_tables(tmp_path, results, "Exact.")
    pairs = tables.compare(results)
    assert len(pairs) == 6 * 5 + 4 * 3
    assert tables.critical_value(pairs) == pytest.approx(3.0377, abs=1e-3)  # 0.05 / 21
    found = pairs["cifar10_x", "top-label", "bins", "kde"]
    other = pairs["cifar10_x", "top-label", "kde", "bins"]
    assert found.difference == pytest.approx(-0.3, abs=0.01)
    assert (found.difference, found.standard_error) == (-other.difference, other.standard_error)
    sides = ("for", "against")
    verdicts = {row[0].split(",")[0]: row[1:] for row in rows_of(tmp_path / "claims.csv")}
    assert verdicts == {
        "claim": ["comparisons", *sides, *(f"{x}, 1.5 se" for x in sides), "sign", "verdict"],
        "kde is the worst": ["4", "4", "0", "4", "0", "4", "confirmed"],
        "ukkr is better than or equal to all": ["4", "3", "0", "3", "0", "3", "not contradicted"],
        "kkr and ukkr do not differ": ["1", "0", "1", "0", "1", "", "contradicted"],
        "only kde outperforms others (once)": ["2", "1", "0", "1", "0", "1", "not contradicted"],
        "ukkr is better than kkr": ["1", "0", "1", "0", "1", "0", "contradicted"],
    }
    _, top, canonical = rows_of(tmp_path / "winners.csv")
    assert {top[2], top[3]} == {"bins", "ukkr"}
    assert {canonical[2], *canonical[3].split(", ")} == {"kde", "kkr"}
    assert canonical[4] == "none"
    rows = rows_of(tmp_path / "differences.csv")
    kde = next(row for row in rows if row[:3] == ["cifar10_x", "top-label", "kde"])
    assert [text.endswith("*") for text in kde[3:]] == [True, True, True, False, False]


def test_tables_of_the_paper(tmp_path):
    names = (*tables.TOP_LABEL, "h = 0")
    results = made_up({("digits_linear", x, name): 0 for x in LABELS for name in names})
    with stand_in.marked("experiment", "digits", "networks"):
        paper_tables.write_tables(tmp_path, results)
        networks_figures.plot(tmp_path, results)
    header, *rows = rows_of(tmp_path / "table_1.csv")
    networks = ["LeNet-5", "DenseNet-40", "ResNetWide-32", "ResNet-110", "ResNet-110 SD"]
    assert header[1:] == ["estimator", *(f"G24: {x}" for x in networks), "here: digits_linear"]
    assert [row[1] for row in rows] == [*tables.TOP_LABEL, "h = 0"]
    assert rows[2][3] == "13.70 ± 0.27"  # without the data of the paper, too
    root, error = tables.root_risk(results["digits_linear", "top-label", "kde"])
    assert rows[2][-1] == f"{root:.3f} ± {error:.2g}"
    assert [row[3] for row in rows_of(tmp_path / "table_3.csv")[1:]] == [
        *("5.61 ± 0.09", "5.56 ± 0.09", "5.56 ± 0.09", "")
    ]


@pytest.mark.parametrize(
    ("z", "claim", "verdict"),
    [
        ((-9, -9), "better", "confirmed"),
        ((-9, -4), "better", "not contradicted"),  # one is not for it with larger errors
        ((-9, 4), "better", "doubtful"),
        ((0, 4), "not worse", "doubtful"),
        ((0, -4), "equal", "doubtful"),
        ((-9, 0), "equal", "contradicted"),
    ],
)
def test_verdicts(z, claim, verdict, monkeypatch):
    monkeypatch.setattr(tables, "critical_value", lambda pairs: 3.0)
    pairs = tuple(("a", str(i)) for i in range(len(z)))
    text = "; ".join(map(" < ".join, pairs))
    monkeypatch.setattr(tables, "CLAIMS", [tables.Claim("text", "", "", claim, text)])
    found = {("n", "x", *pair): tables.Comparison(x, 1.0) for pair, x in zip(pairs, z, strict=True)}
    (row,) = tables.claim_rows(found)
    assert row[-1] == verdict
    stars = [tables._stars(found["n", "x", *pair], 3.0).count("*") for pair in pairs]
    assert stars == [{0: 0, 2: 0, 4: 1, 9: 2}[abs(x)] for x in z]
