"""Which changes of numeric lines do the quick tests notice?

`python -m tests.mutation --seed 1 --num 100 --jobs 2` draws lines of the package, changes an
operator, a constant, a comparison, a term or the order of arguments, and runs tests until one
fails: first those of the file and of the changed function, then those of its subpackage with its
examples, then the laws about its calls. Each change is made in a copy, which is removed afterwards.
The tests that failed must pass without any change.
"""

import argparse
import ast
import collections
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent import futures
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-qx", "-rfE", "-n0", "--tb=no", "-p", "no:cacheprovider"]
PYTEST += ["-m", "not slow and not optimised"]
# Where files are tested elsewhere than in a folder of that name, and laws about all calls.
TESTED_IN = {"binnings": "estimators", "reductions": "estimators"}
TESTED_IN |= {"operators": "operators kernels hypothesis_tests laws/test_export.py"}
TESTED_IN |= {"_core": "test_gate.py test_pytree.py distributions kernels recalibration"}
TESTED_IN |= {"distances": "distances test_units.py", "distributions": "distributions scores"}
TESTED_IN |= {"kernels": "kernels estimators", "recalibration": "recalibration test_logits.py"}
LAWS = "laws", "weights", "test_gate.py", "test_own_objects.py", "frozen"
# Changes that no test can notice, with the reason: the table is written by hand.
EQUIVALENT = (ROOT / "tests/equivalent.txt").read_text().splitlines()
EQUIVALENT = dict(x.rsplit(" | ", 1) for x in EQUIVALENT)

PAIRS = "Pow Mult, FloorDiv Mult, Mult Div, Add Sub, Lt LtE, Gt GtE, Eq NotEq, BitAnd BitOr"
OPERATORS = {a: b for x in PAIRS.split(", ") for a, b in (x.split()[::-1], x.split())}
PAIRS = "maximum minimum, max min, argmax argmin, sum mean, floor ceil, log log1p, exp expm1"
PAIRS += ", any all, zeros ones, zeros_like ones_like, sqrt square, left right, cumsum cumprod"
NAMES = {a: b for x in PAIRS.split(", ") for a, b in (x.split(), x.split()[::-1])}
NO_NUMBERS = "isinstance", "issubclass", "hasattr", "getattr", "map", "zip"
LEFT_OUT = "annotation", "returns", "exc", "msg"  # fields of nodes: types and messages


class Change(NamedTuple):
    """A changed node, what replaces it, and the node whose field gets another value."""

    file: pathlib.Path
    old: ast.expr | ast.stmt
    new: ast.AST
    function: str
    tree: ast.AST
    place: tuple[Any, str, Any]

    def __str__(self):
        """The file, the line with the changed part in «», and what replaces it."""
        line = (ROOT / self.file).read_bytes().splitlines()[self.old.lineno - 1]
        start, end = self.old.col_offset, self.old.end_col_offset
        end = end if self.old.lineno == self.old.end_lineno else len(line)
        before, old, after = (x.decode() for x in (line[:start], line[start:end], line[end:]))
        return f"{self.file} | {before.lstrip()}«{old}»{after} → {ast.unparse(self.new)}"

    def source(self):
        """The whole file with this change."""
        node, field, value = self.place
        before = getattr(node, field)
        setattr(node, field, value)
        source = ast.unparse(self.tree)
        setattr(node, field, before)
        return source


def replacements(node):
    """Nodes that may take the place of one."""

    def other(**fields):
        return type(node)(**vars(node) | fields)

    def opposite(op):
        return getattr(ast, OPERATORS[type(op).__name__])()

    match node:
        case ast.BinOp(left, op, right) if type(op).__name__ in OPERATORS:
            if not any(isinstance(getattr(x, "value", None), str) for x in (left, right)):
                yield from (other(op=opposite(op)), left)
        case ast.AugAssign(_, op, _) if type(op).__name__ in OPERATORS:
            yield other(op=opposite(op))
        case ast.Compare(_, [op], _) if type(op).__name__ in OPERATORS:
            yield other(ops=[opposite(op)])
        case ast.UnaryOp(ast.USub() | ast.Not() | ast.Invert(), operand):
            yield operand
        case ast.Constant(float() | int() as value) if not isinstance(value, bool):
            yield other(value=value + 1 if isinstance(value, int) else 2 * value or 1.0)
        case ast.Attribute(attr=name) if name in NAMES:
            yield other(attr=NAMES[name])
        case ast.Call(_, [*first, a, b]) if type(a) is type(b) and ast.dump(a) != ast.dump(b):
            yield other(args=[*first, b, a])


def has_numbers(node):
    """Whether it is no message and no question about types."""
    is_question = isinstance(node, ast.Call) and ast.unparse(node.func) in NO_NUMBERS
    return isinstance(node, ast.AST) and not isinstance(node, ast.JoinedStr) and not is_question


def changes(file, tree, node, function=""):
    """All changes below a node of a file."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = node.name
    for field, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        for i, child in enumerate(children if field not in LEFT_OUT else []):
            if has_numbers(child):
                for new in replacements(child):
                    whole = [*value[:i], new, *value[i + 1 :]] if children is value else new
                    yield Change(file, child, new, function, tree, (node, field, whole))
                yield from changes(file, tree, child, function)


def room_of(file):
    """The subpackage of a file, or its own name."""
    return file.parts[1].removesuffix(".py")


def drawn(seed, num, room=""):
    """One change of each of the lines that are drawn, behind a file of each subpackage as it is."""
    lines = collections.defaultdict(list)
    for path in sorted((ROOT / "calibjax").rglob("*.py")):
        file, tree = path.relative_to(ROOT), ast.parse(path.read_text())
        for change in changes(file, tree, tree) if room in ("", room_of(file)) else ():
            lines[file, change.old.lineno].append(change)
    names = {str(change) for same_line in lines.values() for change in same_line}
    print("named, but not there:", [x for x in EQUIVALENT if not room and x not in names])
    generator = random.Random(seed)
    chosen = generator.sample(sorted(lines), min(num, len(lines)))
    return [generator.choice(lines[line]) for line in chosen]


def stages(file, function):
    """Arguments of pytest for a changed function, one list after the other."""
    room = room_of(file)
    places = [ROOT / "tests" / x for x in TESTED_IN.get(room, room).split()]
    files = [f for x in places for f in ([x] if x.suffix else sorted(x.rglob("test_*.py")))]
    near = {f: file.stem in f.stem or function in re.findall(r"\w+", f.read_text()) for f in files}
    files = [str(f.relative_to(ROOT)) for f in sorted(files, key=lambda f: not near[f])]
    yield [*files, str(file)]
    yield [*(f"tests/{x}" for x in LAWS), *["-k", room] * (ROOT / "tests" / room).is_dir()]


def first_failure(sources, stages, limit):
    """The first test that fails in a copy with these sources of files, or an empty string."""
    with tempfile.TemporaryDirectory() as folder:
        for path in ROOT.iterdir():
            if path.name in ("calibjax", "tests"):
                shutil.copytree(path, pathlib.Path(folder, path.name))
            elif not path.name.startswith("."):
                pathlib.Path(folder, path.name).symlink_to(path)
        for file, source in sources.items():
            pathlib.Path(folder, file).write_text(source)
        options: Any = {"cwd": folder, "env": os.environ | {"PYTHONPATH": folder}}
        options |= {"timeout": limit, "capture_output": True, "text": True}
        for arguments in stages:
            try:
                ended = subprocess.run([*PYTEST, *arguments], **options)
            except subprocess.TimeoutExpired:
                return "the time limit"
            if ended.returncode not in (0, 5):  # all tests passed, or none was chosen
                failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", ended.stdout, re.MULTILINE)
                return failed[1] if failed else "the import"
    return ""


def tried(change, source, limit):
    """What catches a change, if anything does."""
    end = first_failure({change.file: source}, stages(change.file, change.function), limit)
    why = EQUIVALENT.get(str(change))
    end = f"caught by {end}" if "/" in end else end and f"ended by {end}"
    end = end or (f"equivalent: {why}" if why else "SURVIVED")
    print(f"{change}  {end}", flush=True)
    return end


def main():
    """A sentence if what caught a change fails without it as well."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    for name, usual in (("seed", 1), ("num", 100), ("jobs", 2), ("limit", 600), ("room", "")):
        parser.add_argument(f"--{name}", type=type(usual), default=usual)
    options = parser.parse_args()
    chosen = drawn(options.seed, options.num, options.room)
    sources = [change.source() for change in chosen]  # changes of a file share its tree
    with futures.ThreadPoolExecutor(options.jobs) as pool:
        ends = [*pool.map(lambda *x: tried(*x, options.limit), chosen, sources)]
    print(f"of {len(ends)}:", dict(collections.Counter(x.split()[0] for x in ends)), flush=True)
    # Copies have no comments and no hidden files, which tests may look at.
    unchanged = {change.file: ast.unparse(change.tree) for change in chosen}
    tests = sorted({x.removeprefix("caught by ") for x in ends if x.startswith("caught")})
    failing = first_failure(unchanged, [tests] if tests else [], 10 * options.limit)
    return f"fails without any change: {failing}" if failing else 0


if __name__ == "__main__":
    sys.exit(main())
