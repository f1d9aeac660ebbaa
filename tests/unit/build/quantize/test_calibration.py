"""Text to calibrate on: how it is read and cut."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from naiad_build.errors import SourceError
from naiad_build.quantize.calibration import PACKAGED, read_texts, windows_of
from tests.harness.tiny_model import write_tiny_model

TEXTS = PACKAGED.parent


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "model") / "tokenizer.json"


def test_plain_text_is_split_at_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\nmore\n\n\n\ntwo\n", encoding="utf-8")
    texts = read_texts(path)
    assert texts.texts == ("one\nmore", "two")
    assert texts.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b" \n\n", "holds no text"),
        ("a.txt", b"\xff\xfe", "is not UTF-8"),
        ("a.jsonl", b'{"text": "x"}\nnot json', "line 2 is not JSON"),
        ("a.jsonl", b'{"words": "x"}', "line 1 must be an object with a text"),
        ("a.jsonl", b"[1]", "line 1 must be an object with a text"),
        ("a.jsonl", b'{"text": "  "}', "holds no text"),
    ],
)
def test_what_is_no_text_is_named_with_its_place(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=said):
        read_texts(tmp_path / name)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"gone\.txt cannot be read: No such file"):
        read_texts(tmp_path / "gone.txt")


def test_windows_are_spread_over_the_text(tmp_path: Path, tokenizer: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(f"number {i}" for i in range(500)), encoding="utf-8")
    windows = windows_of(read_texts(path), tokenizer, 3, 16)
    assert windows.shape == (3, 16)
    library = Tokenizer.from_file(str(tokenizer))
    ids = library.encode(path.read_text(encoding="utf-8"), add_special_tokens=False).ids
    assert windows[0].tolist() == ids[:16]
    last = len(ids) // 16 * 16
    assert windows[2].tolist() == ids[last - 16 : last]


def test_too_little_text_says_how_much_there_is(tmp_path: Path, tokenizer: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("short", encoding="utf-8")
    with pytest.raises(SourceError, match="one window alone takes 256: give more"):
        windows_of(read_texts(path), tokenizer, 3, 256)


def test_no_packaged_text_is_in_two_sets() -> None:
    def rows(name: str) -> list[dict[str, str]]:
        return [json.loads(line) for line in (TEXTS / name).read_text(encoding="utf-8").splitlines()]

    calibration = "\n".join(row["text"] for row in rows("calibration.jsonl"))
    held_out = [row["text"] for row in rows("held_out.jsonl")]
    held_out += [row["passage"] for language in ("en", "zh") for row in rows(f"questions_{language}.jsonl")]
    held_out += [row["question"] for row in rows("gsm8k.jsonl")]
    assert len(held_out) == 48 + 120 + 120 + 100
    assert not [text for text in held_out if text in calibration]
