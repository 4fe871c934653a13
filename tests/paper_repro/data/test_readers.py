"""What is wrong with data is said in one line, with file and row; new data is computed anew."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax.distributions import Categorical
from experiments.harness import command_line, data_files
from experiments.harness.cells import Store
from experiments.harness.data_files import DataError
from paper_repro.data import cifar
from paper_repro.data import classifiers as l21_classifiers
from paper_repro.g24 import networks as g24_networks
from paper_repro.w19 import networks as w19_networks
from paper_repro.w21 import friedman as w21_friedman
from paper_repro.w21 import friedman_tables as w21_friedman_tables
from paper_repro.w21 import synthetic as w21_synthetic


def write_cifar10(data, name="resnet18", num=6):
    """Files of a network on CIFAR-10; returns the lines of probabilities."""
    folder = data / cifar.CIFAR10
    folder.mkdir(parents=True, exist_ok=True)
    probs = np.random.default_rng(0).dirichlet(np.ones(10), num)
    np.savetxt(folder / f"{name}.csv", probs, delimiter=",")
    np.savetxt(folder / "labels.csv", 1 + np.arange(num) % 10, fmt="%d")
    return (folder / f"{name}.csv").read_text().splitlines()


def write_cifar100(data, num=6, classes=4):
    """Files of a network on CIFAR-100; returns the folder."""
    folder = data.joinpath(*cifar.CIFAR100)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for part in ("val", "test"):
        np.save(folder / f"{part}_logits.npy", rng.normal(size=(num, classes)).astype(np.float32))
        np.save(folder / f"{part}_labels.npy", np.arange(num) % classes)
    return folder


def test_files_and_folders(tmp_path):
    with pytest.raises(DataError, match=r"--data: expected a folder with a/b\.csv, got none in"):
        data_files.existing_file(tmp_path, "a", "b.csv")
    (tmp_path / "a" / "b.csv").mkdir(parents=True)
    with pytest.raises(DataError, match=r"a/b\.csv, got a folder of this name in"):
        data_files.existing_file(tmp_path, "a", "b.csv")


def test_cifar10(tmp_path):
    lines = write_cifar10(tmp_path)
    path = tmp_path / cifar.CIFAR10 / "resnet18.csv"
    probs, labels = cifar.read_cifar10(tmp_path, "resnet18")
    np.testing.assert_array_equal(probs, np.loadtxt(path, delimiter=","))
    assert labels.tolist() == list(range(6))

    def with_row(row, line):
        return "\n".join([*lines[: row - 1], line, *lines[row:]])

    first, rest = lines[2].split(",", 1)
    for wrong, message in {
        "": r"expected rows in .*resnet18\.csv, got an empty file",
        "\n".join(lines[:-1]): r"one label for each of the 5 predictions in resnet18\.csv, got 6",
        with_row(3, f"x,{rest}"): r"a finite number, got 'x' in row 3 of .*resnet18\.csv",
        with_row(3, f"nan,{rest}"): "a finite number, got 'nan' in row 3 of",
        with_row(3, f"1_0,{rest}"): "a finite number, got '1_0' in row 3 of",
        with_row(3, ""): "a finite number, got '' in row 3 of",
        with_row(3, rest): "expected 10 numbers, got 9 in row 3 of",
        with_row(3, f"-{first},{rest}"): r"probabilities in \[0, 1\], got -.* in row 3 of",
        with_row(3, f"0.9999999,{rest}"): "probabilities with the sum one, got 1.* in row 3 of",
        "\n".join(f"{line},0" for line in lines): "expected 10 columns in .*, got 11",
    }.items():
        path.write_text(wrong)
        with pytest.raises(DataError, match=f"^--data: .*{message}"):
            cifar.read_cifar10(tmp_path, "resnet18")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"^--data: expected a text file, got .*resnet18\.csv"):
        cifar.read_cifar10(tmp_path, "resnet18")


def test_labels_of_cifar10(tmp_path):
    write_cifar10(tmp_path)
    path = tmp_path / cifar.CIFAR10 / "labels.csv"
    for label in ("0", "11", "-1", "2.5"):
        path.write_text(f"1\n{label}\n1\n1\n1\n1\n")
        message = rf"expected a label 1, \.\.\., 10, got {float(label)} in row 2 of .*labels\.csv"
        with pytest.raises(DataError, match=message):
            cifar.read_cifar10(tmp_path, "resnet18")
    path.write_text("1,2\n" * 6)
    with pytest.raises(DataError, match=r"expected 1 columns in .*labels\.csv, got 2"):
        cifar.read_cifar10(tmp_path, "resnet18")


NETWORK = "cifar100_resnet50"
LOGITS, LABELS = np.zeros((6, 4), np.float32), np.arange(6) % 4
NAN_LOGITS = np.where(np.arange(24).reshape(6, 4) == 9, np.nan, LOGITS)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("labels", LABELS - 1, r"a label 0, \.\.\., 3, got -1 in row 0 \(the first is 0\) of"),
        ("labels", np.where(LABELS == 2, 4, LABELS), r"got 4 in row 2 .* of .*test_labels\.npy"),
        ("labels", LABELS + 0.5, "got 0.5 in row 0"),
        ("labels", np.where(LABELS == 2, np.nan, LABELS), "got nan in row 2"),
        ("labels", LABELS[:5], "one label for each of the 6 predictions .* got 5 in"),
        ("labels", LABELS[:, None], "one label for each of the 6 predictions .* got 6x1 in"),
        ("labels", np.array([*"abcdef"]), "expected an array of numbers in .*, got <U1"),
        ("logits", NAN_LOGITS, r"expected finite logits, got nan in row 2 .*test_logits\.npy"),
        ("logits", LOGITS[0], r"expected logits \[n, m\] .* got float32 \(4,\)"),
        ("logits", LABELS[:, None] + LABELS, r"expected logits \[n, m\] .* got int64"),
        ("logits", LOGITS[:0], r"expected an array of numbers in .*, got float32 \(0, 4\)"),
        ("logits", LOGITS[:, :3], "a label 0, ..., 2, got 3 in row 3"),
    ],
)
def test_cifar100(tmp_path, name, array, message):
    folder = write_cifar100(tmp_path)
    assert cifar.read_logits(tmp_path, NETWORK, "test")[0].dtype == np.float32
    np.save(folder / f"test_{name}.npy", array)
    for read in (lambda: cifar.read_logits(tmp_path, NETWORK, "test"), None):
        with pytest.raises(DataError, match=f"^--data: .*{message}"):
            (read or (lambda: l21_classifiers.read_logits(tmp_path, NETWORK)))()


def test_broken_arrays(tmp_path):
    folder = write_cifar100(tmp_path)
    path = folder / "test_labels.npy"
    content = path.read_bytes()
    for wrong in (b"", b"text", content[:-3], content[:20]):
        path.write_bytes(wrong)
        with pytest.raises(DataError, match=r"expected a file of numpy\.save, got .*_labels\.npy"):
            cifar.read_logits(tmp_path, NETWORK, "test")
    np.savez(folder / "x.npz", LABELS)
    path.write_bytes((folder / "x.npz").read_bytes())
    with pytest.raises(DataError, match=r"expected an array of numbers in .*_labels\.npy, got sev"):
        cifar.read_logits(tmp_path, NETWORK, "test")
    np.save(path, LABELS)
    np.save(folder / "test_logits.npy", np.zeros((6, 5)))
    with pytest.raises(DataError, match=r"as many classes in test_logits\.npy .*, 4, got 5"):
        l21_classifiers.read_logits(tmp_path, NETWORK)


TABLE = "dataset,iteration,statistic,estimate\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected rows in .*, got an empty file"),
        (TABLE, "expected rows below the header in .*, got dataset,"),
        ("dataset,iteration\na,1\n", "expected columns statistic, estimate in .*, got dataset, it"),
        (f"{TABLE}a,0,b\n", "expected 4 values, got 3 in row 2 of"),
        (f"{TABLE}a,0,b,1,2\n", "expected 4 values, got 5 in row 2 of"),
        (f"{TABLE}a,0,b,1\na,0,b,?\n", r"a finite number, got '\?' in row 3 of .*statistics\.csv"),
        (f"{TABLE}a,0.5,b,1\n", "a whole number for iteration, got '0.5' in row 2"),
    ],
)
def test_published_tables(tmp_path, text, message):
    (tmp_path / "w21_friedman").mkdir()
    (tmp_path / "w21_friedman" / "statistics.csv").write_text(text)
    run = command_line.Run("quick", tmp_path, tmp_path)
    with pytest.raises(DataError, match=f"^--data: .*{message}"):
        w21_friedman.run(run)


def test_published_tables_that_lack_rows(tmp_path):
    rows = [
        {"dataset": split, "iteration": "0", "statistic": name, "estimate": "1"}
        for split in w21_friedman.SPLITS
        for name in w21_friedman_tables.STATISTICS
    ]
    w21_friedman_tables.check_published(None, w21_friedman.SPLITS, [0])
    w21_friedman_tables.check_published(rows, w21_friedman.SPLITS, [0])
    with pytest.raises(DataError, match="expected rows .*, got none of test, 0, p-value"):
        w21_friedman_tables.check_published(rows[:-1], w21_friedman.SPLITS, [0])
    (tmp_path / w21_synthetic.NAME).mkdir()
    path = tmp_path / w21_synthetic.NAME / "errors_calibrated_model.csv"
    path.write_text("estimator,dim,nsamples,meanerror\nSKCE,1,4,0.1\n")
    with pytest.raises(DataError, match="expected columns variance, mintime in"):
        w21_synthetic.run(command_line.Run("quick", tmp_path, tmp_path))
    write_cifar10(tmp_path)
    folder, columns = tmp_path / cifar.CIFAR10, [*w19_networks.TESTS][:-1]
    (folder / "pvalues.csv").write_text(",".join(["model", *columns]) + "\nresnet18" + ",0" * 7)
    (folder / "errors.csv").write_text(",".join(["model", *w19_networks.ERRORS]) + "\nb" + ",0" * 5)
    with pytest.raises(DataError, match=r"expected rows of resnet18 in .*errors\.csv"):
        w19_networks.run(command_line.Run("quick", tmp_path, tmp_path))


def test_programs_end_with_one_line(tmp_path, capsys):
    @command_line.program
    def main():
        raise DataError("--data: wrong")

    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert capsys.readouterr().err == "--data: wrong\n"
    write_cifar100(tmp_path)
    np.save(tmp_path.joinpath(*cifar.CIFAR100, "val_labels.npy"), LABELS - 1)
    command = [sys.executable, "-m", "paper_repro", "--only", "l21_networks"]
    command += ["--data", tmp_path, "--output", tmp_path / "out"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    line = found.stderr.splitlines()
    assert (found.returncode, len(line)) == (2, 1)
    assert "got -1 in" in line[0]


class Calls:
    """Stands in for what computes a cell, and counts."""

    def __init__(self, result):
        self.result, self.number = result, 0

    def __call__(self, *arguments):
        self.number += 1
        return self.result


def test_other_networks_are_estimated_anew(tmp_path, monkeypatch):
    stand_in = Calls({"estimate": np.zeros(1)})
    monkeypatch.setattr(g24_networks, "evaluate", stand_in)
    chosen = {"cifar10": {"canonical": {"h = 0": g24_networks.ZEROS}}}
    probs = jnp.full((6, 10), 0.1)
    for labels in (LABELS, LABELS, 3 - LABELS):
        network = g24_networks.Network("cifar10_a", Categorical(probs), jnp.asarray(labels))
        settings = g24_networks.SETTINGS["quick"]
        g24_networks.finished_cells(Store(tmp_path, "code"), settings, [network], chosen)
    assert stand_in.number == 2


def test_digests_tell_data_apart():
    x = np.arange(6.0)
    different = [x, -x, x[:5], x.reshape(2, 3), x.astype(np.float32), x.view(np.int64)]
    found = {data_files.digest(array) for array in different}
    found |= {
        data_files.digest(x, None),
        data_files.digest(None, x),
        data_files.digest(x[:3], x[3:]),
    }
    assert len(found) == len(different) + 3
    assert (
        data_files.digest(x)
        == data_files.digest(np.arange(6.0))
        == data_files.digest(jax.numpy.array(x))
    )
