"""Reading request tensors once, at the edge: arrays in, Python values out, every refusal by tensor name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from naiad.contract.errors import InvalidArgument

__all__ = ["TensorInputs", "decode_text"]

Array = npt.NDArray[Any]


def decode_text(name: str, value: object) -> str:
    """Return the text of one BYTES element.

    Raises:
        InvalidArgument: the bytes are not UTF-8.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, bytes):
        raise InvalidArgument(f"{name} must hold strings")
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{name} is not valid UTF-8: byte {error.start} cannot be decoded") from None


@dataclass(frozen=True, slots=True)
class TensorInputs:
    """The input tensors of one request; every array has the batch dimension first.

    An optional tensor that is present but empty counts as not given where it holds a list, and is refused
    where it should hold one value.

    Attributes:
        tensors: by name.
        batch_size: first dimension of every one.
        shown: name -> the caller's name for it, where messages should use another.
    """

    tensors: Mapping[str, Array]
    batch_size: int
    shown: Mapping[str, str] = field(default_factory=dict)

    def called(self, name: str) -> str:
        """Return the caller's name of a tensor."""
        return self.shown.get(name, name)

    def given(self, name: str) -> bool:
        """Whether the tensor is there and holds anything."""
        return name in self.tensors and self.tensors[name].size > 0

    def _row(self, name: str, row: int) -> Array:
        array = self.tensors[name]
        if array.shape[:1] != (self.batch_size,):
            raise InvalidArgument(
                f"{self.called(name)} has shape {list(array.shape)}; its first dimension must be the "
                f"batch size {self.batch_size}"
            )
        return np.asarray(array[row]).reshape(-1)

    def _one(self, name: str, row: int) -> Any:
        if name not in self.tensors:
            return None
        values = self._row(name, row)
        if values.size != 1:
            raise InvalidArgument(
                f"{self.called(name)} must hold exactly one value per request, not {values.size}"
            )
        return values[0]

    def integer(self, name: str, row: int, *, minimum: int, maximum: int) -> int | None:
        """Return a whole number in [minimum, maximum]; None when not given."""
        value = self._one(name, row)
        if value is None:
            return None
        number = int(value)
        if not minimum <= number <= maximum:
            raise InvalidArgument(f"{self.called(name)} must be from {minimum} to {maximum}, not {number}")
        return number

    def number(
        self, name: str, row: int, *, minimum: float, maximum: float, above: bool = False
    ) -> float | None:
        """Return a finite number in [minimum, maximum], or above `minimum`; None when not given."""
        value = self._one(name, row)
        if value is None:
            return None
        number = float(value)
        if not math.isfinite(number) or not minimum <= number <= maximum or (above and number == minimum):
            lower = "above" if above else "from"
            raise InvalidArgument(
                f"{self.called(name)} must be {lower} {minimum:g} to {maximum:g}, not {number:g}"
            )
        return number

    def flag(self, name: str, row: int = 0) -> bool | None:
        """Return a boolean; None when not given."""
        value = self._one(name, row)
        return None if value is None else bool(value)

    def text(self, name: str, row: int) -> str | None:
        """Return one string; None when not given."""
        value = self._one(name, row)
        return None if value is None else decode_text(name, value)

    def texts(self, name: str, row: int) -> tuple[str, ...]:
        """Return the non-empty strings of a list; empty when not given."""
        if not self.given(name):
            return ()
        words = (decode_text(name, value) for value in self._row(name, row))
        return tuple(word for word in words if word)

    def row(self, name: str, row: int) -> Array | None:
        """Return one row with its inner shape; None when not given or empty."""
        if not self.given(name):
            return None
        self._row(name, row)
        return np.asarray(self.tensors[name][row])

    def alias(self, name: str, old: str, row: int, *, maximum: int) -> int | None:
        """Return the value of `name` or of its older spelling; both only if they agree."""
        new_value = self.integer(name, row, minimum=0, maximum=maximum)
        old_value = self.integer(old, row, minimum=0, maximum=maximum)
        if new_value is not None and old_value is not None and new_value != old_value:
            raise InvalidArgument(
                f"{name} and {old} are the same setting but hold {new_value} and {old_value}"
            )
        return old_value if new_value is None else new_value
