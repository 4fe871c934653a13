"""Public names: arguments mean one thing everywhere, each has a call, and none is used nowhere."""

import ast
import importlib
import inspect
import pathlib
import pkgutil
import re

import calibjax
from tests import registry

ROOT = pathlib.Path(__file__).parent.parent
MOST_NAMES = 170
LEVELS = {  # levels of quantiles, and of intervals between them
    "scores.interval_score",
    "scores.murphy_curve",
    "scores.pinball_loss",
}
NUMBERS_OF_DRAWS = {"distributions.monte_carlo", "distributions.sample"}  # not of redraws
KEYS_LAST = {"hypothesis_tests.pit_ks"}  # a statistic, which needs a key for ensembles only
REFUSED = {"significance", "side", "num_redraws", "callback"}


def public_names():
    for module in pkgutil.iter_modules(calibjax.__path__):
        if not module.name.startswith("_"):
            package = importlib.import_module(f"calibjax.{module.name}")
            for name in getattr(package, "__all__", ()):
                yield f"{module.name}.{name}", getattr(package, name)


def every_name():
    """Those of subpackages, and those of the package."""
    yield from ((name, getattr(calibjax, name)) for name in calibjax.__all__)
    yield from public_names()


def test_names_of_arguments():
    wrong = []
    for name, value in every_name():
        if not callable(value):
            continue
        parameters = inspect.signature(value).parameters
        refused = REFUSED & set(parameters)
        if inspect.isfunction(value):
            refused |= {"level"} & set(parameters) if name not in LEVELS else set()
            refused |= {"num_samples"} & set(parameters) if name not in NUMBERS_OF_DRAWS else set()
            if "num_draws" in parameters and parameters["num_draws"].default != 999:
                refused |= {"num_draws"}
            if "key" in parameters and [*parameters].index("key") and name not in KEYS_LAST:
                refused |= {"key"}
        wrong += [f"{name}({argument})" for argument in sorted(refused)]
    assert wrong == []


def test_names_are_few():
    assert len([*every_name()]) <= MOST_NAMES


def test_no_name_is_used_nowhere():
    """In the code of the library, of experiments and of reproductions, or in the documentation."""
    used = set()
    for folder in ("calibjax", "experiments", "paper_repro"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                    used.add(node.id if isinstance(node, ast.Name) else node.attr)
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]
    for page in pages:
        used |= set(re.findall(r"\w+", page.read_text()))
    assert sorted(name for name, _ in public_names() if name.split(".")[1] not in used) == []


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
