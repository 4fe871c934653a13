"""The one way in which calibjax makes a record: a frozen dataclass that is a pytree."""

import dataclasses
from typing import TypeVar

import jax

T = TypeVar("T")


def record(cls: type[T]) -> type[T]:
    """Makes a class a frozen dataclass and registers it as a pytree.

    Every field is a child of the pytree, except for those that are marked as static by
    `dataclasses.field(metadata={"static": True})`. No field is converted or checked when the
    record is made, because JAX also makes records with placeholders in them; values are checked
    where they are used. Records compare and hash by identity, since arrays have no truth value.
    """
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True, eq=False)(cls))
