import doctest

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, estimators, interoperability
from tests import oracles

torch = pytest.importorskip("torch", reason="torch is not installed")
td = torch.distributions

N = 4
LOC, ONE = torch.linspace(-1, 1, N), torch.ones(N)
PROBS = torch.as_tensor(np.random.default_rng(0).dirichlet(np.ones(3), N), dtype=torch.float32)
VECTOR, COV = torch.zeros(N, 2), torch.tensor([[2.0, 1.0], [1.0, 2.0]])
CASES = {
    "normal": (td.Normal(LOC, 2.0), distributions.Normal),
    "laplace": (td.Laplace(LOC, ONE), distributions.Laplace),
    "multivariate": (td.MultivariateNormal(VECTOR, COV), distributions.MvNormal),
    "probs": (td.Categorical(probs=PROBS), distributions.Categorical),
    "logits": (td.Categorical(logits=PROBS.log()), distributions.CategoricalLogits),
    "bernoulli": (td.Bernoulli(PROBS[:, 0]), distributions.Bernoulli),
    "bernoulli logits": (td.Bernoulli(logits=LOC), distributions.Bernoulli),
    "poisson": (td.Poisson(3 * ONE), distributions.Poisson),
    "beta": (td.Beta(0.5 * ONE, 2.0), distributions.Beta),
    "dirichlet": (td.Dirichlet(1 + PROBS), distributions.Dirichlet),
    "diagonal": (td.Independent(td.Normal(VECTOR, 2.0), 1), distributions.DiagNormal),
    "mixture": (
        td.MixtureSameFamily(
            td.Categorical(PROBS), td.Normal(LOC[:, None].expand(N, 3), 1 + PROBS)
        ),
        distributions.Mixture,
    ),
    "gamma": (td.Gamma(ONE, 2.0), distributions.Gamma),
    "student": (td.StudentT(3.0, LOC, 1.0), distributions.StudentT),
    "log-normal": (td.LogNormal(LOC, 2.0), distributions.LogNormal),
    "uniform": (td.Uniform(-0.5, 1 + ONE), distributions.Uniform),
    "counts": (td.NegativeBinomial(2.0, logits=LOC), distributions.NegativeBinomial),
}
SCALARS, COUNTS = torch.tensor([0.1, 0.3, 0.5, 0.9]), torch.tensor([0, 1, 1, 0])
_OF_COUNTS = ("probs", "logits", "bernoulli", "bernoulli logits", "poisson", "counts")
TARGETS = {
    **dict.fromkeys(_OF_COUNTS, COUNTS),
    **dict.fromkeys(("multivariate", "diagonal"), torch.stack([SCALARS, -SCALARS], -1)),
    "dirichlet": PROBS.flip(0),
}


def test_distributions_agree_with_torch():
    ours, expected = {}, {}
    for name, (theirs, record) in CASES.items():
        ours[name] = interoperability.from_torch(theirs)
        assert type(ours[name]) is record, name
        y = TARGETS.get(name, SCALARS)
        y = y.float() if name in _OF_COUNTS else y
        expected[name] = theirs.log_prob(y).numpy()

    @jax.jit
    def densities(ours):
        targets = {name: jnp.asarray(TARGETS.get(name, SCALARS).numpy()) for name in ours}
        return {k: jax.vmap(lambda p, y: p.log_prob(y))(ours[k], y) for k, y in targets.items()}

    for name, values in densities(ours).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_nothing_is_copied(dtype):
    tensor = torch.arange(12).reshape(3, 4).to(dtype)
    array = interoperability.from_torch(tensor)
    assert array.unsafe_buffer_pointer() == tensor.data_ptr()
    assert array.dtype == str(dtype).removeprefix("torch.")
    np.testing.assert_array_equal(array, tensor.numpy())
    predictions = interoperability.from_torch(td.Normal(LOC, ONE))
    assert predictions.loc.unsafe_buffer_pointer() == LOC.data_ptr()


def test_tensors_that_are_copied():
    tensor = torch.arange(12.0).reshape(3, 4).requires_grad_()
    for view in (tensor[:, ::2], tensor[1:], tensor.T, torch.tensor(2.0).expand(5), -tensor):
        np.testing.assert_array_equal(interoperability.from_torch(view), view.detach().numpy())
    np.testing.assert_array_equal(
        interoperability.from_torch(torch.ones(3, dtype=torch.bfloat16)), np.ones(3)
    )


def test_64_bits_without_x64():
    with jax.enable_x64(False):
        assert (
            interoperability.from_torch(torch.tensor([0.1], dtype=torch.float64)).dtype == "float32"
        )
        labels = interoperability.from_torch(torch.tensor([3, -1]))
        assert labels.dtype == "int32"
        np.testing.assert_array_equal(labels, [3, -1])
        with pytest.raises(ValueError, match="value: expected integers of at most 32 bits"):
            interoperability.from_torch(torch.tensor([2**40]))


def test_an_estimate_from_tensors():
    kernel = oracles.normal_kernel()
    targets = LOC + torch.tensor([0.3, -0.2, 0.5, 0.1])
    expected = estimators.skce(
        kernel, distributions.Normal(LOC.numpy(), ONE.numpy()), targets.numpy()
    )
    predictions = interoperability.from_torch(td.Normal(LOC, ONE))
    for y in (targets, interoperability.from_torch(targets)):
        assert estimators.skce(kernel, predictions, y) == expected
    assert estimators.skce(kernel, distributions.Normal(LOC, ONE), targets) == expected


def test_the_example():
    text = interoperability.from_torch.__doc__.replace("# doctest: +SKIP", "")
    example = doctest.DocTestParser().get_doctest(text, {}, "from_torch", None, None)
    assert len(example.examples) == 4
    with jax.enable_x64(False):
        assert doctest.DocTestRunner().run(example).failed == 0


def test_wrong_arguments():
    sparse, elsewhere = torch.eye(3).to_sparse(), torch.ones(3, device="meta")
    other = td.Independent(td.Gamma(torch.ones(N, 2), 1.0), 1)
    for wrong in (np.ones(3), sparse, elsewhere, td.Weibull(ONE, 2.0), other):
        with pytest.raises(TypeError, match="value: expected"):
            interoperability.from_torch(wrong)
    with pytest.raises(ValueError, match=r"expected batch shape \(n,\).*got \(\)"):
        interoperability.from_torch(td.Normal(0.0, 1.0))
