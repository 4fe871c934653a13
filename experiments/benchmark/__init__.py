"""Time and memory of calibjax: `python -m experiments.benchmark.peers` and `.memory`."""
