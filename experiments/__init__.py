"""Our own studies and benchmarks, one runnable module each."""
