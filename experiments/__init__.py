"""Our own studies and benchmarks, one runnable module each."""

import paper_repro  # noqa: F401, looks for the packages that the experiments need
