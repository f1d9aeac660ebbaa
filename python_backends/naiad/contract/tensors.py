"""How a tensor and a model of the serving contract are described; the single source of every `config.pbtxt`.

The tensors themselves stand in `engine_model` (token ids) and `text_models` (text). Names, dtypes and
dimensions are those of the TensorRT-LLM 1.2.1 model repository; what Naiad adds is marked `extension`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

__all__ = ["DataType", "ModelSpec", "ParameterSpec", "TensorSpec"]


class DataType(Enum):
    """Triton's tensor data types that the contract uses; the value is the name in `config.pbtxt`."""

    BOOL = "TYPE_BOOL"
    UINT8 = "TYPE_UINT8"
    UINT64 = "TYPE_UINT64"
    INT32 = "TYPE_INT32"
    INT64 = "TYPE_INT64"
    FP16 = "TYPE_FP16"
    FP32 = "TYPE_FP32"
    STRING = "TYPE_STRING"

    @property
    def wire_name(self) -> str:
        """Name in requests and metadata: as in the configuration, but strings are called BYTES."""
        return "BYTES" if self is DataType.STRING else self.value.removeprefix("TYPE_")

    @property
    def numpy(self) -> npt.DTypeLike:
        """The numpy dtype that holds it; strings are arrays of `bytes` objects."""
        return _NUMPY[self]


_NUMPY: dict[DataType, npt.DTypeLike] = {
    DataType.BOOL: np.bool_,
    DataType.UINT8: np.uint8,
    DataType.UINT64: np.uint64,
    DataType.INT32: np.int32,
    DataType.INT64: np.int64,
    DataType.FP16: np.float16,
    DataType.FP32: np.float32,
    DataType.STRING: np.object_,
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a model.

    Attributes:
        name: tensor name.
        dtype: data type where it is fixed, or the usual one where `variable` names a template variable.
        dims: dimensions without the batch dimension; -1 is variable.
        optional: for inputs, whether a request may leave it out.
        scalar: declared `[1]`, reshaped to `[]`: clients send `[batch, 1]`, the model sees `[batch]`.
        ragged: requests of one batch may differ in shape (`allow_ragged_batch`).
        variable: NVIDIA's template variable that chooses the dtype on a GPU profile.
        extension: not part of NVIDIA's contract; Naiad adds it.
    """

    name: str
    dtype: DataType
    dims: tuple[int, ...]
    optional: bool = False
    scalar: bool = False
    ragged: bool = False
    variable: str | None = None
    extension: bool = False


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """One entry of a model's `parameters` block (always a `string_value` on the wire).

    Attributes:
        name: key.
        default: value used when the entry is empty, as text; None where there is no default.
        meaning: one line for the reference table.
        extension: not part of NVIDIA's contract; Naiad adds it.
    """

    name: str
    default: str | None
    meaning: str
    extension: bool = False


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Everything the contract fixes about one model."""

    name: str
    summary: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: tuple[ParameterSpec, ...] = ()
    steps: tuple[EnsembleStep, ...] = field(default=())

    def input(self, name: str) -> TensorSpec:
        """Return the named input; KeyError when the model has none of that name."""
        return _named(self.inputs, name)

    def output(self, name: str) -> TensorSpec:
        """Return the named output; KeyError when the model has none of that name."""
        return _named(self.outputs, name)


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """One step of an ensemble: which model, and model tensor -> ensemble tensor on both sides."""

    model: str
    inputs: dict[str, str]
    outputs: dict[str, str]


def _named(specs: tuple[TensorSpec, ...], name: str) -> TensorSpec:
    for spec in specs:
        if spec.name == name:
            return spec
    raise KeyError(name)
