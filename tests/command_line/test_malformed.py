"""Malformed files: one clear line, exit status 2, no traceback, no report."""

import re

import jax
import pytest

from calibjax.command_line.program import main
from tests.command_line.examples import GOOD, NORMAL, parquet

HUB = "task,output_type,output_type_id,value,observation\n"


# Content of a file .csv, what the line says, further options.
TEXTS = [
    ("", "got nothing"),
    ("\n" + GOOD, "got an empty line"),
    ("prob_0,prob_1,label\n", "expected rows, got none"),
    ("prob_0,prob_1,label\n\n,,\n", "expected rows, got none"),
    (bytes(range(1, 256)) * 8, "expected text in UTF-8, got .*--encoding"),
    (GOOD, "expected text in ROT13", "--encoding", "rot13"),
    (GOOD[:-6], "row 4: expected 3 values as in the first row, got 2"),
    (GOOD + '"0.3,0.7,1\n', "cannot be read as CSV"),
    (GOOD + "0.2,0.3,0.5,1\n", "row 5: expected 3 values as in the first row, got 4"),
    (GOOD + "\n0.3,0.7,1\n", "row 5: expected 3 values"),
    (GOOD.replace(",", "\t"), "row 1: expected columns separated by ',', got .*; --sep 'tab'"),
    (GOOD.replace("0.25", '"0,25"'), "row 2: .*column prob_0, got '0,25'; --decimal ,"),
    (NORMAL.replace("2,1", '"2,750",1'), "got '2,750'; --decimal , .*, --thousands , thousands"),
    (NORMAL.replace("2,1", '"2,75",1'), "row 4: .*got '2,75'", "--thousands", ","),
    (NORMAL.replace("2,1", "2.75,1"), "row 4: .*got '2.75'", "--decimal", ","),
    (NORMAL.replace("2,1", "1_000,1"), "row 4: expected a finite number .*, got '1_000'"),
    (GOOD.replace("0.75", "high"), "row 2: expected a finite number in column prob_1, got 'high'"),
    (NORMAL.replace("2.5", "inf"), "row 4: expected a finite number in column target"),
    ("loc,scale,target\n,1,1\nNA,1,2\n", "expected rows without missing", "--skip-missing"),
    (NORMAL.replace("2.5", "x"), "got 'x'; --skip-missing leaves out such rows", "--na", "X"),
    (GOOD.replace("0.9,1", "0.9,2"), "row 4: expected one of the labels 0, 1 .*got '2'"),
    (GOOD.replace("prob_1", "prob_0"), "different names, got column 'prob_0' 2 times"),
    ("prob_0,probs.0,label\n0.5,0.5,0\n", "expected columns of one kind"),
    ("prob,label\n7,1\n", "row 2: expected a probability in .0, 1. in column prob, got '7'$"),
    (GOOD.replace("0.25,0.75", "0,0"), "row 2: expected a positive sum", "--normalize"),
    (NORMAL, "--normalize: expected predictions of kind classes, got normal", "--normalize"),
    (
        NORMAL.replace("2.5", "1e300"),
        "row 4: targets: expected values up to 3.4e.38 .*JAX_ENABLE_X64=1",
    ),
    (NORMAL.replace("1,2", "1,0"), "row 3: predictions.scale: expected positive finite values"),
    (
        "quantile_0.1,quantile_0.9,target\n1,2,1\n3,2,1\n",
        "row 3: .*do not cross .--sort-quantiles sorts them., got .* = 2.0",
    ),
    ("loc,scale,target,feature_a\n0,1,3,x\n", "row 2: expected a finite number in column feat"),
    (HUB + "a,median,NA,1,1\n", "expected output_type quantile or sample .*, got median"),
    (HUB + "a,quantile,0.5,1,1\n" * 2, "row 3: expected one value of each task"),
    (HUB + "a,quantile,0.5,1,1\nb,quantile,0.9,1,1\n", "got ''; --skip-missing"),
    (",".join(f"x{i}" for i in range(10**5)) + "\n1,2", "row 2: expected 100000 values .* got 2"),
]
# The same for other files: ending, content, what the line says.
FILES = [
    (".parquet", b"PAR1 garbage PAR1", "cannot be read as Parquet|pip install"),
    (".parquet", parquet(loc=[7, None], scale=[1, 2], target=[1, 2]), "row 2: .*--skip-missing"),
    (".parquet", parquet(prob=[], label=[]), "expected rows, got none"),
    (".npy", b"", "expected a file .csv, .tsv"),
    (".csv.gz", b"no archive", "cannot be read .*gzip"),
    (".xlsx", b"PK", "expected a file .csv, .tsv"),
]


@pytest.mark.parametrize("case", [*((".csv", *x) for x in TEXTS), *FILES], ids=lambda x: x[2][:40])
def test_malformed_file(case, written, tmp_path, capsys, calls):
    ending, content, expected, *options = case
    path = written(ending, content)
    with jax.enable_x64(False):
        assert main([path, "--report", str(tmp_path / "report.html"), *options]) == 2
    assert [*map(str, tmp_path.iterdir())] == [path]  # no part of a report has been left
    output = capsys.readouterr()
    assert not calls
    assert output.out == ""
    assert output.err.startswith("calibjax: ")
    assert output.err.count("\n") == 1
    assert output.err.endswith("\n")
    assert len(output.err) < 600
    assert path in output.err or options
    assert re.search(expected, output.err.strip()), output.err
