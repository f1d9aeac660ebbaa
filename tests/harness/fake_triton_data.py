"""The values of the fake Triton module: tensors, errors and responses, as strict as the stub's own."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Array",
    "InferenceResponse",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "refuse_unless",
    "serialize_byte_tensor",
    "typed",
]

Array = npt.NDArray[Any]
_DTYPES = frozenset(
    {
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
        "float16", "float32", "float64",
    }
)  # fmt: skip


class TritonModelException(Exception):
    """What the stub raises for every refusal of its own."""


def refuse_unless(right: bool, message: str) -> None:
    """Raise Triton's exception with `message` unless `right`."""
    if not right:
        raise TritonModelException(message)


def typed(value: object, kind: type, what: str) -> None:
    """Raise TypeError, as pybind11 does, unless `value` is of that kind; a bool is no int."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"incompatible constructor arguments: {what} is a {type(value).__name__}")


class Tensor:
    """Takes a C-contiguous array of a type Triton knows; text is an object array of bytes or str."""

    def __init__(self, name: str, array: Array) -> None:
        typed(name, str, "the tensor's name")
        typed(array, np.ndarray, f"tensor {name}")
        refuse_unless(name != "", "Tensor name cannot be an empty string.")
        text = array.dtype == np.object_
        refuse_unless(text or array.dtype.name in _DTYPES, f"{name}: unsupported type {array.dtype}")
        refuse_unless(array.flags.c_contiguous, f"{name}: not C-contiguous")
        if text:
            items = array.reshape(-1).tolist()
            refuse_unless(all(isinstance(item, bytes | str) for item in items), f"{name}: holds no text")
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Array:
        return self._array

    def is_cpu(self) -> bool:
        return True

    def snapshot(self) -> Array:
        """What the receiver sees: the stub copies at sending; strings arrive as bytes."""
        if self._array.dtype == np.object_:
            items = [item.encode() if isinstance(item, str) else item for item in self._array.reshape(-1)]
            received = np.empty(len(items), dtype=np.object_)
            received[:] = items
        else:
            received = np.frombuffer(self._array.tobytes(), dtype=self._array.dtype.type)
        return received.reshape(self._array.shape)

    @classmethod
    def from_dlpack(cls, name: str, tensor: Tensor) -> Tensor:
        return cls(name, tensor.snapshot())


class TritonError:
    """An error of a response."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        typed(message, str, "the error's message")
        typed(code, int, "the error's code")
        refuse_unless(0 <= code <= self.CANCELLED, f"unknown error code {code}")
        self._message, self._code = message, code

    def message(self) -> str:
        return self._message

    def code(self) -> int:
        return self._code


class InferenceResponse:
    """Output tensors, or an error."""

    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        for tensor in output_tensors:
            typed(tensor, Tensor, "an output")
        names = [tensor.name() for tensor in output_tensors]
        refuse_unless(len(set(names)) == len(names), f"an output occurs twice: {names}")
        if error is not None:
            typed(error, TritonError, "the error")
        self._tensors, self._error = list(output_tensors), error

    def output_tensors(self) -> list[Tensor]:
        return self._tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error


def serialize_byte_tensor(array: Array) -> Any:
    """Triton's: nothing for no item, else each item after its length."""
    if array.size == 0:
        return ()
    items = [item.encode() if isinstance(item, str) else bytes(item) for item in array.reshape(-1)]
    return b"".join(struct.pack("<I", len(item)) + item for item in items)
