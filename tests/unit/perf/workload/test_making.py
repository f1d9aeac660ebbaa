"""Workloads: the same for all who are compared, and cold for each of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import pytest

from naiad_perf.errors import ScenarioError
from naiad_perf.sweep.plan import points_of
from naiad_perf.workload.load import ClosedLoop, OpenLoop, Prompt
from naiad_perf.workload.making import Workload, make_workload
from naiad_perf.workload.scenario import Scenario
from naiad_perf.workload.strict_yaml import validated
from naiad_perf.workload.traces import TraceRow
from naiad_perf.workload.words import VOCABULARY


def scenario(**changes: object) -> Scenario:
    content = {
        "name": "lab",
        "subjects": [{"name": "a", "profile": "cpu"}],
        "load": {"concurrency": 4},
        "lengths": {"input": {"uniform": {"min": 5, "max": 40}}, "output": {"uniform": {"min": 1, "max": 9}}},
        "requests": 50,
        **changes,
    }
    return validated(Scenario, {key: value for key, value in content.items() if value is not None}, "test")


def replay(rows: Sequence[TraceRow], salt: str = "s", **changes: object) -> Workload:
    trace = {"format": "mooncake", "divide_lengths_by": changes.pop("divide", 1)}
    made = scenario(load={"replay": True}, lengths=None, trace=trace, **{"requests": None, **changes})
    return make_workload(made, points_of(made)[0], rows, salt)


def make(salt: str = "s", point: int = 0, **changes: object) -> Workload:
    made = scenario(**changes)
    return make_workload(made, points_of(made)[point], [], salt)


def shared(one: Prompt, other: Prompt) -> int:
    """Tokens at the start that two prompts have in common, the same as text and as ids."""
    counts = []
    for left, right in ((one.text.split(), other.text.split()), (one.ids, other.ids)):
        pairs = list(zip(left, right, strict=False))
        counts.append(next((place for place, (a, b) in enumerate(pairs) if a != b), len(pairs)))
    assert counts[0] == counts[1]
    return counts[0]


def test_text_and_ids_of_a_prompt_have_the_length_asked_for():
    load = make(lengths={"input": 23, "output": 7})
    for prompt in load.prompts:
        assert len(prompt.text.split(" ")) == len(prompt.ids) == 23
        assert prompt.output_tokens == 7
        assert set(prompt.text.split()) <= set(VOCABULARY)
        assert all(1_000 <= token < 30_000 for token in prompt.ids)
    assert (load.input_tokens, load.output_tokens) == (23.0, 7.0)


def test_the_same_run_is_made_the_same_again():
    assert make("x") == make("x")


def test_runs_have_the_same_lengths_and_times_but_not_the_same_words():
    one, other = (make(salt, load={"request_rate": 3}) for salt in ("lab|a|1", "lab|b|1"))
    assert [(len(p.ids), p.output_tokens) for p in one.prompts] == [
        (len(p.ids), p.output_tokens) for p in other.prompts
    ]
    assert one.load == other.load
    assert max(shared(a, b) for a in one.prompts for b in other.prompts) < 4  # nothing a KV cache could keep


def test_every_concurrency_meets_the_same_lengths_in_the_same_order():
    low, high = (make(load={"concurrency": [2, 9]}, point=point) for point in (0, 1))
    assert [len(p.ids) for p in low.prompts] == [len(p.ids) for p in high.prompts][: len(low.prompts)]


def test_prompts_of_a_run_differ_from_their_first_words_on():
    load = make(lengths={"input": 3, "output": 1}, requests=3000)
    assert len({prompt.text for prompt in load.prompts}) == 3004
    load = make(lengths={"input": 1, "output": 1}, requests=200)
    assert len({prompt.text for prompt in load.prompts}) == 204


def test_another_seed_gives_other_lengths():
    assert [len(p.ids) for p in make(seed=1).prompts] != [len(p.ids) for p in make(seed=2).prompts]


def test_means_are_those_of_measured_requests():
    load = make(warm_up=20, requests=30)
    measured = load.prompts[20:]
    assert len(measured) == 30
    assert load.input_tokens == statistics.fmean(len(prompt.ids) for prompt in measured)
    assert load.output_tokens == statistics.fmean(prompt.output_tokens for prompt in measured)


@pytest.mark.parametrize(
    ("changes", "warm_up", "measured"),
    [
        ({}, 4, 50),
        ({"warm_up": 0}, 0, 50),
        ({"requests": None, "requests_per_stream": 3}, 4, 12),
        ({"load": {"request_rate": 2}}, 4, 50),
        ({"load": {"request_rate": 2}, "warm_up": 7}, 7, 50),
    ],
)
def test_how_many_requests_warm_up_and_count(changes: dict[str, Any], warm_up: int, measured: int):
    load = make(**changes)
    assert (load.warm_up, len(load.prompts)) == (warm_up, warm_up + measured)


def test_a_closed_loop_has_its_streams_and_an_open_one_a_time_for_each_prompt():
    assert make().load == ClosedLoop(4)
    opened = make(load={"request_rate": 2}).load
    assert isinstance(opened, OpenLoop)
    assert len(opened.due_ns) == 54


def test_blocks_of_a_trace_that_are_equal_are_equal_parts_of_prompts():
    rows = [
        TraceRow(0, 1000, 10, (1, 2)),
        TraceRow(5, 1200, 10, (1, 2, 3)),
        TraceRow(9, 1024, 10, (1, 4)),
        TraceRow(9, 700, 10, (5, 6)),
    ]
    prompts = replay(rows, warm_up=0).prompts
    assert [len(prompt.ids) for prompt in prompts] == [1000, 1200, 1024, 700]
    assert shared(prompts[0], prompts[1]) == 1000
    assert 512 <= shared(prompts[0], prompts[2]) < 515
    assert shared(prompts[0], prompts[3]) < 3


@pytest.mark.parametrize("divide", [2.0, 7.0, 32.0, 100.0])
def test_shared_parts_shrink_with_the_lengths(divide: float):
    rows = [
        TraceRow(0, 2000, 40, (1, 2, 3, 4)),
        TraceRow(0, 1800, 40, (1, 2, 3, 9)),
        TraceRow(0, 30, 1, (8,)),
    ]
    load = replay(rows, warm_up=0, divide=divide)
    first, second, third = load.prompts
    assert len(first.ids) == round(2000 / divide)
    assert first.output_tokens == max(1, round(40 / divide))
    assert len(third.ids) == max(1, round(30 / divide))
    edge = round(3 * 512 / divide)
    assert edge <= shared(first, second) < edge + 4


def test_another_run_of_a_trace_has_other_words_in_its_blocks():
    rows = [TraceRow(0, 512, 1, (1,))] * 2
    one, other = (replay(rows, salt, warm_up=0).prompts for salt in ("a", "b"))
    assert shared(one[0], one[1]) == 512
    assert shared(one[0], other[0]) < 4


def test_prompts_of_a_trace_without_blocks_all_differ():
    rows = [TraceRow(0, 300, 1)] * 20
    prompts = replay(rows, warm_up=0).prompts
    assert len({prompt.text.split()[0] for prompt in prompts}) == 20


def test_a_replay_keeps_the_traces_times_and_its_first_rows_warm_up():
    rows = [TraceRow(1_000 * place, 10, 1) for place in range(10)]
    trace = {"format": "azure", "stretch_arrivals_by": [3, 1]}
    made = scenario(load={"replay": True}, lengths=None, requests=None, trace=trace)
    load = make_workload(made, points_of(made)[0], rows, "s")
    assert load.load == OpenLoop(tuple(3_000 * place for place in range(10)))
    assert (load.warm_up, len(load.prompts)) == (4, 10)


def test_a_trace_may_only_give_lengths():
    rows = [TraceRow(place, 10 + place, 1) for place in range(10)]
    made = scenario(lengths=None, requests=None, trace={"format": "azure"})
    load = make_workload(made, points_of(made)[0], rows, "s")
    assert load.load == ClosedLoop(4)
    assert [len(prompt.ids) for prompt in load.prompts] == list(range(10, 20))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"requests": 7}, "the trace has 10 rows for 7 requests and 4 of warm-up"),
        ({"requests": None, "warm_up": 10}, "the trace has 10 rows, and 10 requests only warm up"),
    ],
)
def test_a_trace_that_is_too_short_is_refused(changes: dict[str, Any], said: str):
    rows = [TraceRow(0, 10, 1)] * 10
    made = scenario(lengths=None, trace={"format": "azure"}, **changes)
    with pytest.raises(ScenarioError, match=said):
        make_workload(made, points_of(made)[0], rows, "s")
