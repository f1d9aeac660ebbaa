from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.contract.errors import InvalidArgument
from naiad.tokenization import Message, parse_messages


def body(*entries: object) -> str:
    return json.dumps(entries)


def test_every_role_is_read():
    roles = ["system", "developer", "user", "assistant", "tool"]
    messages = parse_messages(body(*({"role": role, "content": f"as {role}"} for role in roles)))
    assert messages == tuple(Message(role, f"as {role}") for role in roles)


def test_bytes_and_text_read_the_same():
    raw = json.dumps([{"role": "user", "content": "你好 👨‍👩‍👧"}], ensure_ascii=False)
    assert parse_messages(raw) == parse_messages(raw.encode()) == (Message("user", "你好 👨‍👩‍👧"),)


def test_text_parts_are_joined_with_newlines():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert parse_messages(body({"role": "user", "content": parts})) == (Message("user", "one\ntwo"),)


def test_null_fields_count_as_absent():
    answer = {"role": "assistant", "content": "hi", "refusal": None, "tool_calls": None}
    assert parse_messages(body(answer)) == (Message("assistant", "hi"),)


def test_names_are_kept():
    raw = body({"role": "tool", "content": "4", "name": "add", "tool_call_id": "call_1"})
    assert parse_messages(raw) == (Message("tool", "4", name="add", tool_call_id="call_1"),)


def test_a_surrogate_pair_in_escapes_is_one_character():
    assert parse_messages('[{"role":"user","content":"\\ud83d\\ude00"}]') == (Message("user", "😀"),)


USER = {"role": "user", "content": "x"}
BAD = {
    "empty body": ("", "not valid JSON"),
    "cut": ('[{"role":', "not valid JSON"),
    "trailing text": ("[] x", "not valid JSON"),
    "not UTF-8": (b'[{"role":"user","content":"\xff"}]', "not UTF-8"),
    "not a list": (json.dumps(USER), "must be a JSON list, not an object"),
    "null": ("null", "must be a JSON list, not null"),
    "number": ("9" * 100_000, "must be a JSON list, not a number"),
    "empty list": ("[]", "empty list"),
    "not an object": (body(USER, "hi"), r"messages\[1\] must be an object"),
    "no role": (body({"content": "x"}), r"messages\[0\] has no role"),
    "unknown role": (body(USER, {"role": "root", "content": "x"}), r"messages\[1\].role is 'root'"),
    "role of another type": (body({"role": ["user"], "content": "x"}), r"messages\[0\].role is a list"),
    "no content": (body({"role": "user"}), r"messages\[0\] has no content"),
    "null content": (body({"role": "user", "content": None}), r"messages\[0\] has no content"),
    "content of another type": (body({"role": "user", "content": 5}), r"\[0\].content must be text"),
    "no parts": (body({"role": "user", "content": []}), r"\[0\].content is an empty list"),
    "part of another type": (body({"role": "user", "content": ["x"]}), r"content\[0\] must be an object"),
    "image": (
        body({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}),
        r"messages\[0\].content\[0\] has the type 'image_url'; only text parts",
    ),
    "part without text": (body({"role": "user", "content": [{"type": "text"}]}), r"\.text must be text"),
    "unknown field of a part": (
        body({"role": "user", "content": [{"type": "text", "text": "x", "cache": 1}]}),
        "has the field 'cache'",
    ),
    "unknown field": (body({**USER, "tool_calls": [1]}), "has the field 'tool_calls'"),
    "name with a special token": (body({**USER, "name": "<|im_end|>"}), r"\[0\].name must be"),
    "duplicate key": ('[{"role":"user","content":"a","content":"b"}]', "key 'content' twice"),
    "NaN": ('[{"role":"user","content":NaN}]', "contains NaN"),
    "Infinity": ('[{"role":"user","content":-Infinity}]', "contains -Infinity"),
    "half a pair": ('[{"role":"user","content":"\\ud800"}]', "half of a surrogate pair"),
    "half a pair in a part": (
        '[{"role":"user","content":[{"type":"text","text":"a\\udc00"}]}]',
        "half of a surrogate pair",
    ),
    "too many": (body(*[USER] * 1025), "1025 entries, the limit is 1024"),
}


@pytest.mark.parametrize(("raw", "complaint"), BAD.values(), ids=BAD.keys())
def test_what_is_wrong_is_named(raw, complaint):
    with pytest.raises(InvalidArgument, match=complaint):
        parse_messages(raw)


def test_the_largest_number_of_messages_is_allowed():
    assert len(parse_messages(body(*[USER] * 1024))) == 1024


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize("levels", [65, 100_000])
def test_deep_nesting_is_refused_before_it_is_read(opening, levels):
    with pytest.raises(InvalidArgument, match="nested deeper than 64"):
        parse_messages(opening * levels)


def test_brackets_inside_strings_are_no_nesting():
    text = '"[{\\' * 500
    assert parse_messages(body({"role": "user", "content": text})) == (Message("user", text),)


@pytest.mark.parametrize(
    "raw", ['["' + '\\"' * 500_000, '["' * 500_000, "[" + "9" * 500_000, "[]," * 300_000]
)
def test_hostile_bodies_are_refused_in_linear_time(raw):
    started = time.process_time()
    with pytest.raises(InvalidArgument):
        parse_messages(raw)
    assert time.process_time() - started < 5


@settings(max_examples=100, deadline=None)
@given(st.text() | st.binary() | st.text(alphabet='[]{}":,\\ urolecnt', max_size=60))
def test_any_input_is_read_or_refused_as_invalid(raw):
    try:
        messages = parse_messages(raw)
    except InvalidArgument:
        return
    assert messages


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text()), min_size=1, max_size=5)
)
def test_messages_survive_json(pairs):
    raw = body(*({"role": role, "content": content} for role, content in pairs))
    assert parse_messages(raw) == tuple(Message(role, content) for role, content in pairs)
