"""Experiments of the papers, one folder each; see `python -m paper_repro --help`."""

import experiments.harness  # noqa: F401, looks for the packages that the experiments need
