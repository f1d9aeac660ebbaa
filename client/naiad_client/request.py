"""One generation request: checked where it is made, written as the tensors of the contract."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tritonclient.grpc import service_pb2

from naiad_client.errors import InvalidArgument

__all__ = ["GenerationRequest", "Message", "Parameter"]

Message = Mapping[str, str]
"""One turn of a conversation: ``{"role": "user", "content": "..."}``."""

Parameter = str | int | float | bool
"""Value of a request parameter of Triton."""

_INT32_MAX = 2**31 - 1
_FP32_MAX = 3.4028234663852886e38
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_OURS = frozenset({"timeout", "sequence_id", "sequence_start", "sequence_end", "priority"})


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A [1,1] tensor: its Triton type, how to pack it, and the range it may have."""

    datatype: str
    packing: str
    lowest: float
    highest: float


_SCALARS: dict[str, _Scalar] = {
    "max_tokens": _Scalar("INT32", "<i", 1, _INT32_MAX),
    "temperature": _Scalar("FP32", "<f", 0.0, _FP32_MAX),
    "top_k": _Scalar("INT32", "<i", 0, _INT32_MAX),
    "top_p": _Scalar("FP32", "<f", 0.0, 1.0),
    "repetition_penalty": _Scalar("FP32", "<f", 0.0, _FP32_MAX),
    "presence_penalty": _Scalar("FP32", "<f", -_FP32_MAX, _FP32_MAX),
    "frequency_penalty": _Scalar("FP32", "<f", -_FP32_MAX, _FP32_MAX),
    "min_tokens": _Scalar("INT32", "<i", 0, _INT32_MAX),
    "seed": _Scalar("UINT64", "<Q", 0, 2**64 - 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """What to generate and how; None leaves a setting to the server.

    Exactly one of `text_input` (the raw prompt) and `messages` (a conversation, put into the model's chat
    template by the server) is given.

    Attributes:
        max_tokens: most tokens to generate.
        stream: whether the answer arrives in pieces; otherwise as one piece at the end.
        stop_words: texts that end the answer.
        bad_words: texts that must not appear.
        return_log_probs: whether chunks carry the log probability of each token.
        exclude_input_in_output: whether the answer leaves out the prompt. When streaming it always does.
        parameters: further request parameters for Triton, passed on as they are.

    Raises:
        InvalidArgument: a value is missing, of the wrong kind or out of range; the message names it.
    """

    text_input: str | None = None
    messages: Sequence[Message] | None = None
    max_tokens: int = 256
    stream: bool = True
    stop_words: Sequence[str] = ()
    bad_words: Sequence[str] = ()
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    min_tokens: int | None = None
    seed: int | None = None
    return_log_probs: bool = False
    exclude_input_in_output: bool = True
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.text_input is None) == (self.messages is None):
            raise InvalidArgument("give exactly one of text_input and messages")
        if self.text_input is not None:
            _check_text("text_input", self.text_input)
        if self.messages is not None:
            _check_messages(self.messages)
        for name, kind in _SCALARS.items():
            value = getattr(self, name)
            if value is not None:
                _check_number(name, kind, value)
            elif name == "max_tokens":
                raise InvalidArgument("max_tokens is required")
        if self.min_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidArgument(f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}")
        for name in ("stop_words", "bad_words"):
            _check_words(name, getattr(self, name))
        for name in self.parameters:
            if name in _OURS or name.startswith("triton_"):
                raise InvalidArgument(f"parameter {name!r} is reserved")

    @classmethod
    def ask(cls, question: str, *, system: str | None = None, max_tokens: int = 256) -> GenerationRequest:
        """Return the request for one question to a chat model, with an optional system message."""
        opening: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        return cls(messages=[*opening, {"role": "user", "content": question}], max_tokens=max_tokens)

    def to_protobuf(
        self, *, model: str, request_id: str, timeout_s: float | None = None
    ) -> service_pb2.ModelInferRequest:
        """Return the message for `model`; every tensor has shape [1,1], the word lists [1,k].

        Args:
            model: name of the model on the server.
            request_id: the id that the server logs and that a stop request would name.
            timeout_s: time left for the whole request; sent as Triton's ``timeout`` in whole microseconds.
        """
        message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
        if self.text_input is not None:
            _add_texts(message, "text_input", [self.text_input])
        if self.messages is not None:
            _add_texts(message, "messages", [_conversation(self.messages)])
        for name, kind in _SCALARS.items():
            value = getattr(self, name)
            if value is not None:
                _add(message, name, kind.datatype, 1, struct.pack(kind.packing, value))
        for name, words in (("stop_words", self.stop_words), ("bad_words", self.bad_words)):
            if words:
                _add_texts(message, name, words)
        for name, wanted in self._switches():
            _add(message, name, "BOOL", 1, struct.pack("?", wanted))
        self._add_parameters(message, timeout_s)
        return message

    def _switches(self) -> Iterable[tuple[str, bool]]:
        yield "stream", self.stream
        yield "exclude_input_in_output", self.exclude_input_in_output
        yield "return_num_input_tokens", True
        yield "return_num_output_tokens", True
        if self.return_log_probs:
            yield "return_log_probs", True

    def _add_parameters(self, message: service_pb2.ModelInferRequest, timeout_s: float | None) -> None:
        # Without it the end of a decoupled answer cannot be told from a broken stream.
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        if timeout_s is not None:
            message.parameters["timeout"].int64_param = max(1, round(timeout_s * 1_000_000))
        for name, value in self.parameters.items():
            slot = message.parameters[name]
            if isinstance(value, bool):
                slot.bool_param = value
            elif isinstance(value, int):
                slot.int64_param = value
            elif isinstance(value, float):
                slot.double_param = value
            else:
                slot.string_param = value


def _conversation(messages: Sequence[Message]) -> str:
    return json.dumps([dict(message) for message in messages], ensure_ascii=False)


def _add_texts(message: service_pb2.ModelInferRequest, name: str, texts: Sequence[str]) -> None:
    encoded = [text.encode() for text in texts]
    raw = b"".join(struct.pack("<I", len(item)) + item for item in encoded)
    _add(message, name, "BYTES", len(encoded), raw)


def _add(message: service_pb2.ModelInferRequest, name: str, datatype: str, count: int, raw: bytes) -> None:
    message.inputs.add(name=name, datatype=datatype, shape=[1, count])
    message.raw_input_contents.append(raw)


def _check_text(name: str, text: object) -> None:
    if not isinstance(text, str) or not text:
        raise InvalidArgument(f"{name} must be a text that is not empty")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{name} is not valid Unicode (lone surrogate at {error.start})") from error


def _check_words(name: str, words: object) -> None:
    if isinstance(words, str) or not isinstance(words, Sequence):
        raise InvalidArgument(f"{name} must be a list of texts")
    for position, word in enumerate(words):
        _check_text(f"{name}[{position}]", word)


def _check_messages(messages: object) -> None:
    if isinstance(messages, str) or not isinstance(messages, Sequence) or not messages:
        raise InvalidArgument("messages must be a list with at least one message")
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping) or message.get("role") not in _ROLES:
            raise InvalidArgument(f"messages[{position}] needs a role, one of {', '.join(sorted(_ROLES))}")
        content = message.get("content")
        if content != "":  # an empty turn is odd, but well-formed
            _check_text(f"messages[{position}].content", content)


def _check_number(name: str, kind: _Scalar, value: object) -> None:
    whole = kind.datatype != "FP32"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise InvalidArgument(f"{name} must be {'a whole number' if whole else 'a number'}, not {value!r}")
    if not math.isfinite(value) or not kind.lowest <= value <= kind.highest:
        raise InvalidArgument(f"{name} must be between {kind.lowest} and {kind.highest}, not {value}")
