"""The text that quantisation is calibrated on, as windows of token ids."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from naiad_build.errors import SourceError

__all__ = ["PACKAGED", "TextSet", "read_texts", "windows_of"]

PACKAGED = Path(__file__).resolve().parents[1] / "texts" / "calibration.jsonl"


@dataclass(frozen=True, slots=True)
class TextSet:
    """Texts and what identifies them.

    Attributes:
        texts: none of them empty.
        sha256: digest of the file, in lower-case hex.
    """

    texts: tuple[str, ...]
    sha256: str


def read_texts(path: Path) -> TextSet:
    """Read a file of texts: `.jsonl` with `{"text": ...}` a line, or plain text with blank lines between.

    Raises:
        SourceError: it cannot be read, is not what its name says, or holds no text.
    """
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is not UTF-8 text: {error}") from error
    found = (
        _of_lines(path, text) if path.suffix == ".jsonl" else [part.strip() for part in text.split("\n\n")]
    )
    found = [each for each in found if each]
    if not found:
        raise SourceError(f"{path} holds no text")
    return TextSet(tuple(found), hashlib.sha256(content).hexdigest())


def windows_of(texts: TextSet, tokenizer: Path, count: int, tokens: int) -> NDArray[np.int64]:
    """Join texts with a blank line between and cut them into windows.

    Args:
        texts: see `read_texts`.
        tokenizer: `tokenizer.json` of the model.
        count: most windows; they are spread evenly over the text.
        tokens: length of each.

    Returns:
        Token ids, [windows, tokens].

    Raises:
        SourceError: the text is shorter than one window.
    """
    library = Tokenizer.from_file(str(tokenizer))
    ids = library.encode("\n\n".join(texts.texts), add_special_tokens=False).ids
    available = len(ids) // tokens
    if available == 0:
        raise SourceError(f"the text has {len(ids)} tokens, and one window alone takes {tokens}: give more")
    every: NDArray[np.int64] = np.array(ids[: available * tokens], dtype=np.int64).reshape(-1, tokens)
    chosen: NDArray[np.int64] = every[np.linspace(0, available - 1, min(count, available)).astype(int)]
    return chosen


def _of_lines(path: Path, text: str) -> list[str]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
        except ValueError as error:
            raise SourceError(f"{path}, line {number} is not JSON: {error}") from error
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise SourceError(f'{path}, line {number} must be an object with a text: {{"text": "..."}}')
        found.append(row["text"].strip())
    return found
