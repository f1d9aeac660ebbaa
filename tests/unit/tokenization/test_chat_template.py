from __future__ import annotations

from datetime import datetime

import pytest

from naiad.contract.errors import InvalidArgument
from naiad.tokenization import ChatTemplate, Message

HELLO = (Message("user", "hello"),)


def rendered(source: str, *messages: Message, bos: str | None = "<s>", eos: str | None = "</s>") -> str:
    return ChatTemplate(source, bos, eos).render(messages or HELLO)


def test_chatml_renders_and_opens_the_assistants_turn():
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    # trim_blocks eats the newline after a block tag, not the one inside a literal line.
    assert rendered(source) == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


def test_blocks_on_their_own_lines_leave_no_space():
    assert rendered("a\n  {% if true %}\nb\n  {% endif %}\nc") == "a\nb\nc"


def test_begin_and_end_tokens_reach_the_template():
    assert rendered("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}") == "<s>hello</s>"


def test_a_missing_begin_token_is_undefined():
    assert rendered("{{ 'yes' if bos_token is defined else 'no' }}{{ bos_token }}", bos=None) == "no"


def test_optional_message_fields_are_defined_only_when_given():
    source = "{% for m in messages %}{{ m.name if 'name' in m else '-' }}{{ m.tool_call_id }};{% endfor %}"
    assert rendered(source, *HELLO, Message("tool", "4", "add", "c1")) == "-;addc1;"


def test_tools_and_documents_are_none_as_with_hugging_face():
    assert rendered("{{ tools is none and documents is none }}") == "True"


def test_loop_controls_work():
    source = (
        "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.content }}{% endfor %}"
    )
    assert rendered(source, *HELLO, Message("user", "no")) == "hello"


def test_tojson_keeps_characters_and_does_not_escape_for_html():
    assert rendered("{{ messages[0].content | tojson }}", Message("user", "<你&'>")) == '"<你&\'>"'


def test_tojson_takes_an_indent():
    assert rendered("{{ {'a': 1} | tojson(indent=2) }}") == '{\n  "a": 1\n}'


def test_strftime_now_uses_the_given_clock():
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", None, None, now=lambda: datetime(2024, 7, 26))
    assert template.render(HELLO) == "26 Jul 2024"


def test_generation_marks_render_their_body():
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}!{% endfor %}"
    assert rendered(source) == "hello!"


def test_the_templates_own_refusal_reaches_the_caller():
    source = (
        "{% if messages[0].role != 'system' %}"
        "{{ raise_exception('A system message must come first') }}{% endif %}"
    )
    with pytest.raises(InvalidArgument, match="refuses them: A system message must come first"):
        rendered(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[7].content }}",
        "{{ messages[0].content + 1 }}",
        "{{ 1 / 0 }}",
        "{{ undefined_thing.attribute }}",
        "{% include '/etc/passwd' %}",
        "{{ 'x'.index('y') }}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{{ range(10000000) | list }}",
    ],
)
def test_a_failing_template_is_the_requests_fault_and_shows_no_internals(source):
    with pytest.raises(InvalidArgument) as caught:
        rendered(source)
    assert "chat template cannot render them" in caught.value.message
    assert "/" not in caught.value.message
    assert ".py" not in caught.value.message


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
    ],
)
def test_the_sandbox_gives_nothing_away(source):
    try:
        text = rendered(source)
    except InvalidArgument:
        return
    assert text == ""


def test_a_template_that_does_not_compile_is_refused_with_its_line():
    with pytest.raises(InvalidArgument, match="does not compile, line 2"):
        ChatTemplate("ok\n{% if %}", None, None)


def test_no_messages_are_refused():
    with pytest.raises(InvalidArgument, match="at least one message"):
        ChatTemplate("x", None, None).render(())
