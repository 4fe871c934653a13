"""Examples of the docstrings become blocks of code, where Markdown reads `>>>` as quotations."""

import re

import griffe

# From the first line with a prompt to the next empty line, at any indentation.
EXAMPLE = re.compile(r"^( *)>>> .*(?:\n.*\S.*)*", re.M)


def fenced(match: re.Match[str]) -> str:
    """The example between fences, indented as it is."""
    indent = match[1]
    return f"{indent}```pycon\n{match[0]}\n{indent}```"


class Doctests(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Called for every module, class, function and attribute."""
        if not obj.is_alias and obj.docstring:
            obj.docstring.value = EXAMPLE.sub(fenced, obj.docstring.value)
