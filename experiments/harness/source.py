"""The project's own code: where it lies, and what its modules are called."""

from pathlib import Path

ROOT = Path(__file__).parents[2]  # holds the rooms `experiments` and `paper_repro`


def name_of(file: str | Path) -> str:
    """Name that a module of a room is run or imported by, without `__main__` and `__init__`."""
    parts = Path(file).resolve().relative_to(ROOT.resolve()).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] in ("__main__", "__init__") else parts)
