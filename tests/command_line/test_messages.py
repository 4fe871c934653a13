"""What is refused: one clear line, exit status 2, no traceback, no report."""

import os
import random
import re

import jax
import pytest

from calibjax.command_line import load, reading
from calibjax.command_line.program import main
from calibjax.command_line.reading import InputError
from tests.command_line.examples import GOOD, NORMAL

HUB = "task,output_type,output_type_id,value,observation\n"
TABLE = "loc,p,y,member_1,member_2\n0,0.5,1,0,0\n0,0.5,2,0,0\n"
KIND = "expected columns of one kind .*calibjax FILE --"
ONE_HOT = "prob_0,prob_1,y_0,y_1\n0.2,0.8,0,1\n0.6,0.4,1,0\n"

# Content of a file, what the line says, and options.
CASES = [
    ("", "expected names of columns in row 1, .* got ''"),
    ("prob_0,prob_1,label\n\n", "expected rows that do not lack values, got none"),
    (bytes(range(1, 256)) * 8, "expected text in UTF-8, .*; save it as CSV"),
    (GOOD[:-6], "row 4: expected 3 values as in the first row, got 2"),
    (GOOD + '"0.3,0.7,1\n', "cannot be read .unexpected end"),
    (GOOD.partition("\n")[2], "row 1: expected names of columns above the values, got 0.25"),
    (GOOD.replace(",", "\t"), "row 1: expected columns separated by ',', got .*; --sep 'tab'"),
    (GOOD.replace("0.25", '"0,25"'), "row 2: .*column prob_0, got '0,25'; --decimal MARK"),
    (NORMAL.replace("2,1", "2.75,1"), "row 4: .*got '2.75'; --decimal MARK", "--decimal ,"),
    (NORMAL.replace("2,1", "1_000,1"), "row 4: expected a finite number .*, got '1_000'"),
    (NORMAL.replace("2.5", "inf"), "row 4: expected a finite number in column target"),
    (NORMAL.replace("2.5", "\u0131nf"), "row 4: expected a finite number .*, got '\u0131nf'"),
    ("mean,sd,target\n,1,1\nNA,1,2.5\n", "expected rows that do not lack", "--skip-missing"),
    (GOOD.replace("0.9,1", "0.9,2"), "row 4: expected one of the labels 0, 1 .*got '2'"),
    (GOOD.replace("prob_1", "prob_0"), "different names, got column 'prob_0' 2 times"),
    ("prob,label\n5 %,1\n0.1,0\n", "row 2: expected a finite number in column prob, got '5 %'$"),
    ("prob,label\n7,1\n", "row 2: expected a probability in .0, 1. in column prob, got '7'$"),
    (NORMAL, "--positive: expected .* of kind probability, got normal", "--positive 1"),
    ("mean,sd,target,x\n0,1,3.5,x\n", "row 2: .* number in column x", "--features x"),
    (HUB + "a,median,NA,1,1\n", "expected output_type quantile or sample .*, got median"),
    (HUB + "a,quantile,0.5,1,1\n" * 2, "row 3: expected one value of each task"),
    (HUB + "a,quantile,0.5,1,1\nb,quantile,0.9,1,1\n", "got ''; --skip-missing"),
    # Two meanings.
    ("other,prob,label,seen\n0.7,0.3,0,1\n0.2,0.8,1,1\n0.2,0.8,1,0\n", "likeliest .*, and seen;"),
    ("guess,prob,label\n0,0.7,1\n1,0.8,1\n0,0.1,0\n", "one column .* label, .* and guess; name"),
    ("prob,label\n0.7,1\n0.8,0\n", KIND),  # confidences in the predicted labels
    ("mean,sd,label\n0.5,0.1,1\n0.2,0.1,\n", KIND),  # probabilities and their standard errors
    ("q0.1,q0.10,target\n1,2,2\n", "different levels between 0 and 1, got 0.1, 0.10"),
    (
        TABLE.replace(",p,", ",prob,"),
        "columns of one kind .*, got columns loc, prob, member_1, .*, which fit",
    ),
    # Options that do not fit.
    (NORMAL, r"expected a column g\*, got columns mean, sd, target", "--groups g*"),
    (ONE_HOT, "y_0, y_1: the labels have to be in one column", "--target y_0"),
    (TABLE, "--level: expected .* 0.9, got 90", "--lower loc --upper p --level 90"),
    (TABLE, "expected two or more members, got loc", "--members loc"),
    (TABLE, "--sd: expected a value, as in calibjax FILE --mean C", "--mean loc"),
    (TABLE, "--level: expected a value, as in .*--lower", "--lower loc --upper p"),
    (TABLE, "--positive: expected a value, as in calibjax FILE --mo", "--models loc p"),
    (TABLE, "--classes: expected pairs with = .*, got loc", "--classes loc p"),
    (TABLE, "expected pairs with = of different values, got p=1", "--classes loc=1 p=1"),
    (TABLE, "expected different levels between 0 and 1, got 5", "--quantiles 5=loc"),
    (TABLE, "got those for normal, members", "--members loc p --mean p --sd p"),
    (TABLE, "two labels, one of them a, in .* got 1, 2; --pos", "--models p loc --positive a"),
    (TABLE, "one use of each column", "--clusters y --probability p --positive 1"),
    (TABLE, "several models, got one", "--probability p --positive 1 --clusters loc"),
]


def refused(arguments, capsys):
    """The line of a refusal."""
    with jax.enable_x64(False):
        try:
            status = main(arguments)
        except SystemExit as error:  # of options
            status = error.code
    output = capsys.readouterr()
    assert status == 2
    assert output.out == ""
    assert output.err.startswith("calibjax: ")
    assert output.err.count("\n") == 1
    assert len(output.err) < 600
    return output.err.strip()


@pytest.mark.parametrize("case", CASES, ids=lambda x: x[1][:40])
def test_files_and_options(case, written, tmp_path, capsys, calls):
    content, expected, *options = case
    path, options = written(content), " ".join(options).split()
    line = refused([path, "--report", str(tmp_path / "report.html"), *options], capsys)
    assert [*map(str, tmp_path.iterdir())] == [path]  # no part of a report has been left
    assert not calls
    assert path in line or options
    assert re.search(expected, line), line


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            "mean,sd,target\n0,1,2.5\n0,0,1\n",
            "data.csv, row 3: expected a positive number in column sd, got '0'",
        ),
        (
            "mean,sd,target\n0,1,1e300\n" + 9 * "0,1,2\n",
            "row 2: targets: .*variable JAX_ENABLE_X64=1",
        ),
        ("q0.1,q0.9,target\n1,2,1\n3,2,1.5\n", r"row 3: .*do not cross .*\[1, 1\] = 2.0"),
        ("mean,sd,target\n0,1,2.5\n", "data.csv: predictions: expected at least 10 samples, got 1"),
    ],
)
def test_rows_that_evaluate_refuses(content, expected, written, capsys):
    path = written(content)
    assert re.search(expected, refused([path], capsys))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.npy", "expected columns separated by ','"),
        ("a.csv.gz", "cannot be read .*gzip"),
        ("fifo.csv", "a regular file"),
        ("/dev/zero", "a regular file"),
        ("a\0b.csv", "cannot be read .*null"),
        ("x" * 300 + ".csv", "cannot be read"),
    ],
)
def test_other_files(name, expected, written, tmp_path, capsys):
    if name.startswith("a."):
        written("no archive", name)
    if name == "fifo.csv":
        os.mkfifo(tmp_path / name)
    assert re.search(expected, refused([str(tmp_path / name)], capsys))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "the following arguments are required: FILE .or --demo"),
        ("x.csv --demo", "--demo: expected no FILE, since it brings its own, got x.csv"),
        ("--demo x.csv", "argument --demo: invalid choice: 'x.csv'"),
        ("x.csv --labels y.csv", "unrecognized arguments: --labels"),
        ("x.csv --seed x", "argument --seed: invalid int"),
        ("x.csv --decimal ;", "argument --decimal: invalid choice"),
        ("x.csv --rep", "unrecognized arguments: --rep"),
        ("x.csv --\x1b[31m", r"unrecognized arguments: --\?\[31m"),
    ],
)
def test_options_by_themselves(options, message, capsys):
    assert re.match(f"calibjax: {message}", refused(options.split(), capsys))


ROWS = "0.2,0.5,0.1\n0.4,0.3,0.2\n"
FIRST = f"mean,sd,target\n{ROWS}"
WEIGHTED = "prob_x,prob_y,w,label\n0.4,0.6,1,x\n0.7,0.3,3,x\n"


@pytest.mark.parametrize(
    ("first", "second", "message", "options"),
    [
        (FIRST, "mean,sd,target\n0.2,0.5,0.1\n", "b.csv: expected the targets of a.csv", ""),
        (FIRST, FIRST.replace("0.3,0.2", "0.3,0.3"), "b.csv: expected the targets of a.csv", ""),
        ("id," + FIRST.replace("0.2,0.5,0.1\n", "1,0.2,0.5,0.1\n").replace("0.4", "2,0.4"),
         "id," + FIRST.replace("0.2,0.5,0.1\n", "2,0.2,0.5,0.1\n").replace("0.4", "1,0.4"),
         "order of .* by column id", ""),
        (WEIGHTED, WEIGHTED.replace("_y", "_z"), "expected the classes of a.csv", ""),
        (WEIGHTED, WEIGHTED.replace("3,x", "2,x"), "expected the weights of a.csv", "--weights w"),
        (WEIGHTED, WEIGHTED, "--groups and --features: expected one model", "--groups w"),
        (FIRST, None, "none.csv: cannot be read", "none.csv"),
        (FIRST, None, "expected files of different names", "a.csv"),
    ],
)  # fmt: skip
def test_several_files(
    first, second, message, options, written, calls, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    written(first, "a.csv")
    files = ["a.csv", "b.csv"] if second else ["a.csv"]
    if second:
        written(second, "b.csv")
    assert re.search(message, refused([*files, *options.split()], capsys))
    assert not calls


PIECES = b'0123456789.,;-eE"\n\r\t\0 naif'


def damaged(content, rng):
    """Some bytes left out, and others put in their place."""
    text = bytearray(content)
    for _ in range(rng.randint(1, 5)):
        i = rng.randrange(len(text) + 1)
        put = rng.choices(PIECES, k=rng.randint(0, 9)), text[i : i + 30], [rng.randrange(256)]
        text[i : i + rng.choice((0, 0, 1, 20))] = bytes(rng.choice(put))
    return bytes(text)


def test_damaged_files(written):
    rng, refusals = random.Random(".csv"), 0
    files = [GOOD.encode(), NORMAL.encode(), b"y,prob\nFalse,0.25\nTrue,0.5\nTrue,0.75\n"]
    for _ in range(150):
        path = written(damaged(rng.choice(files), rng))
        try:
            load(path)
        except InputError as error:
            refusals += 1
            line = " ".join(str(error).split())
            assert path in line
            assert len(line) < 600
            assert line.isprintable()
    assert refusals > 100


def test_files_that_are_too_large(monkeypatch, tmp_path):
    """A byte more than allowed is refused, and nothing is cut off."""
    path = tmp_path / "data.csv"
    path.write_text(GOOD)
    monkeypatch.setattr(reading, "_LARGEST", len(GOOD))
    load(path)
    monkeypatch.setattr(reading, "_LARGEST", len(GOOD) - 1)
    with pytest.raises(InputError, match="expected at most 1 GiB"):
        load(path)
