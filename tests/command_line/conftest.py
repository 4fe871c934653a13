"""Files, and an evaluation that is not computed."""

import pytest

from calibjax.command_line import program
from tests.command_line.examples import EVALUATION


@pytest.fixture
def calls(monkeypatch):
    """The arguments of `evaluate` and `compare`, which return an example."""
    calls = []

    def called(*arguments, **options):
        calls.append((arguments, options))
        return EVALUATION

    for name in ("evaluate", "compare"):
        monkeypatch.setattr(program, name, called)
    return calls


@pytest.fixture
def written(tmp_path):
    """Writes files; returns their paths."""

    def written(content, name="my data.csv"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return written
