import copy
import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, kernels, recalibration
from calibjax._core import environment
from calibjax._core.pytree import record
from calibjax.distributions import Mixture, Normal
from calibjax.kernels import Exponential, SquaredExponential


@record
class One:
    value: float
    size: int = dataclasses.field(default=3, metadata={"static": True})


@record
class Other(One):
    pass


def test_structures_of_different_classes_differ():
    """jaxlib 0.10.2 takes those of registered dataclasses for equal."""
    one, *others = (jax.tree.structure(x) for x in (One(1.0), Other(1.0), One(1.0, size=4)))
    assert one not in others
    assert one == jax.tree.structure(One(2.0))
    structures = [jax.tree.structure(k) for k in (SquaredExponential(), Exponential())]
    assert structures[0] != structures[1]


def test_large_arrays_are_summarised():
    small = Normal(jnp.zeros(2, jnp.float32), np.ones(2))
    expected = "Normal(loc=Array([0., 0.], dtype=float32), scale=array([1., 1.]))"
    assert repr(small) == str(small) == expected
    large = Mixture(None, Normal(jnp.ones((100, 2), jnp.float32), np.full(100, 0.25)))
    assert repr(large) == (
        "Mixture(weights=None, components=Normal(loc=Array(float32[100, 2], mean=1), "
        "scale=Array(float64[100], mean=0.25)))"
    )
    assert repr(jax.jit(lambda x: [x, print(x)][0])(large)) == repr(large)  # tracers print too
    numbers = One((jnp.float32(0.1), jnp.array(3), np.array(True), jax.random.key(0)))
    assert repr(numbers) == "One(value=(0.1, 3, True, Array(key<fry>[])), size=3)"


def test_tables_without_names_of_columns():
    """HTML has a cell for each number, and no labels of cells."""
    row = '<tr><th scope="row">a</th><td>1</td><td>&lt;2</td></tr>'
    found = [*environment.table([], [["a", "1", "<2"]])]
    assert found == ["<table>", "<tbody>", row, "</tbody></table>"]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_equal(copied):
    records = [
        kernels.TensorProduct(
            kernels.Exponential(0.5, distances.Wasserstein()), kernels.SquaredExponential(2.0)
        ),
        kernels.SquaredExponential(jnp.array(2.0)),
        kernels.LabelKernel(np.eye(3)),
        distributions.Normal(jnp.zeros(2), np.array([1.0, np.nan])),
        recalibration.TemperatureScaling(),
    ]
    for one in records:
        other = copied(one)
        assert one == other
        assert hash(one) == hash(other)
        assert len({one, other}) == 1


def test_different_records_are_not_equal():
    normal = distributions.Normal(jnp.zeros(2), jnp.ones(2))
    one = kernels.SquaredExponential(1.0)
    others = (
        kernels.SquaredExponential(2.0),
        kernels.SquaredExponential(jnp.array(1.0)),  # which is no hyperparameter of Python
        kernels.Exponential(1.0),
        distributions.Normal(jnp.zeros(2), jnp.array([1.0, 2.0])),
        distributions.Normal(jnp.zeros(3), jnp.ones(3)),
        distributions.Laplace(jnp.zeros(2), jnp.ones(2)),
        1.0,
    )
    for other in others:
        assert other not in (one, normal)
    assert recalibration.HistogramBinning(2) != recalibration.HistogramBinning(3)


def test_known_and_traced_records_differ():
    """Whichever of them comes first."""
    known = One(jnp.array(0.5))

    def are_equal(value):
        assert known != One(value)
        assert One(value) != known
        return value

    jax.jit(are_equal)(jnp.array(0.5))


def test_records_as_static_arguments_and_functions():
    """Equal ones share a program, and traced ones are only equal to themselves."""
    count = 0

    def evaluated(kernel, x):
        nonlocal count
        count += 1
        return kernel(x, 0.0)

    compiled = jax.jit(evaluated, static_argnums=0)
    for scale in (2.0, 2.0, 3.0):
        found = compiled(kernels.SquaredExponential(jnp.array(scale)), 1.0)
        np.testing.assert_allclose(found, np.exp(-1 / (2 * scale**2)), rtol=1e-6)
    assert count == 2
    slope = jax.grad(kernels.SquaredExponential(np.array(2.0)))(1.0, 2.0)
    np.testing.assert_allclose(slope, np.exp(-1 / 8) / 4, rtol=1e-6)
    found = jax.jit(lambda p, q: jnp.array([p == p, p == q]))(*2 * (kernels.White(),))
    np.testing.assert_array_equal(found, True)  # without arrays
    pair = kernels.SquaredExponential(1.0), kernels.SquaredExponential(1.0)
    found = jax.jit(lambda p, q: jnp.array([p == p, p == q]))(*pair)
    np.testing.assert_array_equal(found, [True, False])
