"""Peak memory of one evaluation, in a process of its own.

Run: python -m experiments.benchmark.memory {value,gradient,mlce} NUM_SAMPLES

It prints bytes and seconds.
"""

import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import jax

from experiments.benchmark import local, workload

_WARM_UP = 2048  # with several tiles, so that the same code is compiled and loaded


def measure(what: str, num_samples: int) -> dict[str, float]:
    """Growth of the peak memory and seconds of an evaluation, measured in a fresh process.

    Args:
        what: "value" or "gradient" of the SKCE, or "mlce".
        num_samples: n.
    """
    command = [sys.executable, "-m", "experiments.benchmark.memory", what, str(num_samples)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{result.stderr}")
    return json.loads(result.stdout)


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
    function, draw = {
        "value": (workload.value, workload.normal_samples),
        "gradient": (workload.gradient, workload.normal_samples),
        "mlce": (local.curve, lambda n: (local.samples(n, 50), local.samples(n, 50))),
    }[what]
    jax.block_until_ready(function(*draw(_WARM_UP)))
    samples = jax.block_until_ready(draw(num_samples))
    before, start = resident(), time.perf_counter()
    jax.block_until_ready(function(*samples))
    print(json.dumps({"bytes": peak() - before, "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
