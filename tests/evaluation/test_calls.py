"""Calls run and print themselves, and nothing runs before its value is asked for."""

import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators, evaluation, scores
from calibjax.evaluation.calls import Call, expression, measured, named


def _refuse():
    raise ValueError("x: expected more")


def test_text_and_value_are_those_of_the_same_call():
    pair = named("pair", (3, 4))
    power = named("pow", pow)
    assert power(pair[0], 2).text == "pow(pair[0], 2)"
    assert power(pair[0], 2).value == 9
    assert power(pair.unpacked).text == "pow(*pair)"
    assert power(pair.unpacked).value == 81
    ones = named("numpy", np).ones
    assert ones((2, 3), dtype=named("", float)).text == "numpy.ones((2, 3))"
    assert ones((2, 3)).T[1, 0].text == "numpy.ones((2, 3)).T[1, 0]"
    assert ones((2, 3)).T[1, 0].value == 1
    assert named("jnp", jnp).sum(ones(3), axis=0).text == "jnp.sum(numpy.ones(3), axis=0)"


def test_names_are_those_that_users_import():
    for function, name in (
        (estimators.top_label, "estimators.top_label"),
        (estimators.UniformBins, "estimators.UniformBins"),
        (estimators.Neighbourhood.laplacian, "estimators.Neighbourhood.laplacian"),
        (evaluation.expected_calibration_errors, "evaluation.expected_calibration_errors"),
        (scores.crps, "scores.crps"),
    ):
        assert expression(function).text == name
        assert expression(function).value == function


def test_a_value_is_computed_once_and_only_if_it_is_asked_for():
    counted = []
    call = Call("f()", lambda: counted.append(1) or 5)
    entry = named("abs", abs)(call)
    assert not counted
    assert measured("five", entry).value == 5
    assert entry.value == call.value == 5
    assert len(counted) == 1


def test_what_does_not_exist():
    entry = measured("error", Call("f(x)", _refuse))
    assert np.isnan(entry.value)
    assert (entry.function, entry.note) == ("f(x)", "does not exist: x: expected more")
    with pytest.raises(ValueError, match="expected more"):
        _ = Call("f(x)", _refuse).value
