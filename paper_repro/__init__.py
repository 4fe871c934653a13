"""Experiments of the papers, one runnable module each; see `python -m paper_repro --help`."""
