"""Reading YAML strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad_perf.errors import ScenarioError
from naiad_perf.workload.strict_yaml import StrictModel, read_yaml, validated


class Inner(StrictModel):
    size: int
    names: tuple[str, ...] = ()


class Outer(StrictModel):
    inner: Inner
    share: float = 0.0


def test_a_mapping_is_read(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("inner: {size: 3}\nshare: 1\n", encoding="utf-8")
    found = validated(Outer, read_yaml(tmp_path / "a.yaml"), "a.yaml")
    assert found == Outer(inner=Inner(size=3), share=1.0)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ({"inner": {"size": "3"}}, ["inner.size: Input should be a valid integer, not '3'"]),
        ({"inner": {"size": True}}, ["inner.size: Input should be a valid integer, not True"]),
        ({"inner": {"size": 3, "nmaes": []}}, ["inner: unknown key 'nmaes'; did you mean 'names'?"]),
        ({"inner": {"size": 3, "x": 1}}, ["inner: unknown key 'x'; known are size, names"]),
        ({"inner": 3}, ["inner: must be a mapping of settings, not 3"]),
        ({"inner": {"size": 3, "names": "a"}}, ["inner.names: must be a list"]),
        ({}, ["inner: Field required"]),
        (
            {"inner": {"size": None}, "share": "big"},
            [
                "inner.size: Input should be a valid integer, not None",
                "share: Input should be a valid number",
            ],
        ),
        ({"innr": {}, "shar": 1}, ["unknown key 'innr'; did you mean 'inner'?; unknown key 'shar'; did you"]),
    ],
)
def test_every_fault_has_a_line_with_its_place(content: object, lines: list[str]):
    with pytest.raises(ScenarioError) as refused:
        validated(Outer, content, "a.yaml")
    first, *said = str(refused.value).splitlines()
    assert first == "a.yaml is wrong:"
    assert len(said) == len(lines)
    for got, wanted in zip(said, lines, strict=True):
        assert got.startswith(f"  {wanted}")


@pytest.mark.parametrize("text", ["a: 1\na: 2\n", "b: {a: 1, c: 0, a: 2}\n", "- {a: 1, a: 1}\n"])
def test_a_key_that_is_there_twice_is_refused_with_its_line(tmp_path: Path, text: str):
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"(?s)the key 'a' is there twice.*line"):
        read_yaml(tmp_path / "a.yaml")


def test_equal_keys_of_different_mappings_are_fine(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("a: {a: 1}\nb: {a: 2}\n", encoding="utf-8")
    assert read_yaml(tmp_path / "a.yaml") == {"a": {"a": 1}, "b": {"a": 2}}


def test_yaml_cannot_make_objects(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("a: !!python/object/apply:os.getcwd []\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match="is not YAML"):
        read_yaml(tmp_path / "a.yaml")


def test_what_is_not_there_or_not_text_is_not_readable(tmp_path: Path):
    (tmp_path / "a.yaml").write_bytes(b"a: \xff\xfe")
    for name in ("a.yaml", "none.yaml"):
        with pytest.raises(ScenarioError, match="is not readable"):
            read_yaml(tmp_path / name)
