"""Experiments that no other test runs can at least be started."""

import importlib
import pkgutil

import pytest

import experiments

NAMES = [
    module.name
    for module in pkgutil.walk_packages(experiments.__path__, "experiments.")
    if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", NAMES)
def test_import(name):
    importlib.import_module(name)
