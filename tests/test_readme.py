"""The README's example runs as it stands and prints what it says."""

import contextlib
import io
import pathlib
import re

import jax

README = pathlib.Path(__file__).parent.parent / "README.md"


def test_example():
    code, printed = re.search(
        r"```python\n(.*?)```\n\n```text\n(.*?)```", README.read_text(), re.S
    ).groups()
    output = io.StringIO()
    with jax.enable_x64(False), contextlib.redirect_stdout(output):
        exec(compile(code, str(README), "exec"), {})
    assert output.getvalue() == printed


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
