"""Speed and memory of calibjax against plain loops; `python -m experiments.benchmark`."""

from experiments.harness import extras

extras.require("ot")
