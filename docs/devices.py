"""Calibration of predictions that are split over devices, and over processes.

python docs/devices.py                  # 4 simulated devices
python docs/devices.py --devices 1      # the same on one
python docs/devices.py --process 0 &    # 2 processes with 2 devices each
python docs/devices.py --process 1
"""

import argparse
import functools

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from calibjax import distances, estimators, hypothesis_tests, kernels
from calibjax.distributions import Normal


def data(num_samples):
    """Locations, scales and targets; a data loader would read the rows of its own process."""
    rng = np.random.default_rng(0)
    loc, scale = rng.normal(size=num_samples), rng.uniform(0.5, 1.0, num_samples)
    return loc, scale, rng.normal(loc, scale)


KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
)


def estimates(loc, scale, targets):
    """What a user computes: nothing here knows where the data are."""
    # The event that a target is positive, locally in its prediction.
    confidences = jax.scipy.stats.norm.cdf(loc / scale)
    features = jax.numpy.stack([loc, scale], 1)
    neighbourhood = estimators.Neighbourhood.laplacian(0.2, 5)
    return {
        "SKCE": estimators.skce(KERNEL, Normal(loc, scale), targets),
        "biased SKCE": estimators.skce_biased(KERNEL, Normal(loc, scale), targets),
        "MLCE": estimators.mlce(neighbourhood, features, confidences, targets > 0),
    }


def pvalues(loc, scale, targets):
    """Tests of calibration."""
    data = jax.random.key(0), KERNEL, Normal(loc, scale), targets
    return {
        "p-value, exact": hypothesis_tests.exact_skce_test(*data, num_draws=99).pvalue,
        "p-value, bootstrap": hypothesis_tests.bootstrap_skce_test(*data, num_draws=99).pvalue,
    }


def on_mesh(mesh, array):
    """The array with its rows split; each process hands over those of its own devices."""
    sharding = NamedSharding(mesh, PartitionSpec("rows"))
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def main():
    """Prints the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--process", type=int, help="number of this process, 0 or 1")
    parser.add_argument("--port", type=int, default=12321)
    parser.add_argument("--samples", type=int, default=2048)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if options.process is None:
        jax.config.update("jax_num_cpu_devices", options.devices)
    else:
        jax.config.update("jax_num_cpu_devices", options.devices // 2)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        address = f"127.0.0.1:{options.port}"
        jax.distributed.initialize(address, num_processes=2, process_id=options.process)
    place = jax.numpy.asarray
    if options.devices > 1:
        place = functools.partial(on_mesh, jax.make_mesh((options.devices,), ("rows",)))
    samples = [place(array) for array in data(options.samples)]
    found = estimates(*samples) | pvalues(*samples)
    if jax.process_index() == 0:
        for name, value in found.items():
            print(f"{name:<18}  {float(value):.15g}")


if __name__ == "__main__":
    main()
