"""Fixtures of all tests."""

import gc
import os
import pathlib

import jax
import numpy as np
import pytest

try:
    from jax._src.interpreters import mlir  # no public name, and only saves time
except ImportError:
    mlir = None

# Tests of arrays that are split over devices find four; everything else runs on the first.
jax.config.update("jax_num_cpu_devices", 4)
_contexts = []


def _share_contexts():
    """Programs of one file share their dialects, which JAX loads again for every program.

    That takes as long as the rest of lowering a small one. What is lowered while another program is
    would be written into that one.
    """
    new = mlir.make_ir_context

    def shared():
        if mlir.ir.Context.current is not None:
            return new()
        if not _contexts:
            _contexts.append(new())
        return _contexts[0]

    mlir.make_ir_context = shared


if hasattr(mlir, "make_ir_context"):
    _share_contexts()


@pytest.hookimpl(tryfirst=True)  # before those that are slow are left out
def pytest_collection_modifyitems(items):
    """What `slow.txt` names is slow."""
    lines = (pathlib.Path(__file__).parent / "slow.txt").read_text().splitlines()
    long = tuple(line for line in lines if line.startswith("tests/"))  # with all their cases
    for item in items:
        if item.nodeid in lines or item.nodeid.startswith(long):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """What was imported and collected stays: the garbage collector need not look at it again.

    What JAX allocates while it traces would start it thousands of times; it runs after each file.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)


@pytest.fixture(autouse=True)
def _float64():
    """Tests run with 64-bit types available; what they do in float32 they ask for."""
    with jax.enable_x64(True):
        yield


_states = {}


@pytest.fixture(autouse=True)
def _generators(request):
    """Tests draw from the generators of their module as if each of them were the only test."""
    module = request.module
    if module not in _states:
        found = {k: v for k, v in vars(module).items() if isinstance(v, np.random.Generator)}
        _states[module] = [(one, one.bit_generator.state) for one in found.values()]
    for generator, state in _states[module]:
        generator.bit_generator.state = state


@pytest.fixture(autouse=True, scope="module")
def _compilation(request):
    """Programs are compiled quickly and dropped after each file, or they fill gigabytes.

    Files marked as `optimised` get the programs that users get; `make test` runs them on their own,
    since some of the options that compile quickly are those of a process. Doctests, which no
    fixture of this folder reaches, get what the process is told.
    """
    before = jax.config.read("jax_disable_most_optimizations")
    is_quick = request.node.get_closest_marker("optimised") is None
    jax.config.update("jax_disable_most_optimizations", is_quick)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()
    _contexts.clear()
    gc.collect()


@pytest.fixture
def data_dir():
    """Folder with the published data, from the environment variable CALIBJAX_DATA."""
    folder = os.environ.get("CALIBJAX_DATA", "")
    if not folder or not pathlib.Path(folder).is_dir():
        pytest.skip("set CALIBJAX_DATA to the folder with the published data (make test DATA=DIR)")
    return pathlib.Path(folder)
