"""Words of which prompts are made: each is one token in the vocabularies that most models use.

Looked up on 2026-11-30, with and without a space in front, in the vocabularies of SmolLM2 (that of the
default model), Qwen (tiktoken) and Mistral (tekken), and with a space in that of Mistral 7B (SentencePiece).
Models that add a token at the start of every prompt see one more.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["VOCABULARY", "spelled", "text_of", "token_ids_of"]

VOCABULARY = tuple(
    """
    the and for that you with are can from was not this have your which more other has man about but per out
    one were also part who into its some how self when our may time under there than over know people like
    such been use help new what would need through work any had off most many add used only first child
    system two where could health should well every high world even form water sign just make years set call
    see then result those way each because while process found art count long after read lead fact test life
    very being own she find right person back students both follow does car much main before level great end
    food start children good school within class often around made said show same too power design activity
    again small allow service care less example down take day support human now state called equal point
    number build play though body did must plan common three cell pass let social real known without public
    still change better hand another material report place learning interest present project list energy
    open mean keep others best include direct name history create top leg perform home stand move among mark
    look type large think air function against law group means rest control here pain area tree family due
    object old current try program early lab focus access last turn low success making print possible say
    key period run land case since specific local head post along value order text why cost
    """.split()  # noqa: SIM905 (a list of 256 strings is harder to read)
)
"""256 words; a prompt is a sequence of their numbers."""

_FIRST_ID = 1_000
_ID_STEP = 100


def text_of(numbers: Sequence[int]) -> str:
    """Return the words with these numbers."""
    return " ".join(VOCABULARY[number] for number in numbers)


def token_ids_of(numbers: Sequence[int]) -> tuple[int, ...]:
    """Return as many token ids, from 1,000 to 26,500: no special tokens, and in every common vocabulary.

    Equal words have equal ids, so prompts share prefixes as ids exactly where they do as text.
    """
    return tuple(_FIRST_ID + _ID_STEP * number for number in numbers)


def spelled(value: int, length: int) -> tuple[int, ...]:
    """Return the last `length` digits of `value` in base 256, the last one first: unequal for unequal values.

    The last digit leads, so that values which follow each other differ in their first word.
    """
    return tuple((value >> (8 * place)) % len(VOCABULARY) for place in range(length))
