"""What the experiments say where a package is missing, or the data is not there."""

import sys

import pytest

from experiments.harness import extras


def test_modules_without_a_package_raise(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    for call in (lambda: extras.require("sklearn"), lambda: extras.imported("sklearn.manifold")):
        with pytest.raises(extras.MissingExtra, match=r"scikit-learn, which is not installed: pip"):
            call()
