import os
import subprocess
import sys
import threading

import pytest

from calibjax._core import files as files


def files_of(folder):
    """Names of all files."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_what_fails_to_be_written_leaves_nothing(tmp_path, monkeypatch):
    def failing(*arguments):
        raise OSError("no space left on device")

    files.write(tmp_path / "a", "before")
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            with pytest.raises(OSError, match="no space left"):
                files.write(tmp_path / "a", "after")
        assert files_of(tmp_path) == ["a"]
        assert (tmp_path / "a").read_text() == "before"


KILLED = """
import os, sys, time
from pathlib import Path
from calibjax._core import files as files
os.replace = lambda *names: (print(names[0], flush=True), time.sleep(60))
files.write(Path(sys.argv[1]) / "a", "new")
"""


def test_what_a_killed_process_leaves_is_removed(tmp_path):
    """But not what belongs to a process that runs, such as this one."""
    kept = tmp_path / f".a.00000000{files._suffix(os.getpid())}"
    kept.write_text("")
    command = [sys.executable, "-c", KILLED, tmp_path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    left = process.stdout.readline().strip()
    process.kill()
    process.communicate()
    assert files_of(tmp_path) == sorted([os.path.basename(left), kept.name])
    files.write(tmp_path / "b", "other")
    assert files_of(tmp_path) == sorted([kept.name, "b"])


def test_threads_write_the_same_file(tmp_path):
    def write():
        for _ in range(20):
            files.write(tmp_path / "a", "x" * 10_000)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files_of(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "x" * 10_000
