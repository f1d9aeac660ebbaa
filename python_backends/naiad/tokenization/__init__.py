"""Text and token ids: tokenizer, incremental detokenizer, stop strings, chat messages and templates."""

from naiad.tokenization.chat_template import ChatTemplate
from naiad.tokenization.detokenizer import IncrementalDetokenizer
from naiad.tokenization.messages import Message, parse_messages
from naiad.tokenization.stops import StopMatcher, StopResult
from naiad.tokenization.tokenizer import Tokenizer

__all__ = [
    "ChatTemplate",
    "IncrementalDetokenizer",
    "Message",
    "StopMatcher",
    "StopResult",
    "Tokenizer",
    "parse_messages",
]
