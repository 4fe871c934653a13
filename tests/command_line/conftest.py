"""Published data, as options of the program."""

import pytest


def options_of(data_dir, folder, *names):
    """Paths of files of a folder, or a skip where it is not there."""
    paths = [data_dir / folder / name for name in names]
    if not all(path.is_file() for path in paths):
        pytest.skip(f"no {folder} in the folder of the published data")
    return list(map(str, paths))


@pytest.fixture
def network(data_dir):
    file, labels = options_of(data_dir, "cifar10_networks", "resnet18.csv", "labels.csv")
    return [file, "--task", "classification", "--labels", labels, "--first-label", "1"]


@pytest.fixture
def forecasts(data_dir):
    [file] = options_of(data_dir, "temperature_ensemble", "temp.csv")
    return [file, "--task", "ensembles", "--target", "temp", "--predictions", "tempfc.*"]


@pytest.fixture
def written(tmp_path):
    """Writes files; returns their paths."""

    def written(ending, content, name="my data"):
        path = tmp_path / f"{name}{ending}"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return written
