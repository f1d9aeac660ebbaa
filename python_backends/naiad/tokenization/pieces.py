"""What each token id stands for: its bytes, fixed once a tokenizer, so that decoding costs O(1) a token.

The rules mirror the decoders of the Hugging Face `tokenizers` library (`tokenizers/src/decoders` and
`pre_tokenizers/byte_level.rs`) for the two big families: byte-level BPE, and SentencePiece-like chains of
Replace or Metaspace, ByteFallback, Fuse and Strip. A decoder outside them compiles to None.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from naiad.contract.errors import InvalidArgument

__all__ = ["Decoding", "PieceTable", "Strip", "Vocabulary", "compile_decoder", "has_byte_tokens"]

_BYTE_TOKEN_LENGTH = len("<0x00>")


def _byte_level_alphabet() -> dict[str, int]:
    """The printable stand-in of each byte (GPT-2's `bytes_to_unicode`), inverted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return alphabet


_BYTE_OF_CHAR = _byte_level_alphabet()


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens by id, and which of them are special.

    Attributes:
        tokens: the token of each id; None where the tokenizer has no such id.
        special: ids of the special (control) tokens.
    """

    tokens: tuple[str | None, ...]
    special: frozenset[int]

    def checked(self, ids: Iterable[int]) -> list[int]:
        """Return `ids` as plain ints, all of them in the vocabulary.

        Raises:
            InvalidArgument: something is not an integer, or no token has that id.
        """
        checked = []
        tokens = self.tokens
        for position, value in enumerate(ids):
            try:
                token_id = operator.index(value)
            except TypeError:
                raise InvalidArgument(
                    f"token id at position {position} is a {type(value).__name__}, not an integer"
                ) from None
            if not 0 <= token_id < len(tokens) or tokens[token_id] is None:
                raise InvalidArgument(
                    f"token id {token_id} at position {position} is not in the vocabulary"
                    f" (0 to {len(tokens) - 1})"
                )
            checked.append(token_id)
        return checked


@dataclass(frozen=True, slots=True)
class _Replace:
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class _Metaspace:
    replacement: str
    drops_opening: bool


@dataclass(frozen=True, slots=True)
class _ByteFallback:
    pass


@dataclass(frozen=True, slots=True)
class _ByteLevel:
    pass


@dataclass(frozen=True, slots=True)
class Strip:
    """Up to `at_most` times `character` is taken from the very start of a text."""

    character: str
    at_most: int


_Step: TypeAlias = _Replace | _Metaspace | _ByteFallback | _ByteLevel


@dataclass(frozen=True, slots=True)
class Decoding:
    """A decoder as per-token steps, then what is done to the text they join to.

    Attributes:
        steps: applied to each token alone, in order; they end in bytes.
        replacements: (old character, new text), applied to the joined text.
        strip: what is taken from the very start of the text, after the replacements.
    """

    steps: tuple[_Step, ...] = ()
    replacements: tuple[tuple[str, str], ...] = ()
    strip: Strip | None = None

    def piece(self, token: str, *, opening: bool = False) -> bytes:
        """Return the bytes of `token`; `opening` when it is the first one of a text."""
        for step in self.steps:
            if isinstance(step, _Replace):
                token = token.replace(step.old, step.new)
            elif isinstance(step, _Metaspace):
                token = token.replace(step.replacement, "" if opening and step.drops_opening else " ")
            elif isinstance(step, _ByteFallback):
                value = _fallback_byte(token)
                if value is not None:
                    return bytes((value,))
            else:
                return _byte_level_bytes(token)
        return token.encode()


def _fallback_byte(token: str) -> int | None:
    """The byte that a token such as ``<0x0A>`` stands for."""
    if len(token) != _BYTE_TOKEN_LENGTH or not (token.startswith("<0x") and token.endswith(">")):
        return None
    try:
        return int(token[3:5], 16)
    except ValueError:
        return None


def _byte_level_bytes(token: str) -> bytes:
    """Undo the byte-level alphabet; a token with a character outside it (an added one) stands for itself."""
    try:
        return bytes([_BYTE_OF_CHAR[char] for char in token])
    except KeyError:
        return token.encode()


@dataclass(frozen=True, slots=True)
class PieceTable:
    """The bytes of every token id of one tokenizer.

    Attributes:
        pieces: bytes by id, as the token reads inside a text.
        decoding: the rules the bytes came from.
    """

    pieces: tuple[bytes, ...]
    decoding: Decoding

    @classmethod
    def build(cls, vocabulary: Vocabulary, decoding: Decoding) -> PieceTable:
        """Work out every token of `vocabulary` once (about a microsecond a token)."""
        piece = decoding.piece
        return cls(tuple(b"" if token is None else piece(token) for token in vocabulary.tokens), decoding)

    def opening_piece(self, vocabulary: Vocabulary, token_id: int) -> bytes:
        """Return the bytes of the first token of a text, which some decoders treat apart."""
        token = vocabulary.tokens[token_id]
        return b"" if token is None else self.decoding.piece(token, opening=True)


def compile_decoder(spec: Mapping[str, Any] | None) -> Decoding | None:
    """Turn a decoder, as tokenizer.json describes it, into per-token rules.

    Returns:
        None for a decoder whose output for one token depends on more than that token and whether it is first.
    """
    chain = _Chain()
    if spec is None or not all(chain.add(step) for step in _flattened(spec)):
        return None
    return Decoding(tuple(chain.steps), tuple(chain.replacements), chain.strip)


def has_byte_tokens(spec: Mapping[str, Any] | None) -> bool:
    """Tell whether, under this decoder, one character may be spread over several tokens."""
    return spec is not None and any(
        step["type"] in ("ByteLevel", "ByteFallback") for step in _flattened(spec)
    )


def _flattened(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    if spec.get("type") != "Sequence":
        return [spec]
    return [step for inner in spec["decoders"] for step in _flattened(inner)]


class _Chain:
    """Collects the steps of a decoder chain and refuses what cannot be done token by token."""

    def __init__(self) -> None:
        self.steps: list[_Step] = []
        self.replacements: list[tuple[str, str]] = []
        self.strip: Strip | None = None
        self._fused = False

    def add(self, step: Mapping[str, Any]) -> bool:
        kind = step["type"]
        if kind == "Fuse":
            self._fused = True
            return True
        if kind == "Replace":
            return self._add_replace(step["pattern"].get("String"), step["content"])
        if kind == "Strip":
            return self._add_strip(step)
        if self._fused:
            return False  # on a joined text these rules are no longer about one token
        if kind == "Metaspace":
            self.steps.append(
                _Metaspace(step["replacement"], step.get("prepend_scheme", "always") != "never")
            )
            return True
        if kind == "ByteFallback":
            self.steps.append(_ByteFallback())
            return True
        if kind == "ByteLevel":
            self.steps.append(_ByteLevel())
            self._fused = True  # ByteLevel joins all tokens into one text
            return True
        return False

    def _add_replace(self, old: str | None, new: str) -> bool:
        if not old or self.strip is not None:
            return False
        if not self._fused:
            self.steps.append(_Replace(old, new))
            return True
        if len(old) > 1:
            return False  # could match across tokens
        self.replacements.append((old, new))
        return True

    def _add_strip(self, step: Mapping[str, Any]) -> bool:
        if step["start"] == 0 and step["stop"] == 0:
            return True
        if step["stop"] or not self._fused or self.strip is not None:
            return False
        self.strip = Strip(step["content"], step["start"])
        return True
