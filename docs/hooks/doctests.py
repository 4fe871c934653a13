"""Examples and formulas of the docstrings become blocks of their kinds.

Markdown reads `>>>` as quotations, and whatever is indented as code.
"""

import ast
import re

import griffe

# From the first line with a prompt to the next empty line, at any indentation.
EXAMPLE = re.compile(r"^( *)>>> .*(?:\n.*\S.*)*", re.M)
# Indented lines between empty ones. Sections such as "Args:" have no empty line above.
INDENTED = re.compile(r"(?<=\n\n)(?: {4}(?! *(?:>>>|```)).*\S.*(?:\n|$))+(?=\n|$)")


def fenced(match: re.Match[str]) -> str:
    """The example between fences, indented as it is."""
    indent = match[1]
    return f"{indent}```pycon\n{match[0]}\n{indent}```"


def formula(match: re.Match[str]) -> str:
    """Indented lines between fences, unless they are code."""
    lines = [line.removeprefix("    ") for line in match[0].rstrip("\n").splitlines()]
    text = "\n".join(lines)
    try:
        ast.parse(text.rstrip(".,"))
    except SyntaxError:
        return f"```formula\n{text}\n```\n"
    return match[0]


class Doctests(griffe.Extension):
    """Fences the examples and the formulas of every docstring."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Called for every module, class, function and attribute."""
        if not obj.is_alias and obj.docstring:
            text = INDENTED.sub(formula, obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub(fenced, text)
