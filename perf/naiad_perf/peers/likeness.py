"""Whether the contestants hold the same model: its likeliest answers to a few questions, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from naiad_perf.peers.peer import Peer
from naiad_perf.workload.load import Prompt

__all__ = ["Likeness", "likeness"]

_BEGINNINGS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time there was a little",
    "The three primary colours are",
    "To bake bread you need flour,",
    "In 1969 the first man walked",
    "The largest planet of our solar system is",
    "A triangle has three",
)
_TOKENS = 16
_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class Likeness:
    """How often an engine went on as ours did.

    Attributes:
        alike: texts whose first twelve characters were the same.
        of: texts tried.
    """

    alike: int
    of: int


def likeness(peers: Sequence[Peer], ours: str) -> dict[str, Likeness]:
    """Let every contestant that speaks in text go on with the same texts; compare it with `ours`.

    Weights rounded to another format, and other arithmetic, turn a close call the other way now and then. A
    wrong tokenizer or wrong weights hardly ever go on alike.

    Raises:
        PerfError: one of them failed.
    """
    prompts = [Prompt(text, (), _TOKENS) for text in _BEGINNINGS]
    said = {peer.name: [_beginning(peer.continuation(prompt)) for prompt in prompts] for peer in peers}
    reference = said.get(ours)
    if reference is None:
        return {}
    return {
        name: Likeness(sum(map(str.__eq__, texts, reference)), len(prompts))
        for name, texts in said.items()
        if name != ours and all(texts)
    }


def _beginning(text: str | None) -> str:
    return "" if text is None else text.strip()[:_CHARACTERS]
