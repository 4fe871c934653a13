"""Writes `numbers.json` anew and prints what is new, gone and changed, or with --check only prints.

What differs by rounding alone stays as it was.
"""

import argparse
import sys
from typing import Any

import jax

from tests import conftest  # noqa: F401  # first, so that programs are those of tests
from tests.frozen import values


def _numbers(name: str) -> dict[str, Any]:
    try:
        return values.numbers(name)
    except Exception as error:  # which hides no other call
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def main() -> int:
    """1 if anything changed and is not written."""
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--only", default="", metavar="PART", help="only names that contain this")
    options = parser.parse_args()
    jax.config.update("jax_disable_most_optimizations", True)
    file = values.read()
    before = {k: v for k, v in file.items() if options.only in k}
    changed, now = {}, dict.fromkeys(x for x in values.names() if options.only in x)
    for name in now:
        now[name] = _numbers(name)
        print(".", end="", file=sys.stderr, flush=True)
        if name in before:
            changed[name] = list(values.differences(name, before[name], now[name]))
            if not changed[name] or "error" in now[name]:  # which is told, not frozen
                now[name] = before[name]
    lines = [f"new: {name}" for name in now if name not in before]
    lines += [f"gone: {name}" for name in before if name not in now]
    lines += [f"changed: {name}, {line}" for name, found in changed.items() for line in found]
    print("\n".join(lines) or f"no change in {len(now)} calls")
    if options.check:
        return bool(lines)
    values.write({k: v for k, v in file.items() if options.only not in k} | now)
    return 0


sys.exit(main())
