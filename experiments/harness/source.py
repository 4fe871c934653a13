"""The project's own code: names of modules, what they import, and a digest of what they do."""

import ast
import functools
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import calibjax

ROOT = Path(__file__).parents[2]  # holds the rooms
ROOMS = ("experiments", "paper_repro")
LIBRARY = Path(calibjax.__file__).parent
_DRAWS = re.compile(r"(.*_)?figures").fullmatch  # names of modules that only draw


def name_of(file: str | Path, root: Path = ROOT) -> str:
    """Name that a module of a room is run or imported by, without `__main__` and `__init__`."""
    parts = Path(file).resolve().relative_to(root.resolve()).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] in ("__main__", "__init__") else parts)


def imported_names(tree: ast.AST) -> set[str]:
    """Names of all modules that are imported anywhere in a module, and of what is taken from them.

    No import of the project is relative.
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module)
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def _files_of(name: str, root: Path, library: Path) -> Iterator[Path]:
    """The file of a module, and those of the packages it is in, which run before it.

    Of the library they are those of the parts that are named: what `calibjax` itself imports, which
    is all of it, is left out.
    """
    parts = name.split(".")
    is_library = parts[0] == library.name
    if is_library or parts[0] in ROOMS:
        above = library.parent if is_library else root
        for i in range(1 + is_library, len(parts) + 1):
            path = above.joinpath(*parts[:i])
            candidates = (path / "__init__.py", path.with_suffix(".py"))
            yield from (file for file in candidates if file.is_file())


class _WithoutTexts(ast.NodeTransformer):
    """Removes docstrings, and other strings that stand on their own and do nothing."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node


@functools.cache
def _parsed(path: Path, content: bytes, root: Path, library: Path) -> tuple[str, frozenset[Path]]:
    """What a module does, as text, and the files of the rooms and the library that it imports."""
    tree = ast.parse(content, str(path))
    files = (file for name in imported_names(tree) for file in _files_of(name, root, library))
    files = frozenset(file for file in files if not _DRAWS(file.stem))
    return ast.dump(_WithoutTexts().visit(tree), annotate_fields=False), files


def fingerprint(file: str | Path, root: Path = ROOT, library: Path = LIBRARY) -> str:
    """Digest of the code that a program runs: another one where any of it does something else.

    It is that of the syntax trees, without docstrings and comments, of the module and of all
    modules of the rooms and of the library that it imports, directly or not. Modules called
    `figures` or `…_figures` are left out: they draw what has been computed.

    Args:
        file: the module that is run.
        root: folder of the rooms.
        library: folder of calibjax.
    """
    root, library = root.resolve(), library.resolve()
    start = Path(file).resolve()
    todo = {start, *_files_of(name_of(start, root), root, library)}
    texts: dict[str, str] = {}
    done: set[Path] = set()
    while todo - done:
        path = (todo - done).pop()
        above = library.parent if path.is_relative_to(library) else root
        text, files = _parsed(path, path.read_bytes(), root, library)
        texts[str(path.relative_to(above))] = text
        todo |= files
        done.add(path)
    found = hashlib.sha256()
    for name, text in sorted(texts.items()):
        found.update(f"{name}\n{text}\n".encode())
    return found.hexdigest()
