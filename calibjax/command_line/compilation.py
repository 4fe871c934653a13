"""How the program compiles: quickly, since most programs run once, and once for all runs."""

import contextlib
import hashlib
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import jax
import numpy as np

from calibjax._core.compilation import all_quickly
from calibjax.distributions import Samples
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.evaluation.assembly import OVERALL
from calibjax.evaluation.comparing import OF_PAIRS

NO_CACHE = "--no-cache"
_LARGEST = 200 * 2**20  # bytes that are kept
_FEW = 20_000  # predicted numbers, up to which compiling well takes longer than it saves
_FEW_OF_CLASSES = 200_000  # the same for probabilities
_FEW_PAIRS = 1_500_000  # rows times predicted numbers, the same for tests of all pairs


def prepare(*, keeps_programs: bool) -> str:
    """Settings of this process, before JAX computes anything.

    What the user has set in the environment stays.

    Args:
        keeps_programs: in the user's cache folder, for the next run.

    Returns:
        Where programs are kept, in words, if the folder is new; else nothing.
    """
    all_quickly()
    if not keeps_programs or os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return ""
    folder = _user_folder() / "calibjax" / _machine()
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _forget_oldest(folder)
    except OSError as error:
        return f"compiled programs are not kept: {folder}: {error.strerror}"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if not is_new:
        return ""
    told = "the first run compiles its programs, which takes most of its time; they are kept in "
    return f"{told}{folder}; {NO_CACHE} keeps none"


@contextlib.contextmanager
def suitably(predictions: Distribution) -> Iterator[Callable[[str], None]]:
    """Programs are hardly optimised where that would take longer than they run.

    Yields:
        A function to call with the name of each part of the evaluation as it begins. Tests of all
        pairs of rows are optimised earlier than the other parts: always, for distributions of
        numbers, whose kernels take the longest. What runs long of classes is optimised anyway.
    """
    name = "jax_disable_most_optimizations"
    before = jax.config.values[name]
    arrays = jax.tree.leaves(predictions)
    num_values = sum(map(np.size, arrays))
    has_classes = has_class_probs(predictions)
    is_cheap = has_classes or isinstance(predictions, Samples)
    has_few_pairs = is_cheap and len(arrays[0]) * num_values <= _FEW_PAIRS

    def begins(part: str) -> None:
        is_short = num_values <= (_FEW_OF_CLASSES if has_classes else _FEW)
        if part in OF_PAIRS or (part == OVERALL and not has_classes):
            is_short = has_few_pairs
        jax.config.update(name, before or is_short)

    begins(OVERALL)  # whose kernels are chosen before it
    try:
        yield begins
    finally:
        jax.config.update(name, before)


@contextlib.contextmanager
def without_warnings_of_loaded_programs() -> Iterator[TextIO]:
    """Leaves out what XLA writes to the standard error for each program of the cache.

    It takes settings of its own ("+prefer-no-gather") for parts of another processor. All other
    lines pass. What is written to the file that it returns passes at once.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    source, sink = os.pipe()

    def forward() -> None:
        with open(source, "rb") as lines:
            for line in lines:
                if b"cpu_aot_loader.cc" not in line:
                    os.write(kept, line)

    thread = threading.Thread(target=forward)
    thread.start()
    os.dup2(sink, 2)
    os.close(sink)
    with open(kept, "w") as file:
        try:
            yield file
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)  # which ends the pipe
            thread.join()


def _machine() -> str:
    """A name for the kind of processor, which programs are compiled for."""
    described = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):  # Linux has it
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        described += "".join(sorted({x for x in lines if x.startswith(("flags", "Features"))}))
    return f"{platform.machine()}-{hashlib.sha256(described.encode()).hexdigest()[:12]}"


def _user_folder() -> Path:
    """Where programs of this user keep what they can make again."""
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")


def _forget_oldest(folder: Path) -> None:
    """Removes the programs that were not used for longest from a folder that has become large."""
    found = []
    for path in filter(Path.is_file, folder.iterdir()):
        with contextlib.suppress(FileNotFoundError):  # another process may remove it, too
            status = path.stat()
            found.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    size = 0
    for _, bytes_, path in sorted(found, reverse=True):
        size += bytes_
        if size > _LARGEST:
            path.unlink(missing_ok=True)
