"""Expectations of target kernels under predicted distributions: a registry, and a file per family.

`calibjax.kernels` imports the families, which register their rules.
"""

from calibjax.kernels.expectations.registry import batch_features as batch_features
from calibjax.kernels.expectations.registry import centered_kernel as centered_kernel
from calibjax.kernels.expectations.registry import centered_norm as centered_norm
from calibjax.kernels.expectations.registry import check_expectations as check_expectations
from calibjax.kernels.expectations.registry import combine as combine
from calibjax.kernels.expectations.registry import diagonal_expectation as diagonal_expectation
from calibjax.kernels.expectations.registry import double_expectation as double_expectation
from calibjax.kernels.expectations.registry import features as features
from calibjax.kernels.expectations.registry import few_features as few_features
from calibjax.kernels.expectations.registry import four_terms as four_terms
from calibjax.kernels.expectations.registry import missing as missing
from calibjax.kernels.expectations.registry import prepare_features as prepare_features
from calibjax.kernels.expectations.registry import register_expectations as register_expectations
from calibjax.kernels.expectations.registry import rules as rules
from calibjax.kernels.expectations.registry import single_expectation as single_expectation
from calibjax.kernels.expectations.registry import terms as terms
