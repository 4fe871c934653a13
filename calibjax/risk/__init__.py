"""Calibration estimation functions, their risk, and their selection by cross-validation.

A function of your own is a record of a subclass of `EstimationFunction` with two methods. Here
h(p, q) = ⟨g(p), g(q)⟩ with a small neural network g, trained by optax to lower its risk on the
pairs of samples i and i + shift; the hyperparameter is the learning rate:

>>> import jax
>>> import jax.numpy as jnp
>>> import optax
>>> from calibjax import record, risk
>>> from calibjax.distributions import Categorical
>>> @record
... class Network(risk.EstimationFunction):
...     def fit(self, predictions, targets, learning_rate):
...         errors = predictions.class_probs - jax.nn.one_hot(targets, 3)
...         optimizer = optax.adam(learning_rate)
...         def loss(params, shift):
...             def products(x):
...                 return jnp.sum(x * jnp.roll(x, shift, 0), 1)
...             return jnp.mean((products(errors) - products(network(params, predictions))) ** 2)
...         def step(state, shift):
...             params, memory = state
...             updates, memory = optimizer.update(jax.grad(loss)(params, shift), memory)
...             return (optax.apply_updates(params, updates), memory), None
...         params = jax.random.normal(jax.random.key(0), (3, 8)), jnp.eye(8, 3)
...         shifts = jax.random.randint(jax.random.key(2), (200,), 1, len(targets))
...         return jax.lax.scan(step, (params, optimizer.init(params)), shifts)[0][0]
...     def evaluate(self, params, p, q):
...         return network(params, p) @ network(params, q).T
>>> def network(params, p):
...     return jnp.tanh(p.class_probs @ params[0]) @ params[1]

Use it like the functions of the library. The predictions of this model should be sharper:

>>> logits = jax.random.normal(jax.random.key(0), (600, 3))
>>> predictions = Categorical(jax.nn.softmax(logits))
>>> labels = jax.random.categorical(jax.random.key(1), 3 * logits)
>>> result = risk.cross_validate(
...     jax.random.key(2), Network(), jnp.array([0.001, 0.03]), predictions, labels, num_folds=2
... )
>>> print(result.hyperparameter)
0.03
"""

from calibjax.risk.estimation import (
    EstimationFunction,
    cross_validate,
    estimation_risk,
    squared_calibration_error,
)
from calibjax.risk.functions import Binning, KernelDensity, KernelRidge, Recalibrated

__all__ = [
    "Binning",
    "EstimationFunction",
    "KernelDensity",
    "KernelRidge",
    "Recalibrated",
    "cross_validate",
    "estimation_risk",
    "squared_calibration_error",
]


def __dir__() -> list[str]:
    return __all__
