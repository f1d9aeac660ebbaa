import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from naiad_build.errors import UnsupportedModelError
from naiad_build.gguf_metadata import GgufMetadata, read_gguf_metadata
from naiad_build.gguf_tokenizer import build_tokenizer, end_of_text_ids, write_tokenizer_files
from tests.harness.tiny_gguf import CONTEXT_LENGTH, write_tiny_gguf

# The texts that a wrongly derived tokenizer breaks: digits, CJK, emoji, code, chat marks, odd white space.
TEXTS = [
    "in 1234567890 ½ ²",
    "日本語のテキスト、한국어 中文。",
    "🎉👩‍👩‍👧 x",
    "def f(x):\n\tif a >= 1.5:\n        return  x  # ok",
    "<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\n",
    "I'm  you'll WE'RE \r\n\r\n a\t\t b \n ",
    "\u00a0nbsp\u3000",
    "",
]


def metadata_of(path: Path, **changes: object) -> GgufMetadata:
    write_tiny_gguf(path / "tiny.gguf", weights=False, **changes)  # type: ignore[arg-type]
    return read_gguf_metadata(path / "tiny.gguf")


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.encode(text, add_special_tokens=False).tokens


@pytest.mark.parametrize("pre", ["smollm", "qwen2", "gpt-2", "default", "llama-bpe"])
def test_text_survives_encoding_and_decoding(tmp_path: Path, pre: str) -> None:
    tokenizer = build_tokenizer(metadata_of(tmp_path, pre=pre))
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("smollm", ["1", "2", "3", "1", "2", "3"]),  # every digit alone
        ("qwen2", ["1", "2", "3", "1", "2", "3"]),
        ("gpt-2", ["123", "123"]),  # one word, merged
        ("default", ["123", "123"]),
        ("llama-bpe", ["123", "123"]),  # groups of three
    ],
)
def test_digits_are_split_as_the_pre_tokenizer_name_says(
    tmp_path: Path, pre: str, expected: list[str]
) -> None:
    assert pieces(build_tokenizer(metadata_of(tmp_path, pre=pre)), "123123") == expected


def test_groups_of_three_digits_are_not_merged_across(tmp_path: Path) -> None:
    # "1|231|2": only groups counted from the left may merge; gpt-2 sees one word and merges 12, 3, 12.
    assert pieces(build_tokenizer(metadata_of(tmp_path, pre="llama-bpe")), "12312") == ["123", "12"]
    assert pieces(build_tokenizer(metadata_of(tmp_path, pre="llama-bpe")), "99123") == [
        "9",
        "9",
        "1",
        "2",
        "3",
    ]
    assert pieces(build_tokenizer(metadata_of(tmp_path, pre="gpt-2")), "99123") == ["9", "9", "123"]


def test_only_qwen2_composes_accents(tmp_path: Path) -> None:
    decomposed, composed = "e\u0301", "é"
    for pre, expected in (("qwen2", composed), ("smollm", decomposed)):
        tokenizer = build_tokenizer(metadata_of(tmp_path, pre=pre))
        assert tokenizer.decode(tokenizer.encode(decomposed).ids) == expected


def test_a_leading_space_stays_with_its_word(tmp_path: Path) -> None:
    assert pieces(build_tokenizer(metadata_of(tmp_path)), "the the") == ["the", "Ġthe"]


def test_control_tokens_are_matched_whole_and_skipped_in_text(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(metadata_of(tmp_path, user_defined=["<tool>"]))
    encoded = tokenizer.encode("a<|im_end|>b<tool>")
    assert encoded.tokens == ["a", "<|im_end|>", "b", "<tool>"]
    assert tokenizer.decode(encoded.ids) == "ab<tool>"  # user-defined tokens are text, control tokens are not


def test_ids_are_those_of_the_gguf(tmp_path: Path) -> None:
    metadata = metadata_of(tmp_path, user_defined=["<tool>"])
    tokenizer = build_tokenizer(metadata)
    assert [tokenizer.id_to_token(index) for index in range(tokenizer.get_vocab_size())] == list(
        metadata.tokens
    )


@pytest.mark.parametrize(
    ("pre", "add_bos", "starts_with_bos"),
    [("gpt-2", None, False), ("gpt-2", True, True), ("llama-bpe", None, True), ("llama-bpe", False, False)],
)
def test_bos_is_added_as_llama_cpp_would(
    tmp_path: Path, pre: str, add_bos: bool | None, starts_with_bos: bool
) -> None:
    tokenizer = build_tokenizer(metadata_of(tmp_path, pre=pre, add_bos=add_bos))
    assert (tokenizer.encode("a").ids[0] == 1) is starts_with_bos
    assert tokenizer.encode("a", add_special_tokens=False).tokens == ["a"]


def test_the_written_files_agree_with_the_header(tmp_path: Path) -> None:
    write_tokenizer_files(metadata_of(tmp_path), tmp_path)
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    config = json.loads((tmp_path / "config.json").read_text())
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": [2, 0], "pad_token_id": 2}
    assert config["model_type"] == "llama"
    assert config["max_position_embeddings"] == CONTEXT_LENGTH
    assert config["vocab_size"] == Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab_size()
    assert (settings["eos_token"], settings["pad_token"], settings["add_bos_token"]) == (
        "<|im_end|>",
    ) * 2 + (False,)
    assert (tmp_path / "chat_template.jinja").read_text() == "{{ messages[0]['content'] }}"


def test_a_model_without_chat_template_gets_no_template_file(tmp_path: Path) -> None:
    write_tokenizer_files(metadata_of(tmp_path, chat_template=None), tmp_path)
    assert not (tmp_path / "chat_template.jinja").exists()


def test_the_headers_eos_comes_first_and_other_end_marks_follow(tmp_path: Path) -> None:
    assert end_of_text_ids(metadata_of(tmp_path, eos_id=2)) == (2, 0)
    assert end_of_text_ids(metadata_of(tmp_path, eos_id=0)) == (0, 2)
    assert end_of_text_ids(metadata_of(tmp_path, eos_id=None)) == (0, 2)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"pre": "tekken"}, "tekken"),
        ({"tokenizer_model": "llama"}, "SentencePiece"),
        ({"tokenizer_model": "bert"}, "`bert`"),
        ({"merges": ()}, "without merges"),
        ({"user_defined": ["the"]}, "share a text"),
    ],
)
def test_a_tokenizer_that_cannot_be_built_exactly_is_refused_by_name(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    metadata = metadata_of(tmp_path, **changes)
    with pytest.raises(UnsupportedModelError, match=named):
        build_tokenizer(metadata)


def test_a_merge_of_unknown_tokens_is_refused(tmp_path: Path) -> None:
    import dataclasses

    metadata = dataclasses.replace(metadata_of(tmp_path), merges=("t h", "q zz"))
    with pytest.raises(UnsupportedModelError, match="q zz"):
        build_tokenizer(metadata)


def test_an_absent_pre_tokenizer_means_llama_cpps_default(tmp_path: Path) -> None:
    assert metadata_of(tmp_path, pre=None).pre_tokenizer == "default"


@pytest.mark.parametrize("keep", [0, 3, 4000])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UnsupportedModelError, match="GGUF"):
        read_gguf_metadata(path)
