"""Numbers in the sentences of a report."""

import math

from calibjax.evaluation.record import Entry


def ends_of(entry: Entry | None) -> tuple[float, float] | None:
    """Both ends of an interval, None if there is none or one of them is not finite."""
    if entry is None or entry.low is None or entry.high is None:
        return None
    is_finite = math.isfinite(entry.low) and math.isfinite(entry.high)
    return (entry.low, entry.high) if is_finite else None


def with_interval(value: float, entry: Entry) -> str:
    """A value, and the interval of an entry if it has one."""
    both = ends_of(entry)
    if both is None:
        return f"{value:.2f}"
    return f"{value:.2f} (95 % interval {both[0]:.2f} to {both[1]:.2f})"


def p_is(value: float) -> str:
    """A p-value."""
    return f"p = {value:.2g}"


def percent(share: float) -> str:
    """A share."""
    return f"{100 * share:.1f} %".replace(".0 %", " %")


def points(difference: float) -> str:
    """The size of a difference of shares."""
    return f"{abs(100 * difference):.1f} percentage points"
