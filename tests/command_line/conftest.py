"""Published data, as options of the program."""

import pytest

from calibjax.command_line import program
from tests.command_line.examples import EVALUATION


def options_of(data_dir, folder, *names):
    """Paths of files of a folder, or a skip where it is not there."""
    paths = [data_dir / folder / name for name in names]
    if not all(path.is_file() for path in paths):
        pytest.skip(f"no {folder} in the folder of the published data")
    return list(map(str, paths))


@pytest.fixture
def network(data_dir):
    file, labels = options_of(data_dir, "cifar10_networks", "resnet18.csv", "labels.csv")
    classes = [f"{i}={i}" for i in range(1, 11)]
    return [file, "--labels", labels, "--no-header", "--classes", *classes]


@pytest.fixture
def forecasts(data_dir):
    [file] = options_of(data_dir, "temperature_ensemble", "temp.csv")
    return [file, "--target", "temp", "--members", "tempfc.*"]


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

    def written(ending, content, name="my data"):
        path = tmp_path / f"{name}{ending}"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return written
