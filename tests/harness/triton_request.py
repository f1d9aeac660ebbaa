"""Requests exactly as clients of NVIDIA's repository write them, and the answers read back."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
from tritonclient.grpc import service_pb2, service_pb2_grpc

Array = npt.NDArray[Any]

_DTYPES = {
    np.dtype(np.bool_): "BOOL",
    np.dtype(np.int32): "INT32",
    np.dtype(np.int64): "INT64",
    np.dtype(np.uint64): "UINT64",
    np.dtype(np.float32): "FP32",
    np.dtype(np.object_): "BYTES",
}


def text(*values: str | bytes) -> Array:
    """`[1, k]` BYTES."""
    return np.array(
        [[value if isinstance(value, bytes) else value.encode() for value in values]], dtype=object
    )


def ints(*values: int) -> Array:
    """`[1, k]` INT32."""
    return np.array([values], dtype=np.int32)


def floats(*values: float) -> Array:
    """`[1, k]` FP32."""
    return np.array([values], dtype=np.float32)


def flag(value: bool = True) -> Array:
    """`[1, 1]` BOOL."""
    return np.array([[value]])


def seed(value: int) -> Array:
    """`[1, 1]` UINT64."""
    return np.array([[value]], dtype=np.uint64)


def infer_request(
    model: str,
    tensors: Mapping[str, Array],
    *,
    request_id: str = "",
    outputs: Sequence[str] = (),
    parameters: Mapping[str, bool | int | str] | None = None,
) -> service_pb2.ModelInferRequest:
    """Build a request; parameters as Triton's clients send them, empty final responses asked for."""
    request = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    for name, value in (parameters or {}).items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
        setattr(request.parameters[name], kind, value)
    for name, array in tensors.items():
        tensor = request.inputs.add(name=name, datatype=_DTYPES[array.dtype])
        tensor.shape.extend(array.shape)
        request.raw_input_contents.append(_raw(array))
    for name in outputs:
        request.outputs.add(name=name)
    return request


def stop_request(request_id: str) -> service_pb2.ModelInferRequest:
    """Build the engine's stop request for an id, with dummies for the required tensors."""
    tensors = {"input_ids": ints(0), "input_lengths": ints(1), "request_output_len": ints(0), "stop": flag()}
    return infer_request("tensorrt_llm", tensors, request_id=request_id)


def _raw(array: Array) -> bytes:
    if array.dtype == np.object_:
        return b"".join(struct.pack("<I", len(item)) + item for item in array.reshape(-1))
    return array.tobytes()


def read_outputs(response: service_pb2.ModelInferResponse) -> dict[str, Any]:
    """Return output name -> nested lists, strings as `bytes`."""
    outputs = {}
    for tensor, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        if tensor.datatype == "BYTES":
            items, offset = [], 0
            while offset < len(raw):
                (length,) = struct.unpack_from("<I", raw, offset)
                items.append(raw[offset + 4 : offset + 4 + length])
                offset += 4 + length
            array = np.array(items, dtype=object)
        else:
            dtype = next(dtype for dtype, name in _DTYPES.items() if name == tensor.datatype)
            array = np.frombuffer(raw, dtype=dtype)
        outputs[tensor.name] = array.reshape(tuple(tensor.shape)).tolist()
    return outputs


@dataclass
class Reply:
    """Everything one request got back over a stream."""

    responses: list[dict[str, Any]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    finals: int = 0
    error: str | None = None

    @property
    def text(self) -> str:
        return b"".join(piece for reply in self.responses for piece in reply.get("text_output", [])).decode()

    def column(self, name: str) -> list[Any]:
        """The first element of an output in every response that has it."""
        return [
            np.array(reply[name], dtype=object).reshape(-1)[0] for reply in self.responses if name in reply
        ]

    @property
    def finish_reason(self) -> str:
        (reason,) = self.column("finish_reason")
        return str(reason.decode())


class TritonStream:
    """One gRPC channel to a server."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def __enter__(self) -> TritonStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def open(self, *requests: service_pb2.ModelInferRequest, timeout_s: float = 60.0) -> Any:
        """Start a stream that carries the requests; iterate it for the messages, `.cancel()` it at will."""
        return self.stub.ModelStreamInfer(iter(requests), timeout=timeout_s)

    def ask(self, request: service_pb2.ModelInferRequest, timeout_s: float = 60.0) -> Reply:
        """Send one request and read until the stream closes."""
        reply = Reply()
        for message in self.open(request, timeout_s=timeout_s):
            collect(reply, message)
        return reply

    def messages(
        self, request: service_pb2.ModelInferRequest
    ) -> Iterator[service_pb2.ModelStreamInferResponse]:
        """Send one request and yield the raw messages."""
        yield from self.open(request)


def collect(reply: Reply, message: service_pb2.ModelStreamInferResponse) -> None:
    """Add one message of the stream to the reply."""
    if message.error_message:
        assert reply.error is None, "two errors for one request"
        reply.error = message.error_message
        return
    response = message.infer_response
    assert reply.finals == 0, "a response came after the final one"
    reply.ids.append(response.id)
    if response.outputs:
        reply.responses.append(read_outputs(response))
    reply.finals += response.parameters["triton_final_response"].bool_param
