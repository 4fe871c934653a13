"""Peak memory of one evaluation, in a process of its own.

Run: python -m experiments.benchmark.memory {value,gradient} NUM_SAMPLES

It prints the growth of the peak in bytes, and seconds, of the SKCE or of its gradient.
"""

import json
import re
import resource
import sys
import time
from pathlib import Path

import jax

from experiments.benchmark import workload

_WARM_UP = 2048  # with several tiles, so that the same code is compiled and loaded


def _status(field: str) -> int | None:
    """A size in bytes as Linux reports it of this process; None on other systems."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return None
    match = re.search(rf"^{field}:\s*(\d+) kB", status.read_text(), re.MULTILINE)
    return 1024 * int(match[1]) if match else None


def peak() -> int:
    """Peak resident memory of this process in bytes."""
    # On Linux ru_maxrss starts from the memory of the parent process, however short the fork.
    unit = 1 if sys.platform == "darwin" else 1024
    return _status("VmHWM") or unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def resident() -> int:
    """Resident memory of this process now; its peak where the system does not tell."""
    return _status("VmRSS") or peak()


def main(what: str, num_samples: int) -> None:
    """Warms up with few samples, then evaluates once.

    The growth is the final peak minus what was resident before. It is an upper bound: a peak of
    the compilation during the warm-up counts too, and cannot hide what the evaluation needs.
    """
    jax.config.update("jax_enable_x64", True)
    function = {"value": workload.value, "gradient": workload.gradient}[what]
    jax.block_until_ready(function(*workload.normal_samples(_WARM_UP)))
    samples = jax.block_until_ready(workload.normal_samples(num_samples))
    before, start = resident(), time.perf_counter()
    jax.block_until_ready(function(*samples))
    print(json.dumps({"bytes": peak() - before, "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
