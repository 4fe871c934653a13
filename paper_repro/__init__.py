"""Experiments of the papers, one runnable module each; see `python -m paper_repro --help`."""

from paper_repro import extras

extras.require("tqdm", "matplotlib", "sklearn")
