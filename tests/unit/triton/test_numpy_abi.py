"""The numpy shim, against a fake that reads arrays the way the pybind11 in Triton's stub does."""

import ctypes
import importlib
import importlib.util
import math
import struct
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from naiad.contract.errors import EngineUnavailable

NUMPY_2 = int(np.__version__.split(".")[0]) >= 2
DTYPES = [np.bool_, np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64]
SHAPES = [(), (1,), (0,), (2, 3), (0, 3), (3, 0), (2, 1), (2, 3, 4)]


def elsize(dtype: Any) -> int:
    """The `int elsize` that numpy 1's header declares; the stub was compiled against it."""
    return ctypes.c_int32.from_address(id(dtype) + 32).value


class FakeTensor:
    """`pb_utils.Tensor` of Triton 2.51: numpy 1's sizes, and numpy's C table as pybind11 2.11 finds it."""

    backend: Any
    table: Any = None  # like the stub's: taken once, at the first array

    def __init__(self, name: str, array: Any) -> None:
        self.name, self._array, self._dims = name, array, array.shape
        sent = array
        if array.dtype == np.object_:
            sent = np.asarray(self.backend.serialize_byte_tensor(array))
        contiguous = np.asarray(sent, order="C")
        size = contiguous.size * elsize(contiguous.dtype)
        self.sent = ctypes.string_at(contiguous.ctypes.data, size) if size else b""

    def as_numpy(self) -> Any:
        return self._array

    @classmethod
    def from_dlpack(cls, name: str, tensor: Any) -> Any:
        received = cls.__new__(cls)
        received.name, received._dims, received.sent = name, tensor._dims, b""
        source = np.asarray(tensor.as_numpy(), order="C")
        received._array = cls.array_around(source.ctypes.data, source.shape, source.dtype.type)
        return received

    @classmethod
    def array_around(cls, address: int, shape: tuple[int, ...], kind: Any) -> Any:
        """pybind11's `py::array(dtype, shape, pointer)` without an owner: it copies."""
        if cls.table is None:
            get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
                ("PyCapsule_GetPointer", ctypes.pythonapi)
            )
            capsule = importlib.import_module("numpy.core.multiarray")._ARRAY_API
            cls.table = (ctypes.c_void_p * 283).from_address(get_pointer(capsule, None))
        pointer, number, thing = ctypes.c_void_p, ctypes.c_int, ctypes.py_object
        new_from_descr = ctypes.PYFUNCTYPE(
            thing, thing, thing, number, pointer, pointer, pointer, number, pointer
        )(cls.table[94])
        new_copy = ctypes.PYFUNCTYPE(thing, thing, number)(cls.table[85])
        dtype = np.dtype(kind)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(dtype))  # the constructor steals one
        strides = [elsize(dtype) * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        sizes, steps = (ctypes.c_ssize_t * len(shape))(*shape), (ctypes.c_ssize_t * len(shape))(*strides)
        borrowed = new_from_descr(
            np.ndarray, dtype, len(shape), ctypes.addressof(sizes), ctypes.addressof(steps), address, 0, None
        )
        return new_copy(borrowed, -1)


def serialize_byte_tensor(array: Any) -> Any:
    """Triton's, shortened: a tuple for nothing, else length-prefixed bytes."""
    if array.size == 0:
        return ()
    items = [item if isinstance(item, bytes) else str(item).encode() for item in array.ravel()]
    return b"".join(struct.pack("<I", len(item)) + item for item in items)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Any:
    fake: Any = ModuleType("triton_python_backend_utils")
    fake.serialize_byte_tensor = serialize_byte_tensor
    fake.Tensor = type("Tensor", (FakeTensor,), {"backend": fake})
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    old_name = importlib.import_module("numpy.core.multiarray")
    monkeypatch.setattr(old_name, "_ARRAY_API", old_name._ARRAY_API)  # put back afterwards
    return fake


def load() -> ModuleType:
    """A private copy of the module, bound to the fake; the import system does not keep it."""
    spec = importlib.util.find_spec("naiad.triton.numpy_abi")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["the installed numpy", "numpy 2's repairs"])
def abi(request: pytest.FixtureRequest, backend: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "numpy 2's repairs" and not NUMPY_2:
        monkeypatch.setattr(np, "__version__", "2.0.0")
    return load()


def numbers(shape: tuple[int, ...], dtype: Any) -> Any:
    return (np.arange(math.prod(shape)).reshape(shape) + 1).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_byte_of_a_numeric_tensor_is_sent(abi: Any, shape: tuple[int, ...], dtype: Any) -> None:
    array = numbers(shape, dtype)
    tensor = abi.make_tensor("x", array)
    assert tensor.sent == array.tobytes()
    assert tensor._dims == shape


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_tensor_received_from_the_stub_reads_as_it_was(
    abi: Any, backend: Any, shape: tuple[int, ...], dtype: Any
) -> None:
    array = numbers(shape, dtype)
    received = abi.read_tensor(backend.Tensor.from_dlpack("x", abi.make_tensor("x", array)))
    assert received.dtype is np.dtype(dtype)
    assert received.shape == shape
    assert np.array_equal(received, array)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_made_here_reads_back_with_numpys_own_dtype(abi: Any, dtype: Any) -> None:
    array = numbers((2, 3), dtype)
    read = abi.read_tensor(abi.make_tensor("x", array))
    assert read.dtype is np.dtype(dtype)
    assert np.array_equal(read, array)


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_in_other_memory_orders_are_sent_in_c_order(abi: Any, dtype: Any) -> None:
    array = numbers((4, 6), dtype)
    for view in (array.T, array[::2, ::-1], np.asfortranarray(array), np.broadcast_to(array[0], (3, 6))):
        tensor = abi.make_tensor("x", view)
        assert tensor.sent == view.tobytes(order="C")


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_with_a_twin_dtype_never_owns_its_memory(
    backend: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner would treat its bytes as the objects that the twin's flags speak of."""
    monkeypatch.setattr(np, "__version__", "2.0.0")
    array = numbers((4, 6), dtype)
    for view in (array, array.T, array[:0], array[0, 0, ...]):
        handed_over = load().make_tensor("x", view).as_numpy()
        assert not handed_over.flags.owndata
        assert handed_over.flags.c_contiguous


def test_a_read_only_array_is_sent_without_a_copy_and_stays_read_only(abi: Any) -> None:
    array = numbers((8,), np.int32)
    array.flags.writeable = False
    tensor = abi.make_tensor("x", array)
    assert tensor.sent == array.tobytes()
    assert np.shares_memory(tensor.as_numpy(), array)
    assert not tensor.as_numpy().flags.writeable


@pytest.mark.parametrize(
    "items",
    [[], [b""], [b"", b""], [b"a", b"", b"\x00\xff"], ["Grüße", "日本"], [b"x" * 300_000]],
    ids=["none", "one empty", "two empty", "bytes", "str", "long"],
)
def test_text_is_sent_whole(abi: Any, items: list[Any]) -> None:
    array = np.array(items, dtype=np.object_).reshape(1, -1)
    tensor = abi.make_tensor("x", array)
    assert tensor.sent == bytes(serialize_byte_tensor(array))
    assert np.array_equal(abi.read_tensor(tensor), array)


def test_plain_dtypes_are_left_as_numpy_made_them(abi: Any) -> None:
    before = {dtype: np.dtype(dtype).flags for dtype in DTYPES}
    for dtype in DTYPES:
        abi.make_tensor("x", numbers((2,), dtype))
    assert {dtype: np.dtype(dtype).flags for dtype in DTYPES} == before
    assert np.frombuffer(b"ab", dtype=np.uint8).tolist() == [97, 98]


def test_the_repaired_constructor_ignores_the_strides_that_the_stub_computed(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(np, "__version__", "2.0.0")
    load()
    array = numbers((2, 3), np.int32)
    monkeypatch.setattr(sys.modules[__name__], "elsize", lambda dtype: 0)
    assert np.array_equal(backend.Tensor.array_around(array.ctypes.data, (2, 3), np.int32), array)


def test_the_self_test_passes_and_returns_numpys_own_table_to_everybody_else(abi: Any) -> None:
    module = importlib.import_module("numpy.core.multiarray")
    abi.self_test()
    own = sys.modules["numpy._core.multiarray" if NUMPY_2 else "numpy.core._multiarray_umath"]._ARRAY_API
    assert module._ARRAY_API is own


@pytest.mark.skipif(not NUMPY_2, reason="numpy 1 agrees with the stub by itself")
def test_without_the_shim_numpy_2_sends_nothing_and_repeats_the_first_item(backend: Any) -> None:
    array = numbers((3,), np.int32)
    tensor = backend.Tensor("x", array)
    assert tensor.sent == b""
    assert backend.Tensor.from_dlpack("x", tensor).as_numpy().tolist() == [1, 1, 1]


def test_a_stub_that_took_its_table_too_early_refuses_to_load(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.Tensor.array_around(numbers((1,), np.uint8).ctypes.data, (1,), np.uint8)
    monkeypatch.setattr(np, "__version__", "2.0.0")
    module = load()
    monkeypatch.setattr(sys.modules[__name__], "elsize", lambda dtype: 0)
    with pytest.raises(EngineUnavailable, match="numbers from the stub"):
        module.self_test()


def test_a_numpy_whose_dtypes_the_stub_misreads_refuses_to_load(
    abi: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abi, "_ELSIZE_OFFSET", 24)  # as if the stub read another field
    with pytest.raises(EngineUnavailable, match=r"numbers to the stub.*requirements\.lock"):
        abi.self_test()
