"""The program reads published data as it is published (`make test DATA=DIR`)."""

import numpy as np

from calibjax.command_line import load


def test_classes_in_the_published_format(network):
    data = load(network)
    probs = np.loadtxt(network[0], delimiter=",")
    labels = np.loadtxt(network[2], dtype=int) - 1
    np.testing.assert_array_equal(data.predictions.probs, probs)
    np.testing.assert_array_equal(data.targets, labels)
    assert data.classes == tuple(map(str, range(1, 11)))


def test_ensembles_in_the_published_format(forecasts):
    data = load(forecasts)
    table = np.loadtxt(forecasts[0], delimiter=",", skiprows=1)
    np.testing.assert_array_equal(data.targets, table[:, 0])
    np.testing.assert_array_equal(data.predictions.values, table[:, 1:])
