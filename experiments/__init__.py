"""Our own studies and benchmarks, one runnable module each, and the harness of all experiments."""

from experiments.harness import extras

extras.require("tqdm", "matplotlib", "sklearn")
