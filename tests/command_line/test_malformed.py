"""Malformed files: one clear line, exit status 2, no traceback, no report."""

import re

import numpy as np
import pytest

from calibjax.command_line import program
from calibjax.command_line.program import main
from tests.command_line.examples import GOOD, LABELS, NORMAL, PROBS, npy, npz


def damaged(content):
    """An archive of which a byte in the middle is another one."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


# Name of the case: content of a file .csv, what the line says, further options.
TEXTS = {
    "empty": ("", "expected rows, got empty lines only"),
    "no rows": ("prob_0,prob_1,label\n", "expected rows below the header, got none"),
    "binary garbage": (bytes(range(256)) * 8, "cannot be read as UTF-8"),
    "UTF-16": (GOOD.encode("utf-16"), "cannot be read as UTF-8 .*byte 0xff"),
    "zero bytes": (GOOD.replace("0.5", "\0"), "row 3"),
    "truncated in a row": (GOOD[:-6], "row 4: expected 3 values as in the header, got 2"),
    "truncated in a quotation": (GOOD + '"0.3,0.7,1\n', "row 5: cannot be read as CSV"),
    "ragged": (GOOD + "0.2,0.3,0.5,1\n", "row 5: expected 3 values as in the header, got 4"),
    "empty line within": (GOOD + "\n0.3,0.7,1\n", "row 5: expected 3 values"),
    "semicolons": (
        GOOD.replace(",", ";"),
        "row 1: expected columns separated by ','",
    ),
    "tabs": (GOOD.replace(",", "\t"), "try --separator 'tab'"),
    "decimal commas": (
        GOOD.replace(",", ";").replace("0.25", "0,25"),
        "row 2: expected a finite number in column prob_0, got '0,25'",
        "--separator",
        ";",
    ),
    "a word": (
        GOOD.replace("0.75", "high"),
        "row 2: expected a finite number in column prob_1, got 'high'",
    ),
    "infinity": (NORMAL.replace("2.5", "inf"), "row 4: expected a finite number in column target"),
    "everything missing": (
        "loc,scale,target\n,1,1\nNA,1,2\n",
        "expected rows without missing values",
        "--skip-missing",
    ),
    "label out of range": (
        GOOD.replace("0.9,1", "0.9,2"),
        "row 4: expected one of the labels 0, 1 .*got '2'",
    ),
    "duplicated columns": (
        GOOD.replace("prob_1", "prob_0"),
        "row 1: expected columns of different names, got column 'prob_0' 2 times",
    ),
    "two columns for a class": (
        GOOD.replace("prob_1", "probs.0"),
        "expected one column, got prob_0 and probs.0 for 0",
    ),
    "half of the parameters": (
        "loc,width,target\n0,1,0.5\n",
        r"expected columns loc and scale \(normal\)",
        "--task",
        "normal",
    ),
    "columns of two tasks": (
        "prob_0,prob_1,loc,scale,target\n0.5,0.5,0,1,1\n",
        "expected --task, got columns that fit classification and normal",
    ),
    "no names": (
        "0.25,0.75,1\n0.5,0.5,0\n",
        "expected --task for a file without names",
        "--target",
        "3",
    ),
    "percentage": ("prob,label\n62.5,1\n", "row 2: .*expected probabilities .* = 62.5"),
    "sum of probabilities": (
        GOOD.replace("0.75", "0.7"),
        "row 2: expected probabilities that sum to one .*, got the sum 0.95; --normalize",
    ),
    "sum of zero": (
        GOOD.replace("0.25,0.75", "0,0"),
        "row 2: expected a positive sum",
        "--normalize",
    ),
    "interval without length": (
        "low,high,target\n0,1,0.5\n2,1,0.5\n",
        "row 3: predictions.* expected",
    ),
    "beyond float32": (
        NORMAL.replace("2.5", "1e300"),
        "row 4: targets: expected values up to 3.4e.38 .or --float64., got",
    ),
    "lost in float32": (
        NORMAL.replace("2,1,2.5", "1000000001,0.001,2.5"),
        "row 4: .* expected values that float32 resolves .* --float64",
    ),
    "scale of zero": (
        NORMAL.replace("1,2", "1,0"),
        "row 3: predictions.scale: expected positive finite values .*, got",
    ),
    "fraction as a count": (
        "rate,target\n1.5,2\n2.5,0.5\n",
        "row 3: targets: expected integer counts, got .* = 0.5",
    ),
    "negative rate": (
        "rate,target\n1.5,2\n-2.5,1\n",
        "row 3: predictions.rate: expected positive finite values .*, got .* = -2.5",
    ),
    "quantiles that cross": (
        "quantile_0.1,quantile_0.9,target\n1,2,1\n3,2,1\n",
        "row 3: expected quantiles that do not cross .*got 3.0, 2.0",
    ),
    "level of a quantile": (
        "quantile_low,quantile_0.9,target\n1,2,1\n",
        r"expected columns quantile_LEVEL with levels in \(0, 1\), got column quantile_low",
    ),
    "text as a feature": (
        "loc,scale,target,feature_a\n0,1,0,x\n",
        "row 2: expected a finite number in column feature_a",
    ),
}
# The same for other files: ending, content, what the line says.
FILES = {
    "array of a huge shape": (
        ".npy",
        npy(np.zeros((3, 3))).replace(b"(3, 3), }           ", b"(3, 999999999999), }"),
        "cannot be read by numpy.load",
    ),
    "truncated array": (".npy", npy(np.zeros((50, 3)))[:-100], "cannot be read by numpy.load"),
    "pickled array": (".npy", npy(np.array([{}, []], object)), "cannot be read by numpy.load"),
    "array of three axes": (
        ".npy",
        npy(np.zeros((2, 2, 2))),
        r"expected an array \[n\] or \[n, m\], got shape \(2, 2, 2\)",
    ),
    "scalar": (".npy", npy(np.float64(1)), r"got shape \(\)"),
    "no archive": (".npz", b"PK garbage", "cannot be read by numpy.load"),
    "damaged archive": (".npz", damaged(npz(prob=np.ones((99, 2)))), "numpy.load"),
    "empty archive": (".npz", npz(), "expected rows, got none"),
    "pickled objects": (
        ".npz",
        npz(prob=np.array([None, 1], object), label=LABELS),
        "cannot be read by numpy.load",
    ),
    "arrays of two lengths": (
        ".npz",
        npz(prob=PROBS, label=LABELS[:1]),
        "expected as many rows of each array, got 2 of prob_0, 2 of prob_1, 1 of label",
    ),
    "complex numbers": (
        ".npz",
        npz(loc=np.array([1j, 2]), scale=np.ones(2), target=np.ones(2)),
        "expected a finite number in column loc, got 1j",
    ),
    "dates": (
        ".npz",
        npz(loc=np.array(["2024-01-01"] * 2, "datetime64[D]"), scale=np.ones(2), target=np.ones(2)),
        "expected a finite number in column loc",
    ),
    "NaN in an array": (
        ".npz",
        npz(loc=np.array([0, np.nan]), scale=np.ones(2), target=np.ones(2)),
        r"row 1 \(the first is 0\): expected a finite number in column loc, got nan",
    ),
    "no Parquet": (".parquet", b"PAR1 garbage PAR1", "cannot be read as Parquet|pip install"),
    "unknown ending": (".xlsx", b"PK", "expected a file .csv, .tsv"),
}
CASES = {**{case: (".csv", *values) for case, values in TEXTS.items()}, **FILES}


@pytest.mark.parametrize("case", CASES)
def test_malformed_file(case, written, tmp_path, capsys, monkeypatch):
    def unreachable(*arguments, **options):
        pytest.fail("a malformed file has been evaluated")

    monkeypatch.setattr(program, "evaluate", unreachable)
    ending, content, expected, *options = CASES[case]
    path = written(ending, content)
    assert main([path, "--report", str(tmp_path / "report.html"), *options]) == 2
    assert [*map(str, tmp_path.iterdir())] == [path]  # no part of a report has been left
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("calibjax: ")
    assert output.err.count("\n") == 1
    assert output.err.endswith("\n")
    assert len(output.err) < 600
    assert path in output.err
    assert re.search(expected, output.err), output.err
