"""What is said of models that are wrong in a known way: `sentences.txt`, a table by name.

`GOLDEN=1 pytest tests/evaluation` writes the sentences of the tests that run; read its differences.
"""

import os
import pathlib
import re

FILE = pathlib.Path(__file__).with_name("sentences.txt")


def compare(name, lines):
    """Compares lines with those of the table."""
    known = dict(re.findall(r"^\[(.*)\]\n((?:.+\n)*)", FILE.read_text("utf-8"), re.MULTILINE))
    told = "".join(f"{line}\n" for line in lines)
    if os.environ.get("GOLDEN"):
        known[name] = told
        FILE.write_text("\n".join(f"[{x}]\n{known[x]}" for x in sorted(known)), "utf-8")
    assert told == known[name]
