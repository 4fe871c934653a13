"""What comes of all wrong values in some calls: `python -m tests.registry NAME`."""

import sys

import jax
import numpy as np

from tests import registry
from tests.registry.outcomes import ALLOWED, evaluate, try_compiled, try_eagerly

jax.config.update("jax_traceback_filtering", "off")  # the file that raised an error tells whose
if len(sys.argv) != 2:
    sys.exit(__doc__)
for call in registry.calls().values():
    if sys.argv[1] not in call.name:
        continue
    evaluate(call, call.values(np.float32))
    tried = list(try_eagerly(call, np.float32))
    tried += try_compiled(call, np.float32) if call.compiled else []
    wrong = [one for one in tried if one.outcome not in ALLOWED]
    print(f"{call.name}: {len(tried)} wrong values", *wrong, sep="\n")
