"""Tensors between numpy arrays and Triton's Python stub, whichever numpy is installed.

The stub of Triton 2.51 was compiled against numpy 1 (Python 3.13 has none): it takes the item size of an
array from byte 32 of the array's dtype, an int32. There numpy 2 keeps the low half of the dtype's ``flags``,
0 for plain types. What goes wrong with numpy 2, silently, and what this module does about it:

- Outgoing, a tensor made in Python has zero bytes. `make_tensor` hands the stub a view with a twin of the
  array's dtype whose flags word equals its item size, so that both ways of reading agree. The view borrows
  its memory, so numpy never acts on what the flags mean (how to treat Python objects in an array). The stub's
  own call to `serialize_byte_tensor` gets its answer in the same form.
- Incoming, arrays that the stub makes around its memory get zero strides: every item repeats the first one,
  and text kills the process. The stub calls numpy through a table of C functions, which pybind11 up to 2.11
  takes once, at the first array, from ``numpy.core.multiarray._ARRAY_API`` (numpy 2 keeps that name for it
  alone). From import to `self_test` a copy of the table stands there, whose array constructor ignores the
  strides it is given; numpy then computes them, in C order.

With numpy 1 nothing of this happens. To a stub that knows numpy 2 the repairs do no harm.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from naiad.contract.errors import EngineUnavailable

__all__ = ["make_tensor", "read_tensor", "self_test"]

Array = npt.NDArray[Any]

_NUMPY_2 = int(np.__version__.split(".")[0]) >= 2
_TEXT_KINDS = "OS"  # the dtype kinds that Triton calls BYTES: Python objects and numpy's fixed-length bytes
_ELSIZE_OFFSET = 32  # of `int elsize` in numpy 1's PyArray_Descr, on 64-bit platforms
_NEW_FROM_DESCR = 94  # PyArray_NewFromDescr's index in numpy's C function table, part of numpy's stable ABI
_TABLE_LENGTH = 300  # more than pybind11 reads (283), less than numpy 2 has (over 360)

# (type, dtype, ndim, shape, strides, data, flags, owner); pointers as numbers: no reference count changes.
_Constructor = ctypes.PYFUNCTYPE(
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p,
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p,
)  # fmt: skip


@functools.cache
def _twin(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a private, equal copy of `dtype` that shows its item size to the stub under any numpy."""
    twin = np.dtype(dtype, False, True)
    state = (*twin.__reduce__()[2][:7], dtype.itemsize)  # version, byte order, ..., alignment, flags
    twin.__setstate__(state)  # type: ignore[attr-defined]
    return twin


def _outgoing(array: Array) -> Array:
    """Return `array`, C-contiguous, as a view whose size the stub reads rightly."""
    return np.asarray(array, order="C").view(_twin(array.dtype))


def _size_the_stub_reads(array: Array) -> int:
    """Return the bytes that the stub sends for `array`, as numpy 1's layout has them."""
    dtype = array.dtype  # keeps the address valid
    return array.size * ctypes.c_int32.from_address(id(dtype) + _ELSIZE_OFFSET).value


def _repaired_table(original: Any) -> tuple[Any, ...]:
    """Return a capsule around a copy of numpy's C function table, and the objects that must outlive it."""
    get_pointer, new_capsule = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    new_capsule.restype, new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p,) * 3

    table_type = ctypes.c_void_p * _TABLE_LENGTH
    table = table_type.from_buffer_copy(table_type.from_address(get_pointer(original, None)))
    construct = _Constructor(table[_NEW_FROM_DESCR] or 0)

    def construct_in_c_order(*arguments: Any) -> Any:
        kind, dtype, ndim, shape, _strides, data, flags, owner = arguments
        return construct(kind, dtype, ndim, shape, None, data, flags, owner)

    callback = _Constructor(construct_in_c_order)
    table[_NEW_FROM_DESCR] = ctypes.cast(callback, ctypes.c_void_p).value
    return new_capsule(ctypes.addressof(table), None, None), table, callback


def _repair_outgoing_text() -> None:
    """Answer the stub's calls to `serialize_byte_tensor` with an array whose size it reads rightly."""
    serialize = pb_utils.serialize_byte_tensor

    def serialize_repaired(array: Array) -> Array:
        return _outgoing(np.frombuffer(bytes(serialize(array)), dtype=np.uint8))

    pb_utils.serialize_byte_tensor = serialize_repaired


_OLD_NAME = vars(importlib.import_module("numpy.core.multiarray")) if _NUMPY_2 else {}
_OWN_TABLE = _OLD_NAME.get("_ARRAY_API")
if _NUMPY_2:
    _REPAIRED_TABLE = _repaired_table(_OWN_TABLE)
    _OLD_NAME["_ARRAY_API"] = _REPAIRED_TABLE[0]
    _repair_outgoing_text()


def make_tensor(name: str, array: Array) -> Any:
    """Return a ``pb_utils.Tensor`` of any shape; text is an object array of bytes or str.

    Build every tensor with this, never with ``pb_utils.Tensor``, which sends zero bytes under numpy 2.
    """
    if _NUMPY_2 and array.dtype.kind not in _TEXT_KINDS:
        return pb_utils.Tensor(name, _outgoing(array))
    return pb_utils.Tensor(name, array)


def read_tensor(tensor: Any) -> Array:
    """Return the tensor's array, same shape; BYTES become an object array of bytes. Copies nothing."""
    array: Array = tensor.as_numpy()
    if _NUMPY_2 and array.dtype.kind not in _TEXT_KINDS:
        return array.view(array.dtype.type)  # a tensor of `make_tensor`'s still carries the twin
    return array


def self_test() -> None:
    """Take numbers and text through the stub's conversions both ways; call it in ``initialize``.

    Raises:
        EngineUnavailable: numpy and the stub disagree; the model must not load.
    """
    numbers = np.arange(1, 7, dtype=np.int64).reshape(2, 3)
    text = np.array([[b"naiad", b""]], dtype=np.object_)
    outgoing = make_tensor("numbers", numbers)
    incoming = pb_utils.Tensor.from_dlpack("numbers", outgoing)  # the stub makes its own array around them
    if _NUMPY_2:
        _OLD_NAME["_ARRAY_API"] = _OWN_TABLE  # the stub has its table now; all others get numpy's own
    encoded = pb_utils.serialize_byte_tensor(text)
    agreed = {
        "numbers from the stub": np.array_equal(read_tensor(incoming), numbers),
        "numbers to the stub": _size_the_stub_reads(outgoing.as_numpy()) == numbers.nbytes,
        "numbers there and back": np.array_equal(read_tensor(outgoing), numbers),
        "text to the stub": not _NUMPY_2 or _size_the_stub_reads(encoded) == 4 + len(b"naiad") + 4,
        "text there and back": np.array_equal(read_tensor(make_tensor("text", text)), text),
    }
    broken = [what for what, right in agreed.items() if not right]
    if broken:
        raise EngineUnavailable(
            f"numpy {np.__version__} and Triton's Python stub disagree about arrays ({', '.join(broken)}): "
            "tensors would arrive empty. Install the numpy that requirements.lock pins for this Python."
        )
