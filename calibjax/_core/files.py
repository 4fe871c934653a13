"""Files that are either there completely or not at all."""

import os
import platform
import secrets
from pathlib import Path


def write(path: Path, content: str | bytes) -> None:
    """Writes a file that is either there completely or not at all.

    Two processes, or threads, may write the same file. What a process that was killed left behind
    is removed by the next one that writes to the folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_suffix(os.getpid())}")
    try:
        with temporary.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())  # or the name may survive a loss of power, and not the content
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _suffix(process: int | str) -> str:
    """End of the names of temporary files of a process of this machine."""
    return f".{platform.node()}-{process}.tmp"


def _remove_leftovers(folder: Path) -> None:
    """Removes temporary files of processes of this machine that do not run any more."""
    before, after = _suffix("#").split("#")
    with os.scandir(folder) as entries:
        names = [x.name for x in entries if x.name.startswith(".") and x.name.endswith(after)]
    for name in names:
        _, found, process = name.removesuffix(after).rpartition(before)
        if found and process.isdecimal() and not _is_running(int(process)):
            (folder / name).unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    if os.name != "posix":  # where nobody can ask without sending a signal
        return True
    try:
        os.kill(process, 0)  # which sends nothing
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True
