"""Downloads the public data that the experiments read below --data, and checks it.

`files.csv` lists the files with size, SHA-256 checksum, address and source. A file gets its name
only after its checksum was found right; until then it is `NAME.part`, from whose end the next call
goes on. Addresses of files in git repositories name a commit, so that the file stays what it is.
Where no public address is known the table has none, and says in words who publishes the file: such
a file comes from a mirror (--from), or is put in its place by hand and checked here. A file that is
there already is fetched again only where it is not the one of the table, and stays what it is until
the right one is complete.
"""

import argparse
import csv
import hashlib
import http.client
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import quote, urlsplit

from tqdm import tqdm

from experiments.harness.command_line import output_folder
from experiments.harness.messages import log

TABLE = Path(__file__).with_name("files.csv")
BLOCK = 1 << 16  # bytes that are read at once
TIMEOUT = 60.0  # seconds without an answer


class File(NamedTuple):
    """A file of the table.

    Attributes:
        path: where it is below --data, and below the address of a mirror.
        size: in bytes.
        sha256: checksum, in hexadecimal digits.
        url: public address; empty where none is known.
        source: who publishes it, in words.
    """

    path: str
    size: int
    sha256: str
    url: str
    source: str

    @property
    def folder(self) -> str:
        """The outermost folder, which --only names."""
        return self.path.partition("/")[0]


class FetchError(Exception):
    """Says in words why a file could not be fetched."""


def read_files(table: Path = TABLE) -> list[File]:
    """The files of the table."""
    with table.open(encoding="utf-8", newline="") as rows:
        return [File(**row | {"size": int(row["size"])}) for row in csv.DictReader(rows)]


def _checksum(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def is_right(file: File, path: Path) -> bool:
    """Whether this is the file of the table, byte by byte."""
    return path.is_file() and path.stat().st_size == file.size and _checksum(path) == file.sha256


def _address(file: File, origin: str | Path | None) -> str | Path:
    """Where a file is: below the mirror, or else its public address."""
    if isinstance(origin, Path):
        return origin / file.path
    address = f"{origin.rstrip('/')}/{quote(file.path)}" if origin else file.url
    if not address:
        known = "no public address is known"
        raise FetchError(f"{known}; get it from {file.source}, or use --from")
    return address


def _check_size(file: File, size: int, address: str | Path) -> None:
    if size != file.size:
        raise FetchError(f"expected {file.size} bytes, got {size} at {address}")


def _save(
    file: File, content: BinaryIO, part: Path, start: int, show: Callable[[int], object]
) -> None:
    """Writes what comes behind the first `start` bytes; one byte too many is enough to stop."""
    with part.open("ab" if start else "wb") as target:
        show(start)
        while start <= file.size and (block := content.read(BLOCK)):
            target.write(block)
            start += len(block)
            show(min(start, file.size))
        target.flush()
        os.fsync(target.fileno())  # or the name may survive a loss of power, and not the content
    if start < file.size:
        after = f"the connection ended after {start} of {file.size} bytes"
        raise FetchError(f"{after}; the same command goes on from there")


def _receive(
    file: File, address: str | Path, part: Path, start: int, show: Callable[[int], object]
) -> None:
    """Fetches a file but for its first `start` bytes, or all of it if the rest is not to be had."""
    if isinstance(address, Path):
        with address.open("rb") as content:
            _check_size(file, address.stat().st_size, address)
            _save(file, content, part, 0, show)
        return
    headers = {"User-Agent": "calibjax"} | ({"Range": f"bytes={start}-"} if start else {})
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        if response.status != 206:  # a server may ignore what is asked for, and send all
            start = 0
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise FetchError(f"got another part of the file than asked for from {address}")
        if (length := response.headers.get("Content-Length", "")).isdecimal():
            _check_size(file, start + int(length), address)
        _save(file, response, part, start, show)


def _resume(file: File, address: str | Path, part: Path, show: Callable[[int], object]) -> None:
    """Completes what an earlier call has left; removes it if it is not of this file."""
    start = part.stat().st_size
    if start < file.size:
        try:
            _receive(file, address, part, start, show)
        except urllib.error.HTTPError as error:
            if error.code != 416:  # the server's file is not that long
                raise
            error.close()
    if not is_right(file, part):
        part.unlink()


def fetch(
    file: File, folder: Path, origin: str | Path | None, show: Callable[[int], object]
) -> bool:
    """Fetches a file unless it is there.

    Args:
        file: the file.
        folder: what its path starts from.
        origin: address or folder of a mirror; None for the public addresses.
        show: is called with the number of bytes that are there.

    Returns:
        Whether anything had to be fetched.

    Raises:
        FetchError: if it cannot be had, or is another one. What is there keeps its place.
        OSError, http.client.HTTPException: if it cannot be had, or not be written.
    """
    path = folder / file.path
    if is_right(file, path):
        show(file.size)
        return False
    address = _address(file, origin)
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    if part.is_file():
        _resume(file, address, part, show)
    if not part.is_file():
        _receive(file, address, part, 0, show)
        if not is_right(file, part):
            found = _checksum(part)
            part.unlink()
            raise FetchError(f"expected SHA-256 {file.sha256}, got {found} from {address}")
    os.replace(part, path)
    return True


def _reason(error: Exception, file: File, origin: str | Path | None) -> str:
    """What went wrong, in one line."""
    if isinstance(error, FetchError):
        return str(error)
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        text = f"the server says {error.code} {error.reason}"
    else:
        text = str(getattr(error, "reason", error)) or type(error).__name__
    return f"{text} ({_address(file, origin)})".replace("\n", " ")


def download(files: Sequence[File], folder: Path, origin: str | Path | None = None) -> int:
    """Fetches files; a line names each one that failed, and the others are kept.

    Args:
        files: the files.
        folder: what their paths start from.
        origin: address or folder of a mirror; None for the public addresses.

    Returns:
        Number of files that failed.
    """
    total = sum(file.size for file in files)
    done, fetched, failed = 0, 0, 0
    with tqdm(total=total, unit="B", unit_scale=True, disable=not files) as bar:
        for file in files:
            bar.set_description(file.path, refresh=False)
            try:
                fetched += fetch(
                    file, folder, origin, lambda size, done=done: bar.update(done + size - bar.n)
                )
                done += file.size
            except (FetchError, OSError, http.client.HTTPException) as error:
                failed += 1
                is_other = (folder / file.path).is_file()
                kept = " (the file of this name that is there is another one)" if is_other else ""
                log(f"{file.path}: {_reason(error, file, origin)}{kept}", sys.stderr)
                bar.update(done - bar.n)
    there = len(files) - fetched - failed
    log(f"{folder}: {fetched} files fetched, {there} were there, {failed} failed")
    return failed


def mirror(text: str) -> str | Path:
    """Option type: an address, or a folder that is there."""
    if "://" not in text:
        if not Path(text).is_dir():
            raise argparse.ArgumentTypeError(f"expected an address or a folder, got {text}")
        return Path(text)
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError(f"expected http://... or https://..., got {text}")
    return text


def main(arguments: Sequence[str] | None = None, files: Sequence[File] | None = None) -> int:
    """Runs the program.

    Args:
        arguments: the arguments; None for those of the process.
        files: what can be downloaded; None for the table.

    Returns:
        The exit status: one if a file failed, else zero; that of wrong arguments is two.
    """
    files = read_files() if files is None else files
    folders = list(dict.fromkeys(file.folder for file in files))
    parser = argparse.ArgumentParser(
        prog="python -m paper_repro.data",
        usage="%(prog)s [-h] [--from URL-OR-FOLDER] [--only FOLDER [FOLDER ...]] DIR",
        description="Downloads the public data that the experiments read by --data DIR. It is run "
        "in the root of the repository.",
    )
    parser.add_argument("folder", nargs="?", metavar="DIR", help="where it is put")
    parser.add_argument(
        "--from",
        dest="origin",
        type=mirror,
        metavar="URL-OR-FOLDER",
        help="a mirror that has the files under the same paths (default: the public addresses)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[*folders],
        metavar="FOLDER",
        help=f"some of {', '.join(folders)}",
    )
    options = parser.parse_args(arguments)
    if options.folder is None and options.only[-1] not in folders:  # --only takes what is behind it
        options.folder = options.only.pop()
    if options.folder is None or not options.only:
        parser.error("the following arguments are required: DIR")
    for name in options.only:
        if name not in folders:
            parser.error(
                f"argument --only: invalid choice: {name!r} (choose from {', '.join(folders)})"
            )
    try:
        folder = output_folder(options.folder)
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument DIR: {error}")
    wanted = [file for file in files if file.folder in options.only]
    return 1 if download(wanted, folder, options.origin) else 0
