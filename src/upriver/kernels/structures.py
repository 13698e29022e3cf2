"""One object that holds many arrays, so that a kernel takes few arguments with named fields.

A kernel that Python calls with a named tuple spends about 0.2 microseconds on each of its fields,
in every call. A `Structure` is a compiled reference to a named tuple: it is made once, `structure`
below, and afterwards costs 0.5 microseconds a call, whatever it holds. So what stays the same from
call to call (the rows of a task, where values are clipped) goes into one structure, and what
changes (a model, a plan) is passed as it is. A kernel reads `structure.fields`.
"""

from typing import Any

from numba.core import types
from numba.experimental import structref

from upriver.kernels.compiled import compiled


@structref.register
class StructureType(types.StructRef):
    def preprocess_fields(self, fields):
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


class Structure(structref.StructRefProxy):
    """A compiled reference to one named tuple, `fields`."""


structref.define_proxy(Structure, StructureType, ["fields"])


@compiled
def structure(fields: Any) -> Any:
    """Return a `Structure` that holds a named tuple of arrays and numbers."""
    return Structure(fields)
