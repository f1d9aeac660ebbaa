"""Text to token ids and back for one model. One shared instance serves all threads."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from naiad.contract.errors import InvalidArgument, Unsupported
from naiad.tokenization.chat_template import ChatTemplate
from naiad.tokenization.detokenizer import ByteDetokenizer, IncrementalDetokenizer, PrefixDetokenizer
from naiad.tokenization.messages import Message
from naiad.tokenization.model_files import TokenizerFiles
from naiad.tokenization.pieces import PieceTable, Vocabulary, compile_decoder, has_byte_tokens
from naiad.tokenization.plain_content import PlainContentEncoder

__all__ = ["Tokenizer"]


class _BosRule(enum.Enum):
    """How a text gets its beginning-of-text token; ``add_bos_token`` wins over the post-processor."""

    NONE = enum.auto()
    FRAMED = enum.auto()  # the post-processor adds it
    PREPEND = enum.auto()  # add_bos_token is true, the post-processor does not add it
    REMOVE = enum.auto()  # add_bos_token is false, the post-processor adds it all the same


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tokenizer:
    """A model's tokenizer, its chat template included.

    Everything that looks at the whole vocabulary happens in `load`; requests only look things up.

    Attributes:
        vocab_size: one more than the highest token id.
        eos_ids: the ids that end a generation, the main one first; never empty.
        pad_id: the id that fills up batches.
        bos_id: the id that begins a text; None when the model has none.
        chat_template: None when the model has none.
    """

    vocab_size: int
    eos_ids: tuple[int, ...]
    pad_id: int
    bos_id: int | None
    chat_template: ChatTemplate | None
    _library: tokenizers.Tokenizer
    _bos_rule: _BosRule
    _vocabulary: Vocabulary
    _pieces: PieceTable | None
    _has_byte_tokens: bool
    _plain_content: PlainContentEncoder | None

    @classmethod
    def load(cls, directory: Path) -> Tokenizer:
        """Read a prepared model directory.

        Raises:
            InvalidArgument: a file is missing or malformed, or names a token the vocabulary does not have.
        """
        files = TokenizerFiles.read(Path(directory))
        library = files.library()
        vocabulary = _vocabulary(library)
        special = _read_special_ids(files, library, vocabulary)
        decoder = json.loads(library.decoder.__getstate__()) if library.decoder is not None else None
        decoding = compile_decoder(decoder)
        return cls(
            vocab_size=len(vocabulary.tokens),
            eos_ids=special.eos_ids,
            pad_id=special.pad_id,
            bos_id=special.bos_id,
            chat_template=_chat_template(files),
            _library=library,
            _bos_rule=_bos_rule(files, library, special.bos_id),
            _vocabulary=vocabulary,
            _pieces=None if decoding is None else PieceTable.build(vocabulary, decoding),
            _has_byte_tokens=has_byte_tokens(decoder),
            _plain_content=None if files.template is None else PlainContentEncoder.over(files.library()),
        )

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of `text`; special tokens spelled in it are recognised.

        Args:
            text: any text, also empty.
            add_special_tokens: add what the tokenizer itself frames a text with. A beginning-of-text token
                comes in only when its post-processor or ``add_bos_token`` says so, and never twice.

        Raises:
            InvalidArgument: `text` is not text, or holds half of a surrogate pair.
        """
        ids = self._encoded(text, "text", add_special_tokens=add_special_tokens)
        if not add_special_tokens or self.bos_id is None:
            return ids
        rule, bos = self._bos_rule, [self.bos_id]
        if rule is _BosRule.PREPEND:
            return ids if ids[:1] == bos else bos + ids
        if rule is _BosRule.FRAMED and ids[1:2] == bos:
            spelled = self._encoded(text, "text", add_special_tokens=False)[:1] == bos
            return ids[1:] if spelled else ids
        return ids[1:] if rule is _BosRule.REMOVE else ids

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Return the ids of each word, without a frame; words that come to no token at all are skipped.

        Raises:
            InvalidArgument: a word is not text, or holds half of a surrogate pair; names its position.
        """
        if isinstance(words, str):
            raise InvalidArgument("words must be a list of strings, not one string")
        encoded = (
            self._encoded(word, f"word {position}", add_special_tokens=False)
            for position, word in enumerate(words)
        )
        return [ids for ids in encoded if ids]

    def encode_messages(self, messages: Sequence[Message]) -> list[int]:
        """Return the prompt ids of a conversation, ready for the assistant's turn.

        Equal to Hugging Face's ``apply_chat_template(..., add_generation_prompt=True)``, except that special
        tokens spelled in a message's content are plain text.

        Raises:
            Unsupported: the model has no chat template.
            InvalidArgument: there is no message, or the template refuses these.
        """
        template = self.chat_template
        if template is None:
            raise Unsupported("messages: this model has no chat template; send a prompt text instead")
        plain = self._plain_content
        if plain is not None and plain.concerns(messages):
            return plain.encode(messages, template.render)
        return self._encoded(template.render(messages), "messages", add_special_tokens=False)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of a whole sequence; a trailing incomplete character is left out.

        Raises:
            InvalidArgument: an id is not in the vocabulary.
        """
        detokenizer = self.detokenizer(skip_special_tokens=skip_special_tokens)
        return detokenizer.push(ids) + detokenizer.flush()

    def detokenizer(self, *, skip_special_tokens: bool = True) -> IncrementalDetokenizer:
        """Return a decoder for one sequence that arrives in chunks; costs nothing to make."""
        if self._pieces is not None:
            return ByteDetokenizer(self._vocabulary, self._pieces, skip_special_tokens=skip_special_tokens)
        return PrefixDetokenizer(
            self._vocabulary,
            self._decode_shown,
            has_byte_tokens=self._has_byte_tokens,
            skip_special_tokens=skip_special_tokens,
        )

    def _decode_shown(self, ids: list[int]) -> str:
        return self._library.decode(ids, skip_special_tokens=False)

    def _encoded(self, text: str, what: str, *, add_special_tokens: bool) -> list[int]:
        if not isinstance(text, str):
            raise InvalidArgument(f"{what} must be a string, not {type(text).__name__}")
        try:
            return self._library.encode(text, add_special_tokens=add_special_tokens).ids
        except TypeError:
            # The library's word for a string that cannot be UTF-8.
            raise InvalidArgument(f"{what} holds half of a surrogate pair") from None


def _vocabulary(library: tokenizers.Tokenizer) -> Vocabulary:
    by_id = {token_id: token for token, token_id in library.get_vocab(with_added_tokens=True).items()}
    added = library.get_added_tokens_decoder()
    by_id.update({token_id: token.content for token_id, token in added.items()})
    if not by_id:
        raise InvalidArgument("tokenizer.json has an empty vocabulary")
    return Vocabulary(
        tokens=tuple(by_id.get(token_id) for token_id in range(max(by_id) + 1)),
        special=frozenset(token_id for token_id, token in added.items() if token.special),
    )


@dataclass(frozen=True, slots=True)
class _SpecialIds:
    eos_ids: tuple[int, ...]
    pad_id: int
    bos_id: int | None


def _read_special_ids(
    files: TokenizerFiles, library: tokenizers.Tokenizer, vocabulary: Vocabulary
) -> _SpecialIds:
    def named(name: str) -> tuple[int, ...]:
        token = files.token(name)
        if token is None:
            return ()
        token_id = library.token_to_id(token)
        if token_id is None:
            raise InvalidArgument(f"tokenizer_config.json: {name} {token!r} is not in the vocabulary")
        return (token_id,)

    eos = files.ids("eos_token_id") or named("eos_token")
    if not eos:
        raise InvalidArgument("neither generation_config.json nor tokenizer_config.json names an end token")
    pad = files.ids("pad_token_id") or named("pad_token") or eos
    bos = named("bos_token") or files.ids("bos_token_id")
    try:
        vocabulary.checked((*eos, *pad, *bos))
    except InvalidArgument as error:
        raise InvalidArgument(
            f"generation_config.json does not fit tokenizer.json: {error.message}"
        ) from None
    return _SpecialIds(eos_ids=eos, pad_id=pad[0], bos_id=bos[0] if bos else None)


def _chat_template(files: TokenizerFiles) -> ChatTemplate | None:
    if files.template is None:
        return None
    return ChatTemplate(
        files.template, bos_token=files.token("bos_token"), eos_token=files.token("eos_token")
    )


def _bos_rule(files: TokenizerFiles, library: tokenizers.Tokenizer, bos_id: int | None) -> _BosRule:
    flag = files.flag("add_bos_token")
    if flag and bos_id is None:
        raise InvalidArgument("tokenizer_config.json: add_bos_token is true, but there is no bos_token")
    framed = bos_id is not None and library.encode("").ids[:1] == [bos_id]
    if framed:
        return _BosRule.REMOVE if flag is False else _BosRule.FRAMED
    return _BosRule.PREPEND if flag else _BosRule.NONE
