"""The C loops of reference.c, compiled when they are needed."""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

_DOUBLES = np.ctypeslib.ndpointer(np.float64, flags="C_CONTIGUOUS")
_INTEGERS = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")
_SIZE = ctypes.c_int64
# As fast as C gets without intrinsics: vectors as wide as the processor has them, on all cores.
FAST = "-O3", "-ffast-math", "-march=native", "-fopenmp"


class Reference:
    """Compiled C loops.

    Args:
        flags: options for gcc.

    Raises:
        SystemExit: if there is no gcc, or it fails.
    """

    def __init__(self, *flags: str) -> None:
        """Compiles and loads the loops."""
        if shutil.which("gcc") is None:
            raise SystemExit("experiments.benchmark needs gcc for the loops it compares with")
        source = Path(__file__).with_name("reference.c")
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "reference.so"
            command = ["gcc", *flags, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                raise SystemExit(f"{' '.join(command)} failed:\n{result.stderr}")
            self._library = ctypes.CDLL(str(library))  # stays loaded without the file
        for name, *types in (
            ("skce", _SIZE, _DOUBLES, _DOUBLES, _DOUBLES),
            ("skce_diagonal", _SIZE, _SIZE, _DOUBLES, _DOUBLES, _DOUBLES),
            ("skce_classes", _SIZE, _SIZE, _DOUBLES, _INTEGERS),
        ):
            function = getattr(self._library, name)
            function.restype, function.argtypes = ctypes.c_double, types
        self._library.bootstrap.argtypes = [
            ctypes.c_int64,
            _DOUBLES,
            ctypes.c_int64,
            ctypes.c_uint64,
            _DOUBLES,
        ]

    def skce(self, loc: np.ndarray, scale: np.ndarray, targets: np.ndarray) -> float:
        """Unbiased SKCE of normal predictions with all length scales one."""
        return self._library.skce(len(loc), loc, scale, targets)

    def skce_diagonal(self, loc: np.ndarray, scale: np.ndarray, targets: np.ndarray) -> float:
        """The same of independent components, [d, n] each."""
        return self._library.skce_diagonal(loc.shape[1], len(loc), loc, scale, targets)

    def skce_classes(self, probs: np.ndarray, labels: np.ndarray) -> float:
        """Unbiased SKCE of probabilities [d, n], kernel exp(−TV) times the white kernel."""
        return self._library.skce_classes(probs.shape[1], len(probs), probs, labels)

    def bootstrap(self, matrix: np.ndarray, num_samples: int, seed: int = 1) -> np.ndarray:
        """Bootstrapped values of n SKCE for a matrix of the calibration kernel [n, n]."""
        row = matrix.mean(1)
        centred = np.ascontiguousarray(matrix - row - row[:, None] + row.mean())
        values = np.empty(num_samples)
        if self._library.bootstrap(len(matrix), centred, num_samples, seed, values):
            raise MemoryError("no memory for the indices of a resample")
        return values
