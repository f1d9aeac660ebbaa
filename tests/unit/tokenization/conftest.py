"""Small tokenizers of every decoder family, trained in a moment, laid out as prepared model directories."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from naiad.tokenization import Tokenizer

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog sleeps.",
    "A tokenizer turns text into numbers; a detokenizer turns numbers into text. It's what it does.",
    "Größe, façade, naïve café, smörgåsbord, Ελληνικά, русский язык",
    "你好,世界。机器学习 今日は良い天気です。",
    "user assistant system 0123456789 (a+b)*c == d;  two  spaces\n\nand lines",
] * 4
UNKNOWN = "<unk>"
SPECIAL = [UNKNOWN, "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] | trim"
    " + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Family:
    """One kind of tokenizer: ours, and the library's own over the same files."""

    name: str
    ours: Tokenizer
    library: tokenizers.Tokenizer


def _write_model(directory: Path, library: tokenizers.Tokenizer, **overrides: object) -> Path:
    """Write a prepared model directory; `overrides` are entries of tokenizer_config.json (None: left out)."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE, **overrides}
    config = {name: value for name, value in config.items() if value is not None}
    library.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def byte_level() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(CORPUS, trainer)
    library.add_tokens(["<｜think ▁｜>"])
    return library


def _byte_fallback_bpe() -> tokenizers.Tokenizer:
    """SentencePiece-like BPE whose vocabulary also has the 256 byte tokens."""
    trained = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    trained.train_from_iterator(CORPUS[:2], trainer)
    model = json.loads(trained.to_str())["model"]
    vocabulary = dict(model["vocab"])
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    merges = [tuple(merge) for merge in model["merges"]]
    library = tokenizers.Tokenizer(models.BPE(vocabulary, merges, unk_token=UNKNOWN, byte_fallback=True))
    library.add_special_tokens(SPECIAL)
    return library


def llama() -> tokenizers.Tokenizer:
    library = _byte_fallback_bpe()
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return library


def gguf_llama() -> tokenizers.Tokenizer:
    """The same tokens with the chain that `transformers` writes for GGUF files: Replace after Fuse."""
    library = llama()
    library.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)]
    )
    return library


def gemma() -> tokenizers.Tokenizer:
    library = _byte_fallback_bpe()
    library.normalizer = normalizers.Replace(" ", "▁")
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return library


def metaspace_bpe() -> tokenizers.Tokenizer:
    library = _byte_fallback_bpe()
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    library.decoder = decoders.Sequence([decoders.Metaspace(prepend_scheme="first"), decoders.ByteFallback()])
    return library


def unigram() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.Unigram())
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=SPECIAL, unk_token=UNKNOWN, show_progress=False
    )
    library.train_from_iterator(CORPUS, trainer)
    return library


def wordpiece() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    library.train_from_iterator(CORPUS, trainer)
    return library


def word_suffix_bpe() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN, end_of_word_suffix="</w>"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.decoder = decoders.BPEDecoder()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, end_of_word_suffix="</w>", show_progress=False
    )
    library.train_from_iterator(CORPUS, trainer)
    return library


def ctc() -> tokenizers.Tokenizer:
    letters = [*SPECIAL, "<pad>", "|", *"abcdefgh"]
    library = tokenizers.Tokenizer(models.WordLevel({token: i for i, token in enumerate(letters)}, "<unk>"))
    library.add_special_tokens(SPECIAL)
    library.decoder = decoders.CTC()
    return library


def no_decoder() -> tokenizers.Tokenizer:
    library = wordpiece()
    library.decoder = None
    return library


def byte_level_in_a_chain() -> tokenizers.Tokenizer:
    """A byte-level decoder in company that cannot be tabulated, so that the general way meets bytes."""
    library = byte_level()
    library.decoder = decoders.Sequence(
        [decoders.Replace(tokenizers.Regex("zz+"), "zz"), decoders.ByteLevel()]
    )
    return library


FAMILIES: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    make.__name__: make
    for make in (
        byte_level,
        llama,
        gguf_llama,
        gemma,
        metaspace_bpe,
        unigram,
        wordpiece,
        word_suffix_bpe,
        ctc,
        no_decoder,
        byte_level_in_a_chain,
    )
}


@pytest.fixture(scope="session")
def write_model() -> Callable[..., Path]:
    return _write_model


@pytest.fixture(scope="session")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Family]:
    root = tmp_path_factory.mktemp("models")
    made = {}
    for name, make in FAMILIES.items():
        library = make()
        made[name] = Family(name, Tokenizer.load(_write_model(root / name, library)), library)
    return made


@pytest.fixture(params=list(FAMILIES), scope="session")
def family(request: pytest.FixtureRequest, families: dict[str, Family]) -> Family:
    return families[request.param]


@pytest.fixture(scope="session")
def chatty(families: dict[str, Family]) -> Family:
    return families["byte_level"]
