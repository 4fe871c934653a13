"""Classifiers of --npz: files, and a run on one that holds little."""

import functools
import io
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special

from calibjax import hypothesis_tests, recalibration
from experiments.harness import command_line, figures
from experiments.harness.data_files import DataError
from paper_repro.data import classifiers as l21_classifiers
from paper_repro.l21 import embeddings as l21_embeddings
from paper_repro.l21 import methods as l21_methods
from paper_repro.l21 import networks as l21_networks
from paper_repro.l21.embeddings import Embedding


def test_all_classes():
    """Probabilities and scores of all classes after the confidence was replaced."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(20, 4)), rng.integers(0, 4, 20)
    part = l21_classifiers.part_of_logits(logits, 3 + logits, labels)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(part.confidences, probs.max(1))
    np.testing.assert_array_equal(part.correct, probs.argmax(1) == labels)
    np.testing.assert_allclose(l21_networks.class_probs(part.confidences, part), probs)
    new = rng.random(20)
    changed = l21_networks.class_probs(new, part)
    expected = np.empty_like(probs)
    for i, c in enumerate(probs.argmax(1)):
        expected[i] = probs[i] * (1 - new[i]) / (1 - probs[i, c])
        expected[i, c] = new[i]
    np.testing.assert_allclose(changed, expected)
    found = l21_networks.class_scores(changed, labels)
    nll = np.mean([-np.log(p[y]) for p, y in zip(expected, labels)])
    brier = np.mean([np.sum((p - np.eye(4)[y]) ** 2) for p, y in zip(expected, labels)])
    np.testing.assert_allclose([found["class NLL"], found["class Brier"]], [nll, brier])
    binary = l21_methods.Data(None, part.correct, None, None, None, {})
    scaled = functools.partial(l21_methods._scaled_confidences, jnp.array(2.0))
    roots = np.sqrt(probs) / np.sqrt(probs).sum(1, keepdims=True)
    data = binary._replace(logits=jnp.asarray(logits), confidences=jnp.asarray(part.confidences))
    np.testing.assert_allclose(scaled(data), roots.max(1))


def file_arrays(**changes):
    """Arrays of a small --npz file, some of them changed, or left out where None."""
    rng = np.random.default_rng(0)
    arrays = {}
    for part, num in (("calibration", 5), ("evaluation", 4)):
        arrays[f"{part}_features"] = rng.normal(size=(num, 2, 2))
        arrays[f"{part}_confidences"] = rng.random(num)
        arrays[f"{part}_correct"] = rng.integers(0, 2, num)
    return {name: x for name, x in (arrays | changes).items() if x is not None}


def test_files(tmp_path):
    """Features are flattened; logits and labels replace confidences and correctness."""
    arrays = file_arrays()
    np.savez(tmp_path / "a.npz", **arrays)
    found = l21_classifiers.read_npz(tmp_path / "a.npz")
    assert found.name == "a"
    flat = arrays["calibration_features"].reshape(5, 4)
    np.testing.assert_array_equal(found.calibration.features, flat)
    np.testing.assert_array_equal(found.evaluation.correct, arrays["evaluation_correct"])
    assert found.evaluation.logits is None
    classes = {
        f"{part}_{key}": value
        for part, num in (("calibration", 5), ("evaluation", 4))
        for key, value in (("logits", np.eye(5)[:num]), ("labels", np.arange(num) % 3))
    }
    missing = dict.fromkeys(
        f"{part}_{key}" for part in l21_classifiers.PARTS for key in ("confidences", "correct")
    )
    np.savez(tmp_path / "b.npz", **file_arrays(**classes, **missing))
    found = l21_classifiers.read_npz(tmp_path / "b.npz").calibration
    np.testing.assert_allclose(found.confidences, np.e / (np.e + 4))
    np.testing.assert_array_equal(found.correct, [1, 1, 1, 0, 0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluation_correct": None}, "expected arrays evaluation_correct in"),
        ({"calibration_groups": np.zeros(5, int)}, "expected arrays evaluation_groups in"),
        ({"evaluation_groups": np.zeros(4, int)}, "expected arrays calibration_groups in"),
        (
            {"calibration_logits": np.eye(5), "evaluation_logits": np.eye(5)[1:]},
            "expected arrays calibration_labels, evaluation_labels in",
        ),
        ({"evaluation_logits": np.eye(4)}, "expected arrays calibration_logits, calibration_lab"),
        (
            {"calibration_groups": np.array([*"abcde"]), "evaluation_groups": np.zeros(4, int)},
            "expected integers, got <U1 for calibration_groups",
        ),
        (
            {"calibration_groups": np.zeros(5, int), "evaluation_groups": np.zeros(4)},
            "expected integers, got float64 for evaluation_groups",
        ),
        ({"calibration_correct": np.array([*"01010"])}, "expected numbers, got <U1 for calib"),
        ({"calibration_correct": np.ones(4)}, r"each of the 5 features .* got \(4,\) for calib"),
        ({"evaluation_confidences": np.ones((4, 1))}, r"expected shape \(4,\), got \(4, 1\)"),
        (
            {"evaluation_confidences": np.full(4, 1.1)},
            r"expected values in \[0, 1\], got 1\.1 in row 0 .* of eval",
        ),
        (
            {"calibration_correct": np.array([0, 1, 2, 0, 0])},
            r"expected 0 or 1, got 2 in row 2 \(the first is 0\) of calibration_correct",
        ),
        (
            {"calibration_features": np.full((5, 4), np.nan)},
            r"expected finite numbers, got nan in row 0 .* of calibration_features",
        ),
        ({"calibration_features": np.ones((5, 3))}, "features of one length .* got 3 and 4"),
        (
            {
                f"{x}_{y}": np.full((n, 2) if y == "logits" else n, 2)
                for x, n in (("calibration", 5), ("evaluation", 4))
                for y in ("logits", "labels")
            },
            r"expected labels 0, \.\.\., 1, got 2 in row 0 .* of calibration_labels",
        ),
    ],
)
def test_wrong_files(tmp_path, changes, message):
    np.savez(tmp_path / "a.npz", **file_arrays(**changes))
    with pytest.raises(ValueError, match=f"--npz: .*{message}"):
        l21_classifiers.read_npz(tmp_path / "a.npz")


def saved(**arrays):
    """Bytes of a file of numpy.savez."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


BROKEN = {
    "text": b"no",
    "empty": b"",
    "truncated": saved(**file_arrays())[:-100],
    "cut in the middle": saved(**file_arrays())[:400],
    "changed": saved(x=np.zeros(100)).replace(bytes(90), bytes([1]) * 90),
    "objects": saved(x=np.array([{}], object)),
    "one array": b"\x93NUMPY\x01\x00v\x00",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_broken_files(tmp_path, content):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    expected = r"--npz: expected a file of numpy\.savez, got .*a\.npz"
    with pytest.raises(DataError, match=expected) as raised:
        l21_classifiers.read_npz(path)
    if not content.startswith(b"PK"):  # which NumPy would propose to load unsafely
        assert str(raised.value).endswith("(not a zip archive)")


def test_files_that_cannot_be_read(tmp_path, capsys):
    parser = command_line.option_parser(l21_networks.__file__, "", npz=True)
    with pytest.raises(SystemExit):
        command_line.parse(parser, ["--npz", str(tmp_path / "b.npz")])
    assert "--npz: expected a file" in capsys.readouterr().err
    np.savez(tmp_path / "a.npz", **file_arrays())
    with pytest.raises(ValueError, match=r"--npz: a: expected more than 30 samples .* got 9"):
        l21_networks.run(command_line.Run("quick", None, tmp_path, (tmp_path / "a.npz",)))
    run = command_line.Run("quick", None, tmp_path, (tmp_path / "a.npz", tmp_path / "a.npz"))
    with pytest.raises(ValueError, match="--npz: expected files of different names"):
        l21_networks.run(run)


def test_published_networks(data_dir):
    found = l21_classifiers.read_cifar10(data_dir, "resnet18")
    assert found.calibration.features.shape == found.evaluation.features.shape == (5000, 10)
    correct = found.calibration.correct.sum() + found.evaluation.correct.sum()
    assert correct == 9171
    found = l21_classifiers.read_logits(data_dir, "cifar100_resnet50")
    assert found.calibration.logits.shape == (5000, 100)
    assert found.evaluation.logits.shape == (10000, 100)
    np.testing.assert_allclose(found.evaluation.correct.mean(), 0.7661)
    np.testing.assert_allclose(found.evaluation.confidences.mean(), 0.82744, atol=1e-5)


def test_features_for_tsne():
    rng = np.random.default_rng(0)
    enough = Embedding(rng.normal(size=(20, 2)), rng.normal(size=(11, 2)))
    l21_embeddings.check_tsne("x", enough, 2)
    with pytest.raises(ValueError, match="x: expected features of length 3 or more .* got 2"):
        l21_embeddings.check_tsne("x", enough, 3)
    with pytest.raises(ValueError, match="x: expected more than 30 samples .* got 30"):
        l21_embeddings.check_tsne("x", enough._replace(evaluation=enough.evaluation[1:]), 2)
    with pytest.raises(ValueError, match="x: expected features that vary"):
        l21_embeddings.check_tsne("x", enough._replace(calibration=np.ones((20, 2))), 2)


def stand_in(key, neighbourhood, features, confidences, correct, **options):
    """A result without redraws."""
    pvalues = np.linspace(0.01, 1, len(confidences))
    return SimpleNamespace(pvalue=pvalues, adjusted_pvalue=pvalues)


@pytest.mark.slow
def test_one_file_with_methods_that_have_no_optimum(tmp_path, monkeypatch, capsys):
    """A threshold separates wrong from correct; all of the evaluation part is correct."""
    num = 40
    rng = np.random.default_rng(0)
    confidences = np.linspace(0.5, 1, num)
    arrays = {
        "calibration_confidences": confidences,
        "calibration_correct": confidences > 0.7,
        "calibration_groups": np.arange(num) % 2,
        "evaluation_confidences": np.linspace(0.4, 1, num),
        "evaluation_correct": np.ones(num),
        "evaluation_groups": np.arange(num) % 3 + (np.arange(num) == 0) * 3,
    }
    arrays |= {f"{part}_features": rng.normal(size=(num, 3)) for part in l21_classifiers.PARTS}
    np.savez(tmp_path / "a.npz", **arrays)
    settings = l21_networks.Settings(
        None, (), num_bins=5, components=(("t-SNE", 2), ("PCA", 2)), max_iter=250, redraws=9
    )
    monkeypatch.setitem(l21_networks.SETTINGS, "quick", settings)
    # Quicker to compile; both have no optimum here.
    monkeypatch.setattr(recalibration, "MMCEScaling", recalibration.PlattScaling)
    monkeypatch.setattr(figures, "_drawn", lambda *arguments: b"")
    monkeypatch.setattr(hypothesis_tests, "local_calibration_test", stand_in)
    run = command_line.Run("quick", None, tmp_path, (tmp_path / "a.npz",))
    l21_networks.run(run)
    folder = run.folder(l21_networks.NAME)
    assert "a: MMCE optimization is left out: it has no optimum" in capsys.readouterr().out
    rows = [row.split(",") for row in (folder / "table_4.csv").read_text().splitlines()]
    found = {row[1]: row for row in rows}
    assert found["MMCE optimization"][6:] == [""] * 7
    assert found["No recalibration"][6] == ""  # PRR
    ece = 1 - arrays["evaluation_confidences"].mean()
    np.testing.assert_allclose(float(found["No recalibration"][7]), ece)
    assert "a: MMCE optimization" in (folder / "table_4.md").read_text()
    rows = (folder / "groups.csv").read_text().splitlines()
    assert len(rows) == 10
    assert not (folder / "correlations.csv").exists()
    row = {row.split(",")[0]: row.split(",") for row in rows}
    assert row["MMCE optimization"][1:] == [""] * 4
    assert float(row["No recalibration"][1]) > 0
    assert row["No recalibration"][2] == ""
    assert "2 of 4 groups have no temperature" in (folder / "groups.md").read_text()


@pytest.mark.slow
def test_temperatures_of_confidences():
    """A certain and wrong confidence is clipped; a group without members has no temperature."""
    rng = np.random.default_rng(0)
    confidences = rng.uniform(0.5, 0.95, 400)
    correct = (rng.random(400) < confidences).astype(int)
    confidences[np.flatnonzero(correct == 0)[0]] = 1
    arrays = jnp.asarray(confidences), jnp.asarray(correct)
    data = l21_methods.Data(*arrays, jnp.arange(400) // 200 * 2, None, None, {})
    temperatures = np.asarray(l21_methods._group_temperatures(data, 3))
    np.testing.assert_array_equal(np.isnan(temperatures), [False, True, False])
    eps = np.finfo(float).eps
    log_odds = scipy.special.logit(np.clip(confidences, eps, 1 - eps))
    for members, found in ((slice(200), temperatures[0]), (slice(200, 400), temperatures[2])):
        signed = np.where(correct == 1, log_odds, -log_odds)[members]
        nll = lambda x: np.logaddexp(0, -signed / np.exp(x)).sum()  # noqa: B023, E731
        best = scipy.optimize.minimize_scalar(nll, bounds=(-3, 3), options={"xatol": 1e-9})
        np.testing.assert_allclose(found, np.exp(best.x), rtol=1e-5)
    scaled = l21_methods._scaled_confidences(temperatures[0], data)
    np.testing.assert_allclose(scaled, scipy.special.expit(log_odds / temperatures[0]))
