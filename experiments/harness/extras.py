"""Packages that the experiments need beside those of calibjax itself."""

import importlib.util
import sys
from types import ModuleType

from calibjax._core import environment

# Package: what it is for, and the extra that installs it.
USES = {
    "tqdm": ("the experiments show their progress with tqdm", "repro"),
    "matplotlib": ("the experiments draw with matplotlib", "repro"),
    "sklearn": ("some experiments use scikit-learn", "repro"),
}


class MissingExtra(ImportError):
    """One of these packages is not installed."""


def imported(module: str) -> ModuleType:
    """A module of one of the packages in `USES`.

    Raises:
        MissingExtra: if it is not installed; says how to install it.
    """
    try:
        return environment.imported(module, *USES[module.partition(".")[0]])
    except ImportError as error:
        raise MissingExtra(str(error)) from error


def require(*packages: str) -> None:
    """Looks for packages before a package of experiments imports its modules.

    Raises:
        MissingExtra: if one is missing, and modules are imported.
        SystemExit: if one is missing, and a program is run: one line says which, status 2.
    """
    try:
        for package in packages:
            # scikit-learn is slow to import, which is left to those that use it.
            if package != "sklearn" or importlib.util.find_spec(package) is None:
                imported(package)
    except MissingExtra as error:
        if sys.argv[0] != "-m":  # as it is while `python -m` looks for a module
            raise
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
