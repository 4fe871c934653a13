"""Public files are read, or refused; what a refusal advises is right, or has places to fill in."""

import contextlib
import dataclasses
import io
import operator
import re
import shlex

import jax
import numpy as np
import pytest

from calibjax.command_line import load, program
from calibjax.command_line.program import main
from tests.command_line.examples import EVALUATION
from tests.command_line.public_files import FILES, SCORES, score

about = operator.attrgetter("about")
# Options that can be added as they are named.
_CHARACTER = r"--(?:sep|decimal)[ =](?:'[^']+'|\"[^\"]+\"|tab\b|[^\w\s])"
_READY = rf"{_CHARACTER}|--skip-missing\b"


def score_of(data):
    """The score of what was read; of several models by name."""
    if isinstance(data.predictions, dict):
        return {
            x: score_of(dataclasses.replace(data, predictions=p))
            for x, p in data.predictions.items()
        }
    family = type(data.predictions).__name__
    fields = [np.asarray(getattr(data.predictions, x)) for x in SCORES[family][0]]
    return score(family, *fields, np.asarray(data.targets), weights=data.weights)


def attempt(arguments, monkeypatch):
    """The score, or the message of a refusal, which is a line and a status."""
    for name in ("evaluate", "compare"):
        monkeypatch.setattr(program, name, lambda *arguments, **options: EVALUATION)
    output, error = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    streams = contextlib.redirect_stdout(output), contextlib.redirect_stderr(error)
    with streams[0], streams[1], jax.enable_x64(False):
        try:
            status = main(arguments)
        except SystemExit as end:  # of options
            status = end.code
    message = error.getvalue()
    if status == 0:
        return score_of(load(arguments))
    assert status == 2
    assert message.startswith("calibjax: ")
    assert message.replace("\n", "").isprintable()
    assert message.count("\n") <= 3
    assert len(message) < 1500
    return message


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """Writes the files into the folder of the process; returns the command line of one."""
    monkeypatch.chdir(tmp_path)

    def arguments(file, options=""):
        content = file.content
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / file.name).write_bytes(data)
        return [file.name, *shlex.split(options)]

    return arguments


@pytest.mark.parametrize("file", FILES, ids=about)
def test_without_options(file, arguments, monkeypatch):
    result = attempt(arguments(file), monkeypatch)
    if not isinstance(result, str):
        assert file.outcome != "refused", f"read in silence, with the score {result}"
        assert result == pytest.approx(file.score, rel=1e-4)
        return
    assert file.outcome != "read", result
    for word in file.words.split():
        assert re.search(word, result), f"{word} is missing in: {result}"


@pytest.mark.parametrize("file", [x for x in FILES if x.options], ids=about)
def test_with_the_right_options(file, arguments, monkeypatch):
    result = attempt(arguments(file, file.options), monkeypatch)
    if isinstance(result, str):
        assert file.outcome == "either", result
    else:
        assert result == pytest.approx(file.score, rel=1e-4)


def advised(message, arguments, file):
    """Command lines that a message advises, which can be run as they are."""
    text = file.content if isinstance(file.content, str) else ""
    known = {*re.split(r"[,;\t\r\n\"]", text)}  # capitals among these are no places to fill in
    for place in re.split(r"[`\n]|; ", message):
        for command in re.findall(r"calibjax ((?:FILE|\S+\.\w+) .*?)(?= or .*calibjax |$)", place):
            with contextlib.suppress(ValueError):  # a quotation mark of prose
                _, *words = shlex.split(command.rstrip(" .,)"))
                parts = {part for word in words for part in word.split("=")} - known
                if not any(re.fullmatch(r"[A-Z][A-Z_]*|.*(…|\.\.\.).*", x) for x in parts):
                    yield [file.name, *words]
    options = {*re.findall(r"--[a-z-]+[a-z]", message)}
    ready = {*re.findall(_READY, message)}
    if len(options) == len(ready) == 1:  # of several, a person has to choose
        yield [*arguments, *shlex.split(ready.pop())]


def follow(arguments, file, monkeypatch, steps=4):
    """Runs a command line, and what its refusals advise; yields scores with how they came about."""
    result = attempt(arguments, monkeypatch)
    if not isinstance(result, str):
        yield arguments, result
    elif steps:
        for more in advised(result, arguments, file):
            if more != arguments:
                yield from follow(more, file, monkeypatch, steps - 1)


@pytest.mark.parametrize("file", [x for x in FILES if x.outcome != "read"], ids=about)
def test_advice_that_runs_is_right(file, arguments, monkeypatch):
    for command, result in follow(arguments(file), file, monkeypatch):
        assert file.score is not None, f"{shlex.join(command)} reads what has no reading"
        assert result == pytest.approx(file.score, rel=1e-4), shlex.join(command)
