"""Speed and memory of calibjax against plain loops; `python -m experiments.benchmark`."""
