"""The download of public data, from a server on this machine that misbehaves as servers do."""

import hashlib
import http.server
import re
import threading

import numpy as np
import pytest

from paper_repro.data import download
from paper_repro.data.download import File

CONTENTS = {
    name: np.random.default_rng([*name.encode()]).bytes(size)
    for name, size in (
        ("one/a.csv", 200_000),
        ("one/b c.npy", 70_000),
        ("two/c/d.csv", 300_001),
        ("two/e.csv", 5),
    )
}
FILES = [
    File(path, len(content), hashlib.sha256(content).hexdigest(), "", f"the source of {path}")
    for path, content in CONTENTS.items()
]
FILE = FILES[0]


class Server(http.server.ThreadingHTTPServer):
    """Files by path; those in `cut` end early, by path after so many bytes."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.contents = dict(CONTENTS)
        self.cut = {}
        self.knows_ranges = True
        self.requests = []  # (path, Range)

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}/mirror"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        path = self.path.removeprefix("/mirror/").replace("%20", " ")
        asked = self.headers["Range"]
        self.server.requests.append((path, asked))
        content = self.server.contents.get(path)
        if content is None:
            self.send_error(404)
            return
        start = 0
        if asked and self.server.knows_ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
            self.send_response(206)
            size = len(content)
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : self.server.cut.get(path)])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def found_in(folder):
    """Contents of all files of a folder, by path."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def run(folder, server, *options, files=FILES):
    return download.main([str(folder), "--from", server.address, *options], files)


def test_all_files_once(server, tmp_path, capsys):
    folder = tmp_path / "new" / "data"
    assert run(folder, server) == 0
    assert found_in(folder) == CONTENTS
    assert server.requests == [(path, None) for path in CONTENTS]
    assert "4 files fetched, 0 were there, 0 failed" in capsys.readouterr().out
    assert run(folder, server) == 0
    assert len(server.requests) == 4  # nothing is fetched again
    assert "0 files fetched, 4 were there, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_failures_are_named_and_the_others_kept(server, tmp_path, capsys, knows_ranges):
    """A download that was interrupted goes on, or begins again with servers that cannot."""
    server.knows_ranges = knows_ranges
    path, missing, cut, good = CONTENTS
    server.contents[path] = bytes(FILE.size)
    del server.contents[missing]
    server.cut[cut] = 100_000
    assert run(tmp_path, server) == 1
    assert found_in(tmp_path) == {good: CONTENTS[good], f"{cut}.part": CONTENTS[cut][:100_000]}
    out, err = capsys.readouterr()
    assert f"{path}: expected SHA-256 {FILE.sha256}, got " in err
    assert f"{missing}: the server says 404 Not Found" in err
    assert f"{cut}: the connection ended after 100000 of 300001 bytes" in err
    assert "1 files fetched, 0 were there, 3 failed" in out
    server.contents, server.cut, server.requests = dict(CONTENTS), {}, []
    assert run(tmp_path, server) == 0
    assert found_in(tmp_path) == CONTENTS
    assert server.requests == [(path, None), (missing, None), (cut, "bytes=100000-")]


def test_a_folder_as_mirror(tmp_path, capsys):
    for path, content in CONTENTS.items():
        (tmp_path / "from" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "from" / path).write_bytes(content)
    (tmp_path / "from" / "one" / "a.csv").write_bytes(b"short")
    (tmp_path / "from" / "two" / "e.csv").unlink()
    assert download.main([str(tmp_path / "to"), "--from", str(tmp_path / "from")], FILES) == 1
    assert found_in(tmp_path / "to") == {path: CONTENTS[path] for path in [*CONTENTS][1:3]}
    err = capsys.readouterr().err
    assert "one/a.csv: expected 200000 bytes, got 5 at" in err
    assert "two/e.csv: [Errno 2] No such file or directory" in err


def test_the_table():
    files = download.read_files()
    assert len({file.path for file in files}) == len(files) > 10
    for file in files:
        assert re.fullmatch(r"([a-z0-9_]+/)+[a-z0-9_=]+\.(csv|npy|data|names)", file.path)
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert file.size > 0
        assert file.source
        assert not file.url or file.url.startswith("https://")


def test_the_table_is_that_of_the_data(data_dir):
    for file in download.read_files():
        assert download.is_right(file, data_dir / file.path), file.path
