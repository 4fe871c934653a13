"""The program from its arguments to what it prints and writes."""

import html
import json
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile

import jax
import numpy as np
import pytest

import calibjax
from calibjax import command_line
from calibjax._core import environment
from calibjax.command_line import load, program
from calibjax.command_line.program import main
from experiments.harness.source import ROOT
from tests.command_line.examples import EVALUATION, GOOD


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my <data>.csv"
    path.write_text(GOOD)
    return path


PAGE = pathlib.Path(__file__).with_name("page.html")
STYLE = pathlib.Path(calibjax.__file__).parent / "command_line" / "style.css"


def report_of(file, report, *options):
    """The page of a file, without what differs between machines and days."""
    assert main([str(file), "--report", str(report), *options]) == 0
    text = report.read_text("utf-8").replace(str(file.parent), "FOLDER")
    text = text.replace(STYLE.read_text("utf-8").strip(), "STYLE")
    text = text.replace(f"calibjax {calibjax.__version__}", "calibjax VERSION")
    return re.sub(r"(data:image/svg\+xml;base64,)[^\"]+", r"\1DRAWING", text)


def test_prints_what_was_read_and_found(file, calls, capsys):
    assert main([str(file)]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert f"file: {file}\npredictions: classes: prob_0, prob_1\n" in output.out
    assert output.out.endswith(f"\n\n{EVALUATION}\n")
    [((key, predictions, targets), others)] = calls
    assert (jax.random.key_data(key) == jax.random.key_data(jax.random.key(0))).all()
    np.testing.assert_array_equal(predictions.probs, [[0.25, 0.75], [0.5, 0.5], [0.1, 0.9]])
    np.testing.assert_array_equal(targets, [1, 0, 1])
    assert callable(others.pop("progress"))
    assert others == {
        "groups": None,
        "features": None,
        "weights": None,
        "class_names": ("0", "1"),
    }


def test_json(file, calls, capsys):
    file.write_text(
        "prob_cat,prob_dog,label,group_a,group_b,x\n0.5,0.5,dog,1,2,\n,,cat,1,1,\n0.5,0.5,cat,1,1,"
    )
    options = ["--seed", "7", "--skip-missing", "--groups", "group_*"]
    assert main([str(file), "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    about = found.pop("input")
    assert about["rows"] == "2 (1 more lack a value)"
    assert about["groups"] == "columns group_a, group_b"
    assert (about["not used"], about["seed"]) == ("x", "7")
    assert found == json.loads(EVALUATION.to_json())
    assert found["sections"][1]["entries"][1]["value"] is None  # NaN
    [((key, *_), options)] = calls
    assert (jax.random.key_data(key) == jax.random.key_data(jax.random.key(7))).all()
    assert options["groups"] == {"group_a": ["1", "1"], "group_b": ["2", "1"]}
    assert options["class_names"] == ("cat", "dog")


def test_report(file, calls, tmp_path):
    """The whole page; `python -m tests.command_line.test_program` writes page.html anew."""
    report = tmp_path / "report.html"
    report.write_text("an older one")
    text = report_of(file, report)
    assert text == PAGE.read_text("utf-8")
    assert sorted(tmp_path.iterdir()) == sorted([file, report])
    assert "default-src 'none'" in text
    assert not re.search("<script|<link|http:", text)  # nothing comes from elsewhere


def test_python_of_the_report(file, calls, tmp_path, capsys):
    """The lines that it shows give the data that were evaluated."""
    report = tmp_path / "report.html"
    arguments = [str(file), "--report", str(report), "--seed", "3"]
    assert main(arguments) == 0
    [code] = re.findall("<code>([^<]*command_line.load[^<]*)", report.read_text())
    code = html.unescape(code)
    names = {"jax": jax, "command_line": command_line, "evaluate": program.evaluate}
    exec(code[code.index("data =") :], names)
    assert names["result"] is EVALUATION
    np.testing.assert_array_equal(names["targets"], calls[0][0][2])
    np.testing.assert_array_equal(names["predictions"].probs, calls[0][0][1].probs)
    assert (jax.random.key_data(names["key"]) == jax.random.key_data(calls[0][0][0])).all()
    assert load(arguments).classes == ("0", "1")


def test_report_without_matplotlib(file, calls, tmp_path, capsys, monkeypatch):
    def missing(module, use, extra):
        raise ImportError(f"{use}, which is not installed: pip install 'calibjax[{extra}]'")

    monkeypatch.setattr(environment, "imported", missing)
    report = tmp_path / "report.html"
    assert main([str(file), "--report", str(report)]) == 0
    text = report.read_text()
    assert ">The figures are left out: calibjax" in text
    assert "<img" not in text


def test_places_of_the_report_that_are_refused(file, calls, tmp_path, capsys):
    long = tmp_path / ("x" * 300)
    for place in (tmp_path, tmp_path / "none" / "report.html", file, os.devnull, long):
        assert main([str(file), "--report", str(place)]) == 2 - (place == long)
        assert re.match("calibjax: (--report: |the output cannot)", capsys.readouterr().err)
    assert file.read_text() == GOOD
    assert calls == []
    assert main([str(file), "--report", str(tmp_path / ("x" * 250))]) == 0


def test_report_that_cannot_be_written(file, calls, tmp_path, capsys, monkeypatch):
    report = tmp_path / "report.html"
    report.write_text("an older one")
    monkeypatch.setattr(os, "replace", lambda *_: pathlib.Path("/dev/full").write_bytes(b"x"))
    assert main([str(file), "--report", str(report)]) == 1
    assert "cannot be written (No space left on device)" in capsys.readouterr().err
    assert {*tmp_path.iterdir()} == {file, report}
    assert report.read_text() == "an older one"


def test_report_through_a_link(file, calls, tmp_path):
    report, link = tmp_path / "report.html", tmp_path / "link.html"
    report.write_text("an older one")
    report.chmod(0o640)
    link.symlink_to(report)
    assert main([str(file), "--report", str(link)]) == 0
    assert link.is_symlink()
    assert report.stat().st_mode & 0o777 == 0o640
    assert "What was found" in report.read_text()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="of devices and pipes")
@pytest.mark.parametrize(
    ("output", "before", "status", "line"),
    [
        ("/dev/full", "", 1, "calibjax: the output cannot be written (No space left on device)"),
        ("pipe", "", 1, ""),
        ("/dev/null", "os.kill(os.getpid(), signal.SIGINT)", 130, "calibjax: interrupted"),
        ("/dev/null", "raise MemoryError", 2, "calibjax: the files need more memory than there"),
    ],
)
def test_output_that_cannot_be_written(output, before, status, line, file):
    code = f"""
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it is ignored outside
from calibjax.command_line import program
from tests.command_line.examples import EVALUATION
def evaluate(*arguments, **options):
    {before}
    return EVALUATION
program.evaluate = evaluate
raise SystemExit(program.main())"""
    reader, writer = os.pipe()
    os.close(reader)
    writer = writer if output == "pipe" else os.open(output, os.O_WRONLY)
    command = [sys.executable, "-c", code, str(file)]
    environment = {"PYTHONIOENCODING": "ascii", "JAX_COMPILATION_CACHE_DIR": str(file.parent)}
    how = {"cwd": ROOT, "env": os.environ | environment, "text": True}
    process = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, **how)
    os.close(writer)
    assert process.returncode == status
    assert "Traceback" not in process.stderr
    lines = [x for x in process.stderr.splitlines() if x.startswith("calibjax")]
    assert "".join(lines).startswith(line)
    assert len(lines) == bool(line)


@pytest.mark.skipif(os.name != "posix", reason="of signals")
def test_interrupted_while_it_is_imported():
    # Signals that are ignored where the tests run are ignored here, too, before Python starts.
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code += "; sys.argv[0] = 'bin/calibjax'; from calibjax import _start"
    command = [sys.executable, "-c", f"{code}; signal.raise_signal(signal.SIGINT)"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # XLA may have said something about the machine before.
    last = process.stderr.splitlines()[-1]
    assert (process.returncode, last) == (130, "calibjax: interrupted")


@pytest.mark.skipif(os.name != "posix", reason="of pipes, and names of bytes")
def test_names_of_files(file, calls, tmp_path, capsys):
    strange = tmp_path / os.fsdecode(b"caf\xe9\x1b[31m.csv")
    file.rename(strange)
    report = tmp_path / "report.html"
    assert main([str(strange), "--report", str(report)]) == 0
    assert "\x1b" not in capsys.readouterr().out + report.read_text("utf-8")


def test_run_as_a_module(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["calibjax", str(tmp_path / "none.csv")])
    with pytest.raises(SystemExit) as error:
        runpy.run_module("calibjax", run_name="__main__")
    assert error.value.code == 2
    line = f"calibjax: {tmp_path / 'none.csv'}: cannot be read (No such file or directory)\n"
    assert capsys.readouterr().err == line


def test_importing_starts_no_device():
    # Somebody may still choose the platform, the number of devices or a distributed run.
    code = "import jax, calibjax; jax.config.update('jax_num_cpu_devices', 3)"
    code += "; assert jax.device_count() == 3"
    how = {"env": os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, **how)


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """Changes of JAX's settings, which are not made."""
    changed = {}
    monkeypatch.setattr(jax.config, "update", changed.__setitem__)
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true")
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_DISABLE_MOST_OPTIMIZATIONS"):
        monkeypatch.delenv(name, raising=False)
    return changed


def test_programs_are_hardly_optimised_and_kept(settings, tmp_path, monkeypatch):
    """In a folder to which nobody else has access, up to a size; unless the user says otherwise."""
    program.prepare()
    folder = tmp_path / ".cache" / "calibjax"
    assert settings["jax_disable_most_optimizations"]
    assert settings["jax_compilation_cache_dir"] == str(folder)
    assert os.environ["XLA_FLAGS"] == "--xla_cpu_use_fusion_emitters=true"
    assert folder.stat().st_mode & 0o777 == 0o700 or os.name != "posix"
    for name in ("a", "b"):
        (folder / name).write_bytes(b"x" * 10)
    program.prepare()
    assert len([*folder.iterdir()]) == 2
    monkeypatch.setattr(program, "_LARGEST", 19)
    program.prepare()
    assert not [*folder.iterdir()]
    settings.clear()
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    program.prepare()
    assert not settings


def test_no_folder_for_programs(settings, monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", home)
    program.prepare()
    assert list(settings) == ["jax_disable_most_optimizations"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "my <data>.csv")
        path.write_text(GOOD)
        program.evaluate = lambda *arguments, **options: EVALUATION
        PAGE.write_text(report_of(path, path.with_name("report.html")), "utf-8")
