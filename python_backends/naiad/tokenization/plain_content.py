"""Prompts whose message contents spell special tokens: the literals become plain text, not control.

How: every literal in a content is replaced by a marker before the template renders, so whatever special
token then stands in the rendered text is the template's own. Those are swapped for private aliases, the
markers for the literals again, and the whole is encoded at once by a second tokenizer that treats special
tokens as plain text but knows the aliases. Encoding the whole, not pieces, gives exactly the tokens the
prompt would have if the literals meant nothing.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import tokenizers

from naiad.tokenization.messages import Message

__all__ = ["PlainContentEncoder"]

# Private-use characters: in no vocabulary, and left alone by every normaliser.
_ALIAS_MARK = "\ue000"


@dataclass(frozen=True, slots=True, eq=False)
class PlainContentEncoder:
    """Encodes conversations with every special token of the contents as plain text. Threads may share it."""

    _literals: re.Pattern[str]
    _aliases: Mapping[str, str]
    _id_of_alias: Mapping[int, int]
    _library: tokenizers.Tokenizer

    @classmethod
    def over(cls, library: tokenizers.Tokenizer) -> PlainContentEncoder | None:
        """Take `library` over (hand in a copy of its own) and prepare it; None without special tokens."""
        special = {i: token for i, token in library.get_added_tokens_decoder().items() if token.special}
        if not special:
            return None
        library.encode_special_tokens = True
        salt = secrets.token_hex(8)
        id_of_alias = {f"{_ALIAS_MARK}{salt}.{i}{_ALIAS_MARK}": i for i in special}
        aliases = {special[i].content: alias for alias, i in id_of_alias.items()}
        library.add_tokens([_alias(special[i], alias) for alias, i in id_of_alias.items()])
        added = library.get_added_tokens_decoder()
        longest_first = sorted(aliases, key=len, reverse=True)
        return cls(
            re.compile("|".join(map(re.escape, longest_first))),
            aliases,
            {i: id_of_alias[token.content] for i, token in added.items() if token.content in id_of_alias},
            library,
        )

    def concerns(self, messages: Sequence[Message]) -> bool:
        """Tell whether any content spells a special token."""
        return any(self._literals.search(message.content) for message in messages)

    def encode(self, messages: Sequence[Message], render: Callable[[Sequence[Message]], str]) -> list[int]:
        """Render and encode `messages`; no special tokens are added.

        Raises:
            InvalidArgument: from `render`.
        """
        salt = secrets.token_hex(8)
        literals: list[str] = []

        def mark(found: re.Match[str]) -> str:
            literals.append(found.group())
            # Letters and digits only: templates that trim, split or quote a content leave it whole.
            return f"x{salt}n{len(literals) - 1}x"

        marked = [replace(message, content=self._literals.sub(mark, message.content)) for message in messages]
        rendered = render(marked)
        rendered = self._literals.sub(lambda found: self._aliases[found.group()], rendered)
        rendered = re.sub(f"x{salt}n([0-9]+)x", lambda found: literals[int(found[1])], rendered)
        ids = self._library.encode(rendered, add_special_tokens=False).ids
        return [self._id_of_alias.get(token_id, token_id) for token_id in ids]


def _alias(token: tokenizers.AddedToken, alias: str) -> tokenizers.AddedToken:
    """A plain added token that is matched like the special `token`."""
    return tokenizers.AddedToken(
        alias,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=False,
        special=False,
    )
