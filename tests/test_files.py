import os
import threading

import pytest

from experiments.harness import data_files


def files_of(folder):
    """Names of all files."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_what_fails_to_be_written_leaves_nothing(tmp_path, monkeypatch):
    def failing(*arguments):
        raise OSError("no space left on device")

    data_files.write(tmp_path / "a", "before")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing)
        with pytest.raises(OSError, match="no space left"):
            data_files.write(tmp_path / "a", "after")
    assert files_of(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "before"


def test_threads_write_the_same_file(tmp_path):
    def write():
        for _ in range(20):
            data_files.write(tmp_path / "a", "x" * 10_000)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files_of(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "x" * 10_000
