import re

from paper_repro import __main__ as everything
from paper_repro.data import download


def test_the_help_describes_every_experiment():
    """And names only folders that the download command knows."""
    text = everything.list_of_experiments()
    assert list(everything.ABOUT) == list(everything.EXPERIMENTS)
    assert all(f"  {name} " in text for name in everything.EXPERIMENTS)
    assert "root of the repository" in text
    assert max(map(len, text.splitlines())) < 90
    folders = {file.folder for file in download.read_files()}
    for about in everything.ABOUT.values():
        assert set(re.findall(r"[a-z0-9]+_[a-z]+", about.data)) <= folders
