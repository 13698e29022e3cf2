"""Decorators and types of the kernels that are not plain yet. Nothing new may use this file."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import gep_inbounds
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, lower_getattr_generic, models, register_model, unbox
from numba.np.arrayobj import make_array, populate_array

from upriver.kernels.compiled import njit_cached

WORD = ir.IntType(64)
njit_nogil = njit_cached


def njit_without_refcounts(function: Callable[..., Any]) -> Callable[..., Any]:
    return njit_cached(function, _nrt=False)


def njit_inline_ir(function: Callable[..., Any]) -> Callable[..., Any]:
    return numba.njit(inline="always")(function)


class ConstantsType(types.Type):
    """The type of `Constants`: (name, type, place) of each field, the place counted in words."""

    def __init__(self, name: str, fields: tuple[tuple[str, types.Type, int], ...]) -> None:
        self.fields = {field: (kind, place) for field, kind, place in fields}
        digest = sha256(str(fields).encode()).hexdigest()[:16]
        super().__init__(name=f"Constants({name}, {digest})")  # short: it is in every symbol


class Constants:
    """A named tuple of arrays, numbers and named tuples that kernels read as if it were one.

    It hands many arrays to a kernel as one argument, the address of a table of words. Numba looks
    at every array of an argument list in every call, and at those of a named tuple for longer
    still, and compiles code that does so. Measured with numba 0.68: a `Constants` costs 0.3
    microseconds a call, an array 0.06, a named tuple of seven arrays 1.6. The arrays have no
    reference counts in a kernel, so a kernel must not return one.
    """

    def __init__(self, values: Any) -> None:
        self.values = values  # the arrays live as long as this object
        words: list[int] = []
        self._numba_type_ = add_words(values, words)  # numba asks for this name
        self.words = np.array(words, np.int64)
        self.address = self.words.ctypes.data

    def __reduce__(self) -> Any:
        return Constants, (self.values,)


def add_words(values: Any, words: list[int]) -> ConstantsType:
    """Append what `read_field` reads of a named tuple to words, and return its type.

    An array has its address, its shape and its strides; a number is a word; None has none.
    """
    start, fields = len(words), []
    for name, value in zip(values._fields, values, strict=True):
        place = len(words) - start
        if isinstance(value, tuple):
            kind: types.Type = add_words(value, words)
        else:
            kind = numba.typeof(value)
            if isinstance(kind, types.Array):
                words += [value.ctypes.data, *value.shape, *value.strides]
            elif kind == types.float64:
                words.append(int(np.float64(value).view(np.int64)))
            elif kind == types.int64:
                words.append(int(value))
            elif value is not None:
                raise TypeError(f"{name} is {value!r}; it must be an array, a number or None")
        fields.append((name, kind, place))
    return ConstantsType(type(values).__name__, tuple(fields))


@register_model(ConstantsType)
class ConstantsModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, WORD.as_pointer())


@unbox(ConstantsType)
def unbox_constants(_kind: Any, constants: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(constants, "address")
    pointer = c.builder.bitcast(c.pyapi.long_as_voidptr(address), WORD.as_pointer())
    c.pyapi.decref(address)
    return NativeValue(pointer)


@infer_getattr
class ConstantsFields(AttributeTemplate):
    key = ConstantsType

    def generic_resolve(self, typ: ConstantsType, attr: str) -> Any:
        return typ.fields[attr][0] if attr in typ.fields else None


@lower_getattr_generic(ConstantsType)
def read_field(context: Any, builder: Any, constants: ConstantsType, words: Any, name: str) -> Any:
    """Write the code that reads a field of a `Constants`."""
    kind, place = constants.fields[name]

    def load(i: int) -> Any:
        word = builder.load(gep_inbounds(builder, words, place + i))
        word.set_metadata("invariant.load", builder.module.add_metadata([]))  # it never changes
        return word

    if isinstance(kind, ConstantsType):
        return gep_inbounds(builder, words, place)
    if isinstance(kind, types.Array):
        array, n = make_array(kind)(context, builder), kind.ndim
        populate_array(
            array,
            data=builder.inttoptr(load(0), array.data.type),
            shape=[load(1 + i) for i in range(n)],
            strides=[load(1 + n + i) for i in range(n)],
            itemsize=context.get_abi_sizeof(context.get_data_type(kind.dtype)),
            meminfo=None,
        )
        return array._getvalue()
    if kind == types.float64:
        return builder.bitcast(load(0), context.get_value_type(kind))
    return load(0) if kind == types.int64 else context.get_dummy_value()
