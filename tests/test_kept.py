"""Programs that are kept for other processes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, kernels
from calibjax._core import compilation as _compilation
from calibjax._core import kept as _kept
from calibjax._core.kept import Kept, Unknown, name_of
from calibjax.hypothesis_tests._redraw import pvalues

TRACED = []


def _scaled(record, factor, *, power=1):
    """A function of a record, which says when it is traced."""
    TRACED.append(power)
    return jax.tree.map(lambda leaf: factor * leaf**power, record)


@pytest.fixture
def scaled(monkeypatch):
    """The function as one of the package."""
    function = _compilation.jit(_scaled, static_argnames="power")
    for each in (function, _scaled):
        each.__module__, each.__qualname__ = "calibjax._core.kept", "scaled_in_tests"
    monkeypatch.setattr(_kept, "scaled_in_tests", function, raising=False)
    TRACED.clear()
    return function


@pytest.fixture
def keep(tmp_path):
    """Begins a process that keeps programs."""
    yield lambda folder=tmp_path: _compilation.keep_programs(folder)
    _compilation.keep_programs(None)


NORMAL = distributions.Normal(jnp.arange(3.0), jnp.ones(3))


def test_the_next_process_does_not_trace(scaled, keep):
    expected = scaled(NORMAL, 2.0, power=2)
    first = keep()
    found = scaled(NORMAL, 2.0, power=2)
    assert (first.found, first.made, len(TRACED)) == (0, 1, 2)
    scaled(NORMAL, 3.0, power=2)  # other values
    second = keep()
    for value in (found, scaled(NORMAL, 2.0, power=2)):
        assert isinstance(value, distributions.Normal)
        np.testing.assert_array_equal(value.loc, expected.loc)
        assert value.loc.dtype == expected.loc.dtype
    assert (second.found, second.made, len(TRACED)) == (1, 0, 2)


def test_another_program_for_whatever_decides_what_it_computes(scaled, keep, monkeypatch):
    kept = keep()
    calls = [
        lambda: scaled(NORMAL, 2.0),
        lambda: scaled(NORMAL, 2.0, power=2),
        lambda: scaled(NORMAL, 2),
        lambda: scaled(NORMAL, jnp.asarray(2.0)),
        lambda: scaled(distributions.Laplace(NORMAL.loc, NORMAL.scale), 2.0),
        lambda: scaled(jax.tree.map(lambda x: x[:2], NORMAL), 2.0),
        lambda: scaled(jax.tree.map(lambda x: x.astype(float), NORMAL), 2.0),
    ]
    for number, call in enumerate(calls, 1):
        call()
        assert kept.made == number
    for call in calls:
        call()
    assert (kept.made, kept.found) == (len(calls), 0)
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", not before)
    try:
        calls[0]()
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
    assert kept.made == len(calls) + 1
    monkeypatch.setattr(_kept, "_process", lambda: "other source")
    other = keep()
    calls[0]()
    assert (other.made, other.found) == (1, 0)


@pytest.mark.parametrize("package", ["jax", "jaxlib", "numpy", "optax"])
def test_another_process_after_an_update(package, monkeypatch):
    before, version = _kept._process(), _kept.metadata.version
    monkeypatch.setattr(
        _kept.metadata, "version", lambda name: "99" if name == package else version(name)
    )
    assert _kept._process() != before


def test_precision_of_the_process(scaled, keep):
    kept = keep()
    scaled({"x": np.float32(1)}, 2.0)
    with jax.enable_x64(False):
        value = scaled({"x": np.float32(1)}, 2.0)
    assert value["x"].dtype == jnp.float32
    assert kept.made == 2


def test_keys_and_weak_types(scaled, keep, tmp_path):
    keep()
    key = jax.random.key(3)
    name = name_of(scaled, {})
    made = Kept(tmp_path).value(name, jax.random.split, (key,), None)
    read = Kept(tmp_path).value(name, jax.random.split, (key,), None)
    for keys in (made, read):
        np.testing.assert_array_equal(
            jax.random.key_data(keys), jax.random.key_data(jax.random.split(key))
        )
    assert scaled(jnp.float32(1), 2.0).dtype == jnp.float32  # a number of Python has no precision


def test_damaged_files_are_replaced(scaled, keep, tmp_path):
    keep()
    scaled(NORMAL, 2.0)
    (file,) = tmp_path.iterdir()
    for content in (b"", b"no pickle", file.read_bytes()[:-100]):
        file.write_bytes(content)
        kept = keep()
        assert float(scaled(NORMAL, 2.0).loc[2]) == 4
        assert (kept.found, kept.made) == (0, 1)
    kept = keep()
    scaled(NORMAL, 2.0)
    assert (kept.found, kept.made) == (1, 0)


def test_programs_that_are_in_the_cache_of_jax(keep, tmp_path):
    """XLA cannot write again what it has read: functions were missing in such programs."""
    before = {
        name: jax.config.values[name]
        for name in (
            "jax_compilation_cache_dir",
            "jax_persistent_cache_min_compile_time_secs",
            "jax_persistent_cache_min_entry_size_bytes",
        )
    }
    values = jnp.sin(jnp.arange(4000.0)).reshape(1000, 4)
    expected = pvalues.standardised(values)
    try:
        for name, value in zip(before, (str(tmp_path / "jax"), 0, -1), strict=True):
            jax.config.update(name, value)
        for folder in ("first", "second"):
            jax.clear_caches()
            jax.jit(lambda x: pvalues.standardised(x))(values)
            keep(tmp_path / folder)
            pvalues.standardised(values)
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
    kept = keep(tmp_path / "second")
    np.testing.assert_allclose(pvalues.standardised(values), expected)
    assert (kept.found, kept.made) == (1, 0)


def test_renamed_files_are_replaced(scaled, keep, tmp_path):
    keep()
    scaled(NORMAL, 2.0)
    (first,) = tmp_path.iterdir()
    scaled(NORMAL, 2.0, power=2)  # a program for the same arguments
    (second,) = set(tmp_path.iterdir()) - {first}
    first.write_bytes(second.read_bytes())
    kept = keep()
    assert float(scaled(NORMAL, 2.0).loc[2]) == 4
    assert (kept.found, kept.made) == (0, 1)


def test_a_folder_that_cannot_be_written_is_told(scaled, keep, tmp_path):
    (tmp_path / "file").write_text("")
    keep(tmp_path / "file" / "folder")
    with pytest.warns(RuntimeWarning, match="not kept"):
        assert float(scaled(NORMAL, 2.0).loc[2]) == 4


def test_what_has_no_name_is_left_to_jax(scaled, keep):
    kept = keep()
    np.testing.assert_array_equal(jax.jit(lambda x: scaled(x, 2.0))(NORMAL.loc), 2 * NORMAL.loc)
    jax.grad(lambda x: scaled(x, 2.0).sum())(NORMAL.loc)
    jax.vmap(lambda x: scaled(x, 2.0))(NORMAL.loc)
    outer = jnp.ones(2)
    own = lambda x: x + outer  # noqa: E731
    np.testing.assert_array_equal(_compilation.compiled_once(own, jnp.ones(2)), [2, 2])
    assert kept.made == 0


@pytest.mark.parametrize("value", [lambda x: x, object(), _scaled, functools.partial(print)])
def test_unknown(value):
    with pytest.raises(Unknown):
        name_of(jax.numpy.sum, {"value": value})


def test_names_say_all_that_is_fixed():
    one = functools.partial(_kept.name_of, 1, power=np.arange(3))
    names = {
        name_of(part, {})
        for part in (
            one,
            functools.partial(_kept.name_of, 2, power=np.arange(3)),
            functools.partial(_kept.name_of, 1, power=np.arange(3) + 1),
            functools.partial(_kept.name_of, 1, power=np.arange(3.0)),
            functools.partial(_kept.name_of, 1, other=np.arange(3)),
            functools.partial(_kept.bound, 1, power=np.arange(3)),
            functools.partial(_kept.name_of, kernels.Exponential(1.0)),
            functools.partial(_kept.name_of, kernels.Exponential(2.0)),
            functools.partial(_kept.name_of, kernels.SquaredExponential(2.0)),
        )
    }
    assert len(names) == 9
    assert name_of(one, {}) == name_of(functools.partial(_kept.name_of, 1, power=np.arange(3)), {})
