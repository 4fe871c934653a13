"""Every public function has a valid call in the registry, with which it can be tried."""

import importlib
import pkgutil

import calibjax
from tests import registry
from tests.test_signatures import every_name


def test_every_public_function_is_registered():
    public = {name for name, _ in every_name()}
    covered = {name for call in registry.calls().values() for name in call.covers}
    assert sorted(public - covered - set(registry.EXEMPT)) == [], "add a call to tests/registry/"
    # Documented functions of modules are `room.module.function`.
    assert sorted(name for name in covered - public if name.count(".") < 2) == []
    assert sorted(set(registry.EXEMPT) - public) == []
    assert sorted(set(registry.EXEMPT) & covered) == []


def test_dir_shows_public_names_only():
    packages = []
    for module in pkgutil.iter_modules(calibjax.__path__):
        if module.ispkg and not module.name.startswith("_") and module.name != "command_line":
            packages.append(importlib.import_module(f"calibjax.{module.name}"))
    packages.remove(calibjax.evaluation)  # whose functions are those of calibjax
    rooms = [package.__name__.rpartition(".")[2] for package in packages]
    assert len(rooms) > 10
    assert dir(calibjax) == sorted([*calibjax.__all__, *rooms])
    for package in packages:
        assert dir(package) == sorted(package.__all__), package.__name__
