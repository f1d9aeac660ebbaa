"""Typed reading of a model's `parameters` block.

Triton hands every parameter over as a string. As in TensorRT-LLM, an empty value or an unfilled
`${variable}` means "not set" and takes the default; unlike it, a value that does not parse, or a key that
the model does not know, refuses the load and names what was meant.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from naiad.contract.errors import InvalidArgument
from naiad.contract.tensors import ModelSpec

__all__ = ["Parameters"]

_TRUE = frozenset({"true", "1", "t", "y", "yes"})
_FALSE = frozenset({"false", "0", "f", "n", "no"})


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one loaded model, checked against its specification."""

    model: str
    values: Mapping[str, str]

    @classmethod
    def of(cls, spec: ModelSpec, given: Mapping[str, str]) -> Parameters:
        """Merge `given` over the defaults of `spec`.

        Raises:
            InvalidArgument: a key is not a parameter of the model; the nearest known name is suggested.
        """
        known = {parameter.name: parameter.default or "" for parameter in spec.parameters}
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise InvalidArgument(f"model {spec.name} has no parameter {key!r}{hint}")
        set_values = {key: value for key, value in given.items() if value and not value.startswith("${")}
        return cls(spec.name, {**known, **set_values})

    def text(self, key: str) -> str:
        """Return the value as it stands; empty when not set."""
        return self.values[key]

    def integer(self, key: str, *, minimum: int = 0) -> int:
        """Return a whole number of at least `minimum`; InvalidArgument otherwise."""
        value = self.values[key]
        try:
            number = int(value)
        except ValueError:
            raise self._refused(key, f"a whole number, not {value!r}") from None
        if number < minimum:
            raise self._refused(key, f"at least {minimum}, not {number}")
        return number

    def optional_integer(self, key: str, *, minimum: int = 0) -> int | None:
        """Return None when not set, else as `integer`."""
        return self.integer(key, minimum=minimum) if self.values[key] else None

    def number(self, key: str, *, minimum: float = 0.0) -> float:
        """Return a finite number of at least `minimum`; InvalidArgument otherwise."""
        value = self.values[key]
        try:
            number = float(value)
        except ValueError:
            raise self._refused(key, f"a number, not {value!r}") from None
        if not minimum <= number < float("inf"):
            raise self._refused(key, f"a finite number of at least {minimum:g}, not {value}")
        return number

    def flag(self, key: str) -> bool:
        """Return a boolean in any of the spellings TensorRT-LLM's models take."""
        value = self.values[key].lower()
        if value in _TRUE:
            return True
        if value in _FALSE:
            return False
        raise self._refused(key, f"true or false, not {self.values[key]!r}")

    def choice(self, key: str, *allowed: str) -> str:
        """Return the value when it is one of `allowed`; InvalidArgument naming them otherwise."""
        value = self.values[key]
        if value not in allowed:
            raise self._refused(key, f"one of {', '.join(allowed)}, not {value!r}")
        return value

    def milliseconds(self, key: str, *, minimum: int = 1) -> float:
        """Return a whole number of milliseconds as seconds."""
        return self.integer(key, minimum=minimum) / 1000

    def _refused(self, key: str, wanted: str) -> InvalidArgument:
        return InvalidArgument(f"model {self.model}: parameter {key} must be {wanted}")
