"""What is wrong with data is said in one line, with file and row; new data is computed anew."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.harness import command_line, data_files
from experiments.harness.data_files import DataError
from paper_repro.data import cifar
from paper_repro.data import classifiers as l21_classifiers
from paper_repro.w21 import friedman as w21_friedman
from tests.paper_repro import write_cifar10


def test_cifar10(tmp_path):
    path = write_cifar10(tmp_path, "resnet18", num=6) / cifar.CIFAR10 / "resnet18.csv"
    lines = path.read_text().splitlines()
    probs, labels = cifar.read_cifar10(tmp_path, "resnet18")
    np.testing.assert_array_equal(probs, np.loadtxt(path, delimiter=","))
    assert labels.tolist() == list(range(6))

    def with_row(row, line):
        return "\n".join([*lines[: row - 1], line, *lines[row:]])

    first, rest = lines[2].split(",", 1)
    for wrong, message in {
        "\n".join(lines[:-1]): r"one label for each of the 5 predictions in resnet18\.csv, got 6",
        with_row(3, f"nan,{rest}"): "a finite number, got 'nan' in row 3 of",
        with_row(3, rest): "expected 10 numbers, got 9 in row 3 of",
        with_row(3, f"-{first},{rest}"): r"probabilities in \[0, 1\], got -.* in row 3 of",
        with_row(3, f"0.9999999,{rest}"): "probabilities with the sum one, got 1.* in row 3 of",
    }.items():
        path.write_text(wrong)
        with pytest.raises(DataError, match=f"^--data: .*{message}"):
            cifar.read_cifar10(tmp_path, "resnet18")
    path.write_text("\n".join(lines))
    for label in ("0", "11", "2.5"):
        (tmp_path / cifar.CIFAR10 / "labels.csv").write_text(f"1\n{label}\n1\n1\n1\n1\n")
        message = rf"expected a label 1, \.\.\., 10, got {float(label)} in row 2 of .*labels\.csv"
        with pytest.raises(DataError, match=message):
            cifar.read_cifar10(tmp_path, "resnet18")


NETWORK, HEADER = "cifar100_resnet50", "dataset,iteration,statistic,estimate\n"
LOGITS, LABELS = np.zeros((6, 4), np.float32), np.arange(6) % 4
NAN_LOGITS = np.where(np.arange(24).reshape(6, 4) == 9, np.nan, LOGITS)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("labels", LABELS - 1, r"a label 0, \.\.\., 3, got -1 in row 0 \(the first is 0\) of"),
        ("labels", LABELS + 0.5, "got 0.5 in row 0"),
        ("labels", LABELS[:5], "one label for each of the 6 predictions .* got 5 in"),
        ("logits", NAN_LOGITS, r"expected finite logits, got nan in row 2 .*test_logits\.npy"),
        ("logits", LABELS[:, None] + LABELS, r"expected logits \[n, m\] .* got int64"),
    ],
)
def test_cifar100(tmp_path, name, array, message):
    folder = tmp_path.joinpath(*cifar.CIFAR100)
    folder.mkdir(parents=True)
    for part in ("val", "test"):
        np.save(folder / f"{part}_logits.npy", LOGITS)
        np.save(folder / f"{part}_labels.npy", LABELS)
    assert cifar.read_logits(tmp_path, NETWORK, "test")[0].dtype == np.float32
    np.save(folder / f"test_{name}.npy", array)
    with pytest.raises(DataError, match=f"^--data: .*{message}"):
        l21_classifiers.read_logits(tmp_path, NETWORK)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dataset,iteration\na,1\n", "expected columns statistic, estimate in .*, got dataset, it"),
        (f"{HEADER}a,0,b\n", "expected 4 values, got 3 in row 2 of"),
        (f"{HEADER}a,0,b,1\na,0,b,?\n", r"a finite number, got '\?' in row 3 of .*=train.csv"),
        (f"{HEADER}a,0,NLL,1.5\n", "expected 5001 rows of NLL in .*=train.csv, got 1"),
    ],
)
def test_published_tables(tmp_path, text, message):
    (tmp_path / "w21_friedman").mkdir()
    file = "statistics_ensembles_dataset=train.csv"
    (tmp_path / "w21_friedman" / file).write_text(text)
    run = command_line.Run("quick", tmp_path, tmp_path)
    with pytest.raises(DataError, match=f"^--data: .*{message}"):
        w21_friedman.run(run)


def test_programs_end_with_one_line(capsys):
    @command_line.program
    def main():
        raise DataError("--data: wrong")

    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert capsys.readouterr().err == "--data: wrong\n"


def test_digests_tell_data_apart():
    x = np.arange(6.0)
    arrays = [x, -x, x[:5], x.reshape(2, 3), x.astype(np.float32), x.view(np.int64)]
    different = [*((array,) for array in arrays), (x, None), (None, x), (x[:3], x[3:])]
    assert len({data_files.digest(*one) for one in different}) == len(different)
    assert data_files.digest(x) == data_files.digest(jnp.array(x))
