import subprocess
import sys

import pytest

from experiments.harness import cells, command_line
from experiments.harness.source import ROOT
from paper_repro.w21 import ols


def test_wrong_options_are_named(capsys, tmp_path):
    parser = command_line.option_parser(
        cells.__file__, "", data="optional", presets=("quick", "paper")
    )
    with pytest.raises(SystemExit):
        command_line.parse(parser, ["--preset", "huge"])
    assert "argument --preset: invalid choice: 'huge'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command_line.parse(parser, ["--data", str(tmp_path / "missing")])
    assert "--data: expected a folder" in capsys.readouterr().err
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        command_line.parse(parser, ["--output", str(tmp_path / "file")])
    assert "--output: expected a folder, got the file" in capsys.readouterr().err
    run, _ = command_line.parse(parser, ["--data", str(tmp_path)])
    assert run.published("a", "b.csv") is None
    message = "No a in --data: the published numbers of a/b.csv are left empty."
    assert message in capsys.readouterr().out
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match=r"a/b\.csv, got none .*`python -m paper_repro"):
        run.published("a", "b.csv")


def test_output_that_cannot_be_made(capsys, tmp_path):
    parser = command_line.option_parser(cells.__file__, "")
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        command_line.parse(parser, ["--output", str(tmp_path / "file" / "a")])
    assert ended.value.code == 2
    expected = "argument --output: expected a folder that can be written to, got "
    assert f"{expected}{tmp_path / 'file' / 'a'} (" in capsys.readouterr().err
    command_line.parse(parser, ["--output", str(tmp_path / "a" / "b")])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]  # nothing is left behind


def test_an_experiment_without_data_has_no_such_option(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(command_line, "set_up", lambda run: None)  # which is for a whole process
    monkeypatch.setattr(sys, "argv", ["w21.ols", "--data", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        command_line.main(ols.run, ols.__file__, ols.__doc__)
    assert ended.value.code == 2
    assert "unrecognized arguments: --data" in capsys.readouterr().err


PROGRAM = """
import os
import sys
import jax
from pathlib import Path
from experiments.harness import command_line
import paper_repro.__main__  # which computes nothing
command_line.set_up(command_line.Run(sys.argv[1], None, Path()))
import jax.numpy as jnp
is_quick = jax.config.read("jax_disable_most_optimizations")
print(jnp.zeros(2).sum().dtype, is_quick, os.environ["XLA_FLAGS"])
"""


@pytest.mark.parametrize("preset", command_line.PRESETS)
def test_the_quick_preset_compiles_quickly(preset, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    monkeypatch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS", raising=False)
    command = [sys.executable, "-c", PROGRAM, preset]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    is_quick = preset == "quick"
    *lines, out = out.splitlines()
    assert len(lines) == is_quick  # it says that programs are not optimised
    assert out.startswith(f"float64 {is_quick} ")
    assert out.endswith("--xla_cpu_enable_fast_math=false")
    assert ("--xla_cpu_use_fusion_emitters=false" in out) == is_quick
