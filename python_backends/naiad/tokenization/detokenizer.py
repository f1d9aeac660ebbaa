"""Token ids to text, as they come: complete characters at once, incomplete ones held back.

The law: whatever the chunking, the joined texts equal the one-shot decode. It holds by construction, since
the one-shot decode is this detokenizer fed everything at once and then flushed. For ids that spell valid
text, that is what `tokenizers.Tokenizer.decode` returns.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from naiad.tokenization.pieces import PieceTable, Vocabulary

__all__ = ["ByteDetokenizer", "IncrementalDetokenizer", "PrefixDetokenizer"]

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# PrefixDetokenizer decodes a window of tokens: cut back to _KEPT of them when it has _TRIMMED and nothing is
# held, and at _FULL in any case. Longer than the context a decoder looks at, short enough to decode again.
_KEPT, _TRIMMED, _FULL = 8, 16, 64


class IncrementalDetokenizer(ABC):
    """Decodes one sequence; made by `Tokenizer.detokenizer`. For one thread at a time.

    A U+FFFD appears only where the model itself made bytes that are no text.
    """

    __slots__ = ("_hidden", "_vocabulary")

    def __init__(self, vocabulary: Vocabulary, *, skip_special_tokens: bool) -> None:
        self._vocabulary = vocabulary
        self._hidden = vocabulary.special if skip_special_tokens else frozenset()

    def push(self, ids: Sequence[int]) -> str:
        """Take the next token ids and return the text they complete, perhaps none.

        Raises:
            InvalidArgument: an id is not in the vocabulary; then nothing of `ids` was taken.
        """
        hidden = self._hidden
        checked = self._vocabulary.checked(ids)
        if hidden:
            checked = [token_id for token_id in checked if token_id not in hidden]
        return self._advance(checked)

    @abstractmethod
    def flush(self) -> str:
        """End the sequence: drop a trailing incomplete character, return whatever else was held.

        Afterwards the detokenizer is as new.
        """

    @abstractmethod
    def _advance(self, ids: list[int]) -> str:
        """Decode ids that are known to be in the vocabulary and to be shown."""


class ByteDetokenizer(IncrementalDetokenizer):
    """Looks up each token's bytes and decodes them as a UTF-8 stream: O(1) a token."""

    __slots__ = ("_at_start", "_decoder", "_strips_left", "_table")

    def __init__(self, vocabulary: Vocabulary, table: PieceTable, *, skip_special_tokens: bool) -> None:
        super().__init__(vocabulary, skip_special_tokens=skip_special_tokens)
        self._table = table
        self._decoder = _Utf8Decoder(errors="replace")
        self._restart()

    def flush(self) -> str:
        """Only an incomplete character is ever held, so the text is empty."""
        self._restart()
        return ""

    def _restart(self) -> None:
        self._decoder.reset()
        self._at_start = True
        strip = self._table.decoding.strip
        self._strips_left = strip.at_most if strip else 0

    def _advance(self, ids: list[int]) -> str:
        if not ids:
            return ""
        table = self._table
        opening = b""
        if self._at_start:
            self._at_start = False
            opening = table.opening_piece(self._vocabulary, ids[0])
            ids = ids[1:]
        pieces = table.pieces
        text = self._decoder.decode(opening + b"".join([pieces[token_id] for token_id in ids]))
        for old, new in table.decoding.replacements:
            text = text.replace(old, new)
        return self._stripped(text) if self._strips_left else text

    def _stripped(self, text: str) -> str:
        """Take the leading character off the start of the whole text, and never later."""
        strip = self._table.decoding.strip
        while text and strip and self._strips_left:
            if not text.startswith(strip.character):
                self._strips_left = 0
            else:
                text = text[1:]
                self._strips_left -= 1
        return text


class PrefixDetokenizer(IncrementalDetokenizer):
    """For every other decoder: decodes a short window of tokens and returns what the newest one added."""

    __slots__ = ("_decode", "_has_byte_tokens", "_shown", "_window")

    def __init__(
        self,
        vocabulary: Vocabulary,
        decode: Callable[[list[int]], str],
        *,
        has_byte_tokens: bool,
        skip_special_tokens: bool,
    ) -> None:
        """Make one over `decode`, the library's whole-sequence decode, special tokens shown.

        Without byte tokens a U+FFFD can only be a token's own text, so nothing is ever held back.
        """
        super().__init__(vocabulary, skip_special_tokens=skip_special_tokens)
        self._decode = decode
        self._has_byte_tokens = has_byte_tokens
        self._restart()

    def flush(self) -> str:
        """Only an incomplete character is ever held, so the text is empty."""
        self._restart()
        return ""

    def _restart(self) -> None:
        self._window: list[int] = []
        self._shown = 0  # characters of the window's text that were already returned

    def _advance(self, ids: list[int]) -> str:
        # One token at a time, so that the result cannot depend on the chunking.
        return "".join([self._step(token_id) for token_id in ids])

    def _step(self, token_id: int) -> str:
        window = self._window
        window.append(token_id)
        text = self._decode(window)
        full = len(window) >= _FULL
        end = len(text.rstrip(_REPLACEMENT)) if self._has_byte_tokens and not full else len(text)
        delta = text[self._shown : end]
        self._shown = max(self._shown, end)
        if full or (len(window) >= _TRIMMED and self._shown == len(text)):
            unshown = len(text) - self._shown
            del window[:-_KEPT]
            self._shown = len(self._decode(window)) - unshown
        return delta
