"""Formulas, which are Unicode text in docstrings and pages, are MathML in the documentation.

`help()` and an editor show what is written; browsers show MathML without any program. Blocks come
from fences called `formula`, the first column of the table of symbols is translated line by line.
"""

import html
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the tests have no mkdocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ᵀᵉ", "0123456789\u2212+Te")
SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊", "0123456789+")
LARGE = {"Σ": "\u2211", "Π": "\u220f", "∫": "∫"}
BELOW = {*LARGE, "max", "min", "sup", "argmax", "argmin"}  # what has its index below it
WORDS = {"bin", "bins", "uq", "ul", "kde", "kkr", "sim"}  # indices that are no row of letters
BRACKETS = {"(": ")", "[": "]", "{": "}"}
RAISED, LOWERED = "[⁰¹²³⁴-⁹⁻⁺ᵀᵉ*]+", "[₀-₉₊]+"
LETTER = r"[^\W\d_⁰¹²³⁴-⁹ᵀᵉ₀-₉½][\u0300-\u036f]*"
ACCENTS = {"\u0302": "^", "\u0303": "~", "\u0304": "¯"}
TOKEN = re.compile(
    rf"""(?P<text>`[^`]*`|"[^"]*") | (?P<space>\s+) | (?P<number>\d+(?:\.\d+)?)
    | (?P<name>[a-z]{{3,}}(?:_[a-z]{{5,}})+ | [A-Za-z]{{2,}}(?:-[a-z]{{2,}})* | {LETTER})
    | (?P<raised>{RAISED}) | (?P<lowered>{LOWERED}) | (?P<binary>[-+=≤≥<>·/∝≈→\u2212\u00d7±∈⊗⊙≠])
    | (?P<operator>.)""",
    re.X,
)
SCRIPT = re.compile(f"{RAISED}|{LOWERED}|[_^]")
INDEX = re.compile(rf"(?:{LETTER}|\d)+'?|½|\*")
CELL = re.compile(r"(<tr>\s*<td>)(.*?)(</td>)", re.S)


class Parser:
    """Reads one line of a formula."""

    def __init__(self, text: str) -> None:
        """Starts at its beginning."""
        self.text, self.position = text, 0

    def row(self, end: str = "") -> str:
        """MathML of everything up to a closing bracket, which is read but not returned."""
        parts: list[tuple[str, str]] = []
        while self.position < len(self.text):
            if self.text[self.position] == end:
                self.position += 1
                break
            parts.append(self.atom())
        return "".join(_spaced(parts))

    def atom(self) -> tuple[str, str]:
        """The next piece, its kind and its MathML with what is above and below it."""
        kind, text = self.token()
        if kind == "space":
            return kind, text
        base = self.base(kind, text)
        above, below = self.scripts()
        if not above and not below:
            return kind, base
        tags = ("munder", "mover", "munderover") if text in BELOW else ("msub", "msup", "msubsup")
        if above and below:
            return kind, f"<{tags[2]}>{base}{below}{above}</{tags[2]}>"
        tag = tags[0] if below else tags[1]
        return kind, f"<{tag}>{base}{below or above}</{tag}>"

    def token(self) -> tuple[str, str]:
        """The next token, its kind and its text.

        Raises:
            ValueError: if there is none.
        """
        match = TOKEN.match(self.text, self.position)
        if match is None:
            raise ValueError(f"expected something behind the last sign, got {self.text!r}")
        self.position = match.end()
        return str(match.lastgroup), match[0]

    def base(self, kind: str, text: str) -> str:
        """MathML of a token."""
        if text == "√":
            return f"<msqrt>{self.group()}</msqrt>"
        if text == "∛":
            return f"<mroot>{_grouped(self.group())}<mn>3</mn></mroot>"
        if text in LARGE:
            return f"<mo>{LARGE[text]}</mo>"
        if kind == "name":
            return self.name(text)
        if kind in ("number", "raised", "lowered"):
            return f"<mn>{text.translate(SUPERSCRIPTS).translate(SUBSCRIPTS)}</mn>"
        if kind == "text":
            return f"<mtext>{html.escape(text.strip('`'))}</mtext>"
        fixed = "" if kind == "binary" else ' stretchy="false" lspace="0" rspace="0"'
        return f"<mo{fixed}>{html.escape(text)}</mo>"

    def name(self, text: str) -> str:
        """A name with its accent and its primes, which fonts have raised."""
        letter, *accents = unicodedata.normalize("NFD", text)
        found = f"<mi>{text}</mi>"
        if accents and accents[0] in ACCENTS:
            found = f"<mover accent='true'><mi>{letter}</mi><mo>{ACCENTS[accents[0]]}</mo></mover>"
        while self.text.startswith("'", self.position):
            self.position += 1
            found = f'<mrow>{found}<mo lspace="0" rspace="0">\u2032</mo></mrow>'
        return found

    def scripts(self) -> tuple[str, str]:
        """What is above and below the piece before, in any order."""
        above, below = "", ""
        while match := SCRIPT.match(self.text, self.position):
            sign = match[0]
            self.position = match.end()
            if sign == "_":
                below += self.group()
            elif sign == "^":
                above += self.group()
            elif sign[0] in "₀₁₂₃₄₅₆₇₈₉₊":
                below += f"<mn>{sign.translate(SUBSCRIPTS)}</mn>"
            else:
                above += f"<mn>{sign.translate(SUPERSCRIPTS)}</mn>"
        return _grouped(above), _grouped(below)

    def group(self) -> str:
        """An index, an exponent or what a root is taken of, without the brackets around it."""
        if self.position < len(self.text) and self.text[self.position] in BRACKETS:
            self.position += 1
            return self.row(BRACKETS[self.text[self.position - 1]])
        if match := INDEX.match(self.text, self.position):
            self.position = match.end()
            text = match[0]
            if text in WORDS or len(text) > 3:
                return f"<mi>{text}</mi>"
            return "".join(Parser(x).row() for x in re.findall(rf"{LETTER}'*|\d+|.", text))
        return self.atom()[1]


def _grouped(content: str) -> str:
    return f"<mrow>{content}</mrow>" if content else ""


def _spaced(parts: list[tuple[str, str]]) -> Iterator[str]:
    """The pieces; one space counts only where browsers do not set one, more of them always."""
    for i, (kind, text) in enumerate(parts):
        neighbours = {part[0] for part in parts[max(i - 1, 0) : i + 2]}
        if kind != "space":
            yield text
        elif len(text) > 1:
            yield f'<mspace width="{0.45 * len(text):.2f}em"/>'
        elif "binary" not in neighbours:
            yield '<mspace width="0.25em"/>'


def mathml(text: str, display: str = "inline") -> str:
    """A formula as MathML.

    Args:
        text: one line, or several, which are shown one below the other.
        display: "inline" or "block".
    """
    lines = [Parser(line).row() for line in text.rstrip().splitlines()]
    if len(lines) > 1:
        rows = "".join(f"<mtr><mtd>{line}</mtd></mtr>" for line in lines)
        content = f'<mtable displaystyle="true">{rows}</mtable>'
    else:
        content = f"<mrow>{lines[0]}</mrow>"
    return f'<math display="{display}">{content}</math>'


def fence(source: str, *unused: Any, **others: Any) -> str:
    """A block of formulas, in a box that scrolls where the screen is narrow."""
    return f'<div class="formula">{mathml(source, "block")}</div>'


def on_config(config: "MkDocsConfig") -> "MkDocsConfig":
    """Makes `formula` a kind of fence."""
    settings: Mapping[str, Any] = config.mdx_configs.setdefault("pymdownx.superfences", {})
    kinds = settings.setdefault("custom_fences", [])
    kinds.append({"name": "formula", "class": "formula", "format": fence})
    return config


def on_page_content(content: str, page: "Page", **others: Any) -> str:
    """Translates the symbols of the papers in the table of notation."""
    if page.file.src_uri != "notation.md":
        return content
    terms, heading, symbols = content.partition('id="symbols-of-the-papers"')
    return terms + heading + CELL.sub(lambda x: x[1] + mathml(html.unescape(x[2])) + x[3], symbols)
