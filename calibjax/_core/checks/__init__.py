"""Argument checks: the only place that decides what is refused, and how messages are worded.

Structure (shapes, dtypes, sizes, options) is checked on every call. Values are checked on every
call whose arrays are concrete. Traced values, which nobody can look at, become NaN where they are
wrong, so that everything that depends on them is NaN and never a plausible number. Hence checks of
values return them, and callers go on with what was returned. Every message names the argument, what
was expected and what came.
"""

# ruff: noqa: F401  (what is imported here is what the package offers)

from calibjax._core.checks.arrays import (
    as_arrays,
    described,
    first_where,
    has_64_bits,
    is_concrete,
    is_distribution,
    is_outermost,
    originals,
    refuse_masked,
    refuse_where,
)
from calibjax._core.checks.data import (
    batch,
    bin_ids,
    class_predictions,
    confidence_array,
    confidences_and_correct,
    features,
    group_ids,
    groups,
    in_time_order,
    method,
    points,
    predictions_and_targets,
    same_kind,
    same_rows,
    smoothing_weights,
    targets_of,
)
from calibjax._core.checks.missing import (
    is_missing,
    missing_rows,
    missing_unless,
    missing_where,
    nan_rows,
    nan_unless,
    nan_with,
)
from calibjax._core.checks.options import (
    choice,
    distance_values,
    fitted,
    function,
    kernel_or_function,
    kernel_values,
    key_first,
    learned,
    no_plain_objects,
    number_of_draws,
    random_key,
    size_in_range,
    truth_value,
)
from calibjax._core.checks.records import (
    axis_lengths,
    constrained,
    constraints_of,
    record_values,
    replaced,
)
from calibjax._core.checks.values import (
    an_array,
    equal_weights,
    finite,
    floating,
    increasing,
    integer,
    is_simplex,
    labels,
    leading_size,
    length_scales,
    positive,
    positive_definite,
    positive_number,
    positive_scalar,
    proportion,
    proportions,
    real,
    satisfying,
    satisfying_integers,
    shape,
    simplex,
    simplex_tolerance,
    smallest_normal,
    unit_interval,
    unrounded,
)
from calibjax._core.checks.weights import (
    counted,
    plain_weights,
    sample_weights,
    weighted_confidences,
    weighted_samples,
)
