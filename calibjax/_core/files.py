"""Files that are either there completely or not at all."""

import os
import secrets
from pathlib import Path


def write(path: Path, content: str | bytes) -> None:
    """Writes a file that is either there completely or not at all.

    Two processes, or threads, may write the same file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())  # or the name may survive a loss of power, and not the content
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
