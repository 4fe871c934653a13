"""Expectations of target kernels under predicted distributions: a registry, and a file per family.

`calibjax.kernels` imports the families, which register their rules.
"""

from calibjax.kernels.expectations.registry import (
    FeatureRule,
    Rules,
    batch_features,
    centered_kernel,
    centered_norm,
    check_expectations,
    combine,
    diagonal_expectation,
    double_expectation,
    features,
    few_features,
    four_terms,
    missing,
    prepare_features,
    register_expectations,
    rules,
    single_expectation,
    terms,
)

__all__ = [
    "FeatureRule",
    "Rules",
    "batch_features",
    "centered_kernel",
    "centered_norm",
    "check_expectations",
    "combine",
    "diagonal_expectation",
    "double_expectation",
    "features",
    "few_features",
    "four_terms",
    "missing",
    "prepare_features",
    "register_expectations",
    "rules",
    "single_expectation",
    "terms",
]
