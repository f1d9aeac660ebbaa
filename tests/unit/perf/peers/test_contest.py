"""Who works when, on what, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from naiad_perf.errors import PerfError
from naiad_perf.metrics import Slos
from naiad_perf.peers.contest import IDLE_CORES, Contest, Turn, requests_at
from naiad_perf.peers.peer import Peer
from naiad_perf.records import RequestRecord, Run
from naiad_perf.results import read_results
from tests.harness.scripted_peer import ScriptedPeer

Make = Callable[..., Contest]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def contest(
        peers: Sequence[Peer], *, rounds: int = 2, extra: Mapping[str, Sequence[int]] | None = None
    ) -> Contest:
        return Contest(
            peers=peers,
            streams=(1, 8),
            extra=extra or {},
            rounds=rounds,
            input_tokens=6,
            output_tokens=12,
            model="tiny",
            folder=tmp_path,
            environment={"cpu": "of this machine"},
            command=("naiad", "bench", "peers"),
        )

    return contest


def run(contest: Contest) -> list[Run]:
    return contest.run(lambda turn: None, lambda turn, run: None)


def test_every_other_round_runs_backwards(make: Make) -> None:
    contest = make([ScriptedPeer("a"), ScriptedPeer("b"), ScriptedPeer("c")], extra={"c": (64,)})
    order = [(turn.round, turn.streams, turn.peer.name) for turn in contest.turns()]
    forth = [(1, "a"), (1, "b"), (1, "c"), (8, "a"), (8, "b"), (8, "c"), (64, "c")]
    rounds = [forth[::-1], forth, forth[::-1]]
    assert order == [(number - 1, *turn) for number, turns in enumerate(rounds) for turn in turns]


def test_all_get_the_same_prompts_and_no_burst_those_of_another(make: Make) -> None:
    a, b = ScriptedPeer("a"), ScriptedPeer("b")
    run(make([a, b]))
    assert sorted(a.bursts, key=str) == sorted(b.bursts, key=str)
    prompts = [prompt for burst, _ in a.bursts for prompt in burst]
    assert len({prompt.text for prompt in prompts}) == len(prompts) == 3 * (4 + 8)
    assert all(len(prompt.text.split()) == 6 for prompt in prompts)
    assert [burst[0].output_tokens for burst, _ in a.bursts] == [8, 8, 12, 12, 12, 12], "warm-up is short"


@pytest.mark.parametrize(("streams", "requests"), [(1, 4), (2, 4), (3, 6), (4, 4), (8, 8), (32, 32)])
def test_every_stream_has_as_many_requests(streams: int, requests: int) -> None:
    assert requests_at(streams) == requests


def test_counted_bursts_are_records_that_reports_can_read(make: Make, tmp_path: Path) -> None:
    shown: list[tuple[Turn, int]] = []
    contest = make([ScriptedPeer("a", 1), ScriptedPeer("b", 2)])
    runs = contest.run(lambda turn: None, lambda turn, run: shown.append((turn, len(run.requests))))
    assert len(shown) == 3 * 4
    results = read_results(tmp_path, Slos())
    assert [result.facts for result in results] == [run.facts for run in runs]
    assert [result.facts.position for result in results] == list(range(8))
    assert {(result.facts.subject, result.facts.point, result.facts.repeat) for result in results} == {
        (name, point, number) for name in "ab" for point in ("c1-i6-o12", "c8-i6-o12") for number in (0, 1)
    }
    for result in results:
        slow = {"a": 1, "b": 2}[result.facts.subject]
        assert result.figures["tokens_per_s"] == pytest.approx(1000 / slow * (result.facts.concurrency or 0))
        assert result.facts.driver_version == f"{result.facts.subject} 1.0"
        assert result.facts.environment["cpu"] == "of this machine"
        assert result.facts.environment[f"{result.facts.subject} settings"] == "usual"
        assert float(result.facts.environment[IDLE_CORES]) >= 0
        assert (result.facts.server.memory_bytes or 0) > 1_000_000
        assert result.facts.server.requests == result.figures["requests"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda record: replace(
                record, response_ns=record.response_ns[:-1], response_tokens=record.response_tokens[:-1]
            ),
            "Bad made 7 tokens where 8 were asked for",
        ),
        (lambda record: replace(record, input_tokens=7), "Bad counts 7 tokens in a prompt that has 6"),
    ],
)
def test_other_work_than_asked_for_is_no_measurement(
    make: Make, tmp_path: Path, spoil: Callable[[RequestRecord], RequestRecord], message: str
) -> None:
    with pytest.raises(PerfError, match=message):
        run(make([ScriptedPeer("bad", spoil=spoil)]))
    assert list(tmp_path.iterdir()) == []


def test_who_does_not_count_its_prompts_is_believed(make: Make) -> None:
    run(make([ScriptedPeer("a", spoil=lambda record: replace(record, input_tokens=None))]))


def test_a_missing_answer_is_noticed(make: Make) -> None:
    class Lazy(ScriptedPeer):
        def burst(self, prompts: Sequence[object], streams: int) -> tuple[RequestRecord, ...]:
            return super().burst(prompts[1:], streams)  # type: ignore[arg-type]

    with pytest.raises(PerfError, match="Lazy answered 7 of 8 requests"):
        run(make([Lazy("lazy")]))
