"""What a running system reads of a profile: its hourly price."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.contract.errors import InvalidArgument
from naiad.settings.profiles import hourly_price_usd
from naiad_build.profile import PROFILES_FOLDER, load_profile


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        (tmp_path / "lab.yaml").write_text(text, encoding="utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize(("text", "price"), [("hourly_price_usd: 0.25", 0.25), ("hourly_price_usd: 3", 3.0)])
def test_a_stated_price_is_read(write, text: str, price: float):
    assert hourly_price_usd("lab", write(text)) == price


@pytest.mark.parametrize("text", ["summary: no price", "hourly_price_usd:", ""])
def test_no_stated_price_is_none_and_not_zero(write, text: str):
    assert hourly_price_usd("lab", write(text)) is None


def test_a_profile_without_a_file_has_no_price(tmp_path: Path):
    assert hourly_price_usd("by_hand", tmp_path) is None


@pytest.mark.parametrize("price", ["0", "-1", ".inf", ".nan", "true", "cheap"])
def test_a_price_that_is_none_is_refused_by_profile_and_value(write, price: str):
    with pytest.raises(InvalidArgument, match=r"lab\.yaml: hourly_price_usd must be a positive number"):
        hourly_price_usd("lab", write(f"hourly_price_usd: {price}"))


def test_a_file_that_is_no_yaml_is_refused_by_name(write):
    with pytest.raises(InvalidArgument, match=r"lab\.yaml is not readable YAML"):
        hourly_price_usd("lab", write("a: ["))


@pytest.mark.parametrize("path", sorted(PROFILES_FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_both_readers_of_a_profile_agree_on_its_price(path: Path):
    assert hourly_price_usd(path.stem) == load_profile(path).hourly_price_usd


def test_the_cpu_profile_states_a_price():
    assert hourly_price_usd("cpu") is not None
