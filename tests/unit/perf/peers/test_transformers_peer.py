"""Batches as records: who waits for whom, and when tokens are there. No torch."""

from __future__ import annotations

from naiad_perf.peers.transformers_peer import TorchSettings, batch_records

FIRST = {"size": 2, "sent_ns": 100, "step_ns": [110, 120, 130]}
SECOND = {"size": 1, "sent_ns": 140, "step_ns": [150, 155, 160]}


def test_requests_wait_for_the_batches_before_theirs() -> None:
    records = batch_records([FIRST, SECOND], [8, 7, 9], first_index=4)
    assert [record.index for record in records] == [4, 5, 6]
    assert [record.intended_ns for record in records] == [100, 100, 100], "all were there at the start"
    assert [record.sent_ns for record in records] == [100, 100, 140]
    assert [record.ended_ns for record in records] == [130, 130, 160]
    assert records[2].response_ns == (150, 155, 160)
    assert all(record.response_tokens == (1, 1, 1) for record in records)
    assert [record.input_tokens for record in records] == [8, 7, 9]


def test_the_batch_is_as_large_as_the_load_unless_another_size_was_faster() -> None:
    settings = TorchSettings(batches={32: 16})
    assert [settings.batch(streams) for streams in (1, 8, 32)] == [1, 8, 16]
    assert TorchSettings().batch(8) == 8
