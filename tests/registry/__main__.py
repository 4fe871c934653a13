"""What comes of all wrong values in some calls: `python -m tests.registry NAME [SHARE]`.

NAME is a part of their names, or ALL. A SHARE such as 2/3 leaves all but every third call out.
"""

import sys

import jax
import numpy as np

from tests import registry
from tests.registry.outcomes import ALLOWED, evaluate, try_compiled, try_eagerly

part, share = (*sys.argv[1:], "1/1", "1/1")[:2]
first, step = map(int, share.split("/"))
chosen = [call for call in registry.calls().values() if part == "ALL" or part in call.name]
chosen = chosen[first - 1 :: step]
if len(sys.argv) == 1 or not chosen:
    sys.exit(f"{__doc__}\nNAME: expected a part of the name of a call, got {sys.argv[1:]}")
jax.config.update("jax_disable_most_optimizations", True)
total, wrong = 0, []
for number, call in enumerate(chosen, 1):
    for dtype in (np.float32, np.float64):
        tried, found = [], []
        try:
            with jax.enable_x64(dtype == np.float64):
                evaluate(call, call.values(dtype))
                tried += try_eagerly(call, dtype)
                tried += try_compiled(call, dtype) if call.compiled else []
        except Exception as error:
            found = [f"{call.name}: of right values, {type(error).__name__}: {error}"]
        found += [one for one in tried if one.outcome not in ALLOWED]
        place = f"{number}/{len(chosen)} {call.name}, {dtype.__name__}"
        print(f"{place}: {len(tried)} wrong values, {len(found)} wrong outcomes", flush=True)
        total += len(tried)
        wrong += found
    if number % 20 == 0:
        jax.clear_caches()  # thousands of programs would run out of memory maps
print(f"{total} wrong values, {len(wrong)} wrong outcomes")
sys.exit("\n".join(map(str, wrong)) or None)
