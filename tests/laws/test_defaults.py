"""Defaults of public functions and records stay: a change of one changes numbers of users.

`python -m tests.laws.test_defaults` writes the table anew; name the change in the commit.
"""

import inspect
import json
import pathlib
import re

import pytest

import calibjax
from tests.test_signatures import public_names

FILE = pathlib.Path(__file__).with_name("defaults.json")


def defaults() -> dict[str, dict[str, str]]:
    """Names of the arguments of each public function and record that have a default, with it."""
    values = dict(public_names()) | {
        f"calibjax.{x}": getattr(calibjax, x) for x in calibjax.__all__
    }
    found = {}
    for name, value in sorted(values.items()):
        if callable(value):
            given = inspect.signature(value).parameters.items()
            usual = {k: re.sub(r" at 0x\w+", "", repr(v.default)) for k, v in given}
            found[name] = {k: v for k, v in usual.items() if v != repr(inspect.Parameter.empty)}
    return found


@pytest.mark.parametrize("room", sorted({name.split(".")[0] for name in defaults()}))
def test_defaults(room):
    before, now = json.loads(FILE.read_text()), defaults()
    for name in sorted(x for x in before.keys() | now.keys() if x.split(".")[0] == room):
        assert now.get(name) == before.get(name), f"{name}: run `python -m {__name__}` if meant"


if __name__ == "__main__":
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in defaults().items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
