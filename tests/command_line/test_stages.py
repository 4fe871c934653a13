"""What the program says while it works, and where its compiled programs are kept."""

import os
import time

import jax
import jax.numpy as jnp
import pytest

import calibjax
from calibjax.command_line import program
from calibjax.distributions import Quantiles


def test_a_line_for_each_stage(capsys):
    start = time.monotonic() - 3
    program.say_stage(start, "scores", 0, 2)
    program.say_stage(start, "temperature", 1, 2)
    assert capsys.readouterr().err.splitlines() == [
        "calibjax: 1/2 scores (after 3 s)",
        "calibjax: 2/2 temperature (after 3 s)",
    ]


def test_parts_of_an_evaluation():
    seen = []
    predictions = Quantiles(jnp.array([0.25, 0.75]), jnp.tile(jnp.array([-0.7, 0.7]), (20, 1)))
    targets = jax.random.normal(jax.random.key(0), (20,))
    calibjax.evaluate(
        jax.random.key(1), predictions, targets, progress=lambda *stage: seen.append(stage)
    )
    assert [number for _, number, _ in seen] == list(range(len(seen)))
    assert {total for _, _, total in seen} == {len(seen)}


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """Changes of JAX's settings, which are not made."""
    changed = {}
    monkeypatch.setattr(jax.config, "update", changed.__setitem__)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true")
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    return changed


def test_programs_are_hardly_optimised(settings, monkeypatch):
    """Unless the user has said whether they are."""
    program.prepare(keeps_programs=False)
    assert not settings
    monkeypatch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS")
    program.prepare(keeps_programs=False)
    assert settings == {"jax_disable_most_optimizations": True}


def test_programs_are_kept(settings, tmp_path):
    words = program.prepare(keeps_programs=True)
    (folder,) = (tmp_path / "calibjax").iterdir()
    assert settings["jax_compilation_cache_dir"] == str(folder)
    assert words.endswith(f"; they are kept in {folder}; --no-cache keeps none")
    assert not program.prepare(keeps_programs=True)  # it is said once
    assert os.environ["XLA_FLAGS"] == "--xla_cpu_use_fusion_emitters=true"


def test_no_programs_are_kept(settings, tmp_path, monkeypatch):
    assert not program.prepare(keeps_programs=False)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    assert not program.prepare(keeps_programs=True)
    assert not settings
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made(settings, tmp_path, monkeypatch):
    (tmp_path / "calibjax").write_text("a file")
    assert "compiled programs are not kept: " in program.prepare(keeps_programs=True)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # is ignored

    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", home)
    assert "compiled programs are not kept: Could not" in program.prepare(keeps_programs=True)
    assert not settings


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no modes")
def test_programs_are_kept_where_nobody_else_has_access(settings, tmp_path):
    program.prepare(keeps_programs=True)
    (folder,) = (tmp_path / "calibjax").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    settings.clear()
    folder.chmod(0o750)
    assert "others have access to" in program.prepare(keeps_programs=True)
    assert not settings


def test_many_programs_are_removed(settings, tmp_path, monkeypatch):
    program.prepare(keeps_programs=True)
    (folder,) = (tmp_path / "calibjax").iterdir()
    for name in ("a", "b"):
        (folder / name).write_bytes(b"x" * 10)
    program.prepare(keeps_programs=True)
    assert len([*folder.iterdir()]) == 2
    monkeypatch.setattr(program, "_LARGEST", 19)
    program.prepare(keeps_programs=True)
    assert not [*folder.iterdir()]
