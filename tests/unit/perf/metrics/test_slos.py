"""Reading what a scenario promises."""

from __future__ import annotations

from dataclasses import fields

import pytest

from naiad_perf.errors import ScenarioError
from naiad_perf.metrics import Promise, Slos, read_promise
from naiad_perf.workload.scenario import Scenario
from naiad_perf.workload.scenario import Slos as ScenarioSlos


def test_a_scenario_s_promise_is_read_and_the_rest_of_it_ignored(tmp_path):
    (tmp_path / "scenario.yaml").write_text(
        "name: mine\nslos: {ttft_ms: 500, tpot_ms: 50, latency_ms: 5000}\nerror_budget: 0.01\npoints: []\n"
    )
    assert read_promise(tmp_path) == Promise(Slos(500, 50, 5000), 0.01)


def test_without_a_scenario_nothing_is_promised(tmp_path):
    assert read_promise(tmp_path) == Promise(Slos(), None)
    assert Slos().stated == {}


@pytest.mark.parametrize("text", ["name: mine\n", "slos: {}\n"])
def test_a_scenario_without_limits_and_budget_lets_nothing_fail_as_in_its_sweep(tmp_path, text):
    (tmp_path / "scenario.yaml").write_text(text)
    assert read_promise(tmp_path) == Promise(Slos(), 0.0)
    assert Scenario.model_fields["error_budget"].default == 0.0


def test_slos_are_those_that_a_sweep_knows():
    assert {field.name for field in fields(Slos)} == set(ScenarioSlos.model_fields)


def test_only_stated_limits_are_stated():
    assert Slos(tpot_ms=50).stated == {"tpot_ms": 50}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("slos: {ttft: 500}\n", "'ttft'"),
        ("slos: {ttft_ms: 0}\n", "slos.ttft_ms"),
        ("slos: {ttft_ms: fast}\n", "slos.ttft_ms"),
        ("slos: 500\n", "slos"),
        ("error_budget: 2\n", "error_budget"),
        ("error_budget: none\n", "error_budget"),
        ("", "scenario.yaml"),
        ("- a list\n", "scenario.yaml"),
        ("slos: {", "scenario.yaml"),
    ],
)
def test_a_wrong_promise_is_refused_by_name(tmp_path, text, named):
    (tmp_path / "scenario.yaml").write_text(text)
    with pytest.raises(ScenarioError, match=named):
        read_promise(tmp_path)
