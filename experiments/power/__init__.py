"""Power of the tests, with their level beside it; `python -m experiments.power`."""
