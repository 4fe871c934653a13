import re

from calibjax import plotting
from experiments import gallery
from experiments.harness.source import ROOT

FOLDER = ROOT / "experiments" / "results" / "gallery"
FILES = {path.stem: path for path in FOLDER.iterdir()}


def test_every_figure_is_in_the_gallery():
    drawn, public = gallery.FIGURES.keys(), {*plotting.__all__, "isotonic_reliability_diagram"}
    assert drawn ^ public == set(), "expected a function of each name in experiments/gallery.py"
    assert FILES.keys() ^ public == set(), f"expected a file of each name in {FOLDER}"


def test_files_are_small():
    assert sum(path.stat().st_size for path in FILES.values()) < 1_000_000


def test_the_page_shows_and_names_all():
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    shown = re.findall(r"\]\(experiments/results/gallery/([^)]*)\)", page)
    assert set(shown) ^ {path.name for path in FILES.values()} == set(), "in docs/gallery.md"
    missing = [name for name in plotting.__all__ if f"`plotting.{name}`" not in page]
    assert missing == [], "name it in docs/gallery.md"
