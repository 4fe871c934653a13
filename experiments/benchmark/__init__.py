"""Speed and memory of calibjax against plain loops; `python -m experiments.benchmark`."""

from paper_repro import extras

extras.require("ot")
