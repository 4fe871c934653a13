"""Packages that only some need: imported where they are used, named where they are missing."""

import importlib
from types import ModuleType


def imported(module: str, use: str, extra: str) -> ModuleType:
    """A module of an optional dependency.

    Args:
        module: its name.
        use: what needs which package, the beginning of the message of the error.
        extra: the extra of calibjax that installs the package.

    Raises:
        ImportError: if it is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{use}, which is not installed: pip install 'calibjax[{extra}]'"
        ) from error
