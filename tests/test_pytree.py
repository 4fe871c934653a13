import dataclasses

import jax
import numpy as np

from calibjax._pytree import record
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
    kernels = [jax.tree.structure(k) for k in (SquaredExponential(), Exponential())]
    assert kernels[0] != kernels[1]


def test_flattening():
    paths = jax.tree_util.tree_leaves_with_path((One(1.0), Other(2.0)))
    assert [(jax.tree_util.keystr(path), leaf) for path, leaf in paths] == [
        ("[0].value", 1.0),
        ("[1].value", 2.0),
    ]
    doubled = jax.jit(lambda x: jax.tree.map(lambda leaf: 2 * leaf, x))(Other(1.5, size=5))
    assert isinstance(doubled, Other)
    assert doubled.size == 5
    np.testing.assert_array_equal(doubled.value, 3)
