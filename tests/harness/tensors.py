"""Short ways to write request tensors in tests, with the dtypes that the contract declares."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from naiad.contract import ModelSpec
from naiad.serving.tensor_inputs import TensorInputs

__all__ = ["arrays_of", "inputs_of"]


def arrays_of(spec: ModelSpec, **values: Any) -> dict[str, npt.NDArray[Any]]:
    """Return one array for each named input of `spec`.

    A plain value becomes `[1, 1]` and a tuple `[1, n]`; a list is taken as it is nested. Strings are encoded.
    """
    arrays = {}
    for name, value in values.items():
        nested = value if isinstance(value, list) else [list(value) if isinstance(value, tuple) else [value]]
        dtype = np.dtype(spec.input(name).dtype.numpy)
        array = np.array(nested, dtype=dtype)
        if dtype == np.object_:
            items = [item.encode() if isinstance(item, str) else item for item in array.reshape(-1)]
            flat = np.empty(len(items), dtype=np.object_)
            flat[:] = items
            array = flat.reshape(array.shape)
        arrays[name] = array
    return arrays


def inputs_of(spec: ModelSpec, *, batch_size: int = 1, **values: Any) -> TensorInputs:
    """Return the same as the serving code sees it."""
    return TensorInputs(arrays_of(spec, **values), batch_size)
