"""How the program compiles: quickly, since most programs run once, and once for all runs."""

import contextlib
import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from calibjax._core.batches import compile_quickly
from calibjax.distributions.base import Distribution

NO_CACHE = "--no-cache"
_LARGEST = 200 * 2**20  # bytes that are kept
_FEW = 20_000  # predicted numbers, up to which compiling well takes longer than it saves


def prepare(*, keeps_programs: bool) -> str:
    """Settings of this process, before JAX computes anything.

    What the user has set in the environment stays.

    Args:
        keeps_programs: in the user's cache folder, for the next run.

    Returns:
        Where programs are kept, in words, if the folder is new; else nothing.
    """
    compile_quickly()
    # XLA warns of each program of the cache that it takes settings for another processor.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if not keeps_programs or os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return ""
    folder = _user_folder() / "calibjax" / _machine()
    is_new = not folder.exists()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own(folder):
            return f"compiled programs are not kept: others have access to {folder}"
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
def suitably(predictions: Distribution) -> Iterator[None]:
    """Programs are hardly optimised where that would take longer than they run."""
    is_small = sum(map(np.size, jax.tree.leaves(predictions))) <= _FEW
    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)
    jax.config.update(name, before or is_small)
    try:
        yield
    finally:
        jax.config.update(name, before)


def _is_own(folder: Path) -> bool:
    """Whether a folder belongs to the user, and nobody else may look into it."""
    if not hasattr(os, "getuid"):  # Windows keeps it in the user's profile
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o077


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
    found = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return found if found.is_absolute() else home / ".cache"  # as the specification says


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
