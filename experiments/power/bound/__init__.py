"""Power of tests beside the largest that is possible; `python -m experiments.power.bound`."""
