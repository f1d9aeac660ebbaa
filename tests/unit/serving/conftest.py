"""What the serving tests share: a tiny model, and short ways to write tensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.tokenization import Tokenizer
from tests.harness.tiny_model import write_tiny_model


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tokenizer(model_directory: Path) -> Tokenizer:
    return Tokenizer.load(model_directory)
