import doctest

import jax
import numpy as np
import pytest

from calibjax import interoperability

torch = pytest.importorskip("torch", reason="torch is not installed")
td = torch.distributions

N = 4
LOC, ONE = torch.linspace(-1, 1, N), torch.ones(N)


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
