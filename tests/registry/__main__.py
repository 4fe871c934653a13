"""What comes of all wrong values in some calls: `python -m tests.registry NAME`."""

import sys

import jax
import numpy as np

from tests import registry
from tests.registry.outcomes import ALLOWED, evaluate, try_compiled, try_eagerly

chosen = [x for x in registry.calls().values() if len(sys.argv) == 2 and sys.argv[1] in x.name]
if not chosen:
    sys.exit(f"{__doc__}\nNAME: expected a part of the name of a call, got {sys.argv[1:]}")
jax.config.update("jax_traceback_filtering", "off")  # the file that raised an error tells whose
wrong = []
for call in chosen:
    for dtype in (np.float32, np.float64):
        with jax.enable_x64(dtype == np.float64):
            evaluate(call, call.values(dtype))
            tried = list(try_eagerly(call, dtype))
            tried += try_compiled(call, dtype) if call.compiled else []
        print(f"{call.name}, {dtype.__name__}: {len(tried)} wrong values")
        wrong += [one for one in tried if one.outcome not in ALLOWED]
sys.exit("\n".join(map(str, wrong)) or None)
