"""Scenarios: what YAML may say, how a wrong one is refused, and the supplied ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from naiad.settings.profiles import DEFAULT_PROFILE
from naiad_build.profile import PROFILES_FOLDER
from naiad_perf.errors import ScenarioError
from naiad_perf.sweep.plan import points_of
from naiad_perf.workload.scenario import find_scenario, read_scenario, supplied_scenarios
from naiad_perf.workload.traces import TraceFormat

LEAST = """\
name: lab
subjects: [{name: bls, profile: synthetic}]
load: {concurrency: 2}
lengths: {input: 8, output: 4}
requests: 6
"""
REPLAY = """\
name: lab
subjects: [{name: bls, profile: synthetic}]
load: {replay: true}
trace: {format: azure, file: data/azure.csv}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "lab.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refusal(path: Path, trace: Path | None = None) -> str:
    with pytest.raises(ScenarioError) as refused:
        read_scenario(path, trace)
    return str(refused.value)


def test_the_least_a_scenario_says_and_what_it_means(write):
    scenario = read_scenario(write(LEAST))
    assert scenario.load.concurrency == (2,)
    assert scenario.subjects[0].model == "tensorrt_llm_bls"
    assert (scenario.driver, scenario.repeats, scenario.seed) == ("perf_analyzer", 3, 0)
    assert (scenario.warm_up, scenario.timeout_s, scenario.cancel_after_s) == (None, 300.0, None)
    assert scenario.error_budget == 0.0
    assert scenario.slos.ttft_ms is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("requests: 6", "request: 6", "unknown key 'request'; did you mean 'requests'?"),
        ("profile:", "profle:", "unknown key 'profle'; did you mean 'profile'?"),
        ("concurrency: 2", "concurency: 2", "load: unknown key 'concurency'; did you mean 'concurrency'?"),
        ("name: lab", "name: lab\nzzz: 1", "unknown key 'zzz'; known are name, summary, driver"),
        ("name: lab", "name: lab\nname: again", "the key 'name' is there twice"),
        ("name: lab", "name: ../lab", "name: must be letters a to z, digits"),
        ("name: lab\n", "", "name: Field required"),
        ("requests: 6", "requests: '6'", "requests: Input should be a valid integer, not '6'"),
        ("requests: 6", "requests: 0", "requests: Input should be greater than or equal to 1, not 0"),
        ("requests: 6", "warm_up: 6", "requests, or with load.concurrency requests_per_stream, is missing"),
        ("requests: 6", "requests: 6\nrequests_per_stream: 2", "one of requests and requests_per_stream"),
        ("requests: 6", "requests: 6\nrepeats: 0", "repeats: Input should be greater than or equal to 1"),
        ("requests: 6", "requests: 6\nerror_budget: 5", "error_budget: Input should be less than"),
        ("requests: 6", "requests: 6\nslos: {ttft: 5}", "slos: unknown key 'ttft'; did you mean 'ttft_ms'?"),
        ("concurrency: 2", "concurrency: 0", "load.concurrency.0: Input should be greater than or equal to"),
        ("concurrency: 2", "concurrency: []", "load.concurrency: must not be empty"),
        ("concurrency: 2", "request_rate: [1, 0]", "load.request_rate.1: Input should be greater than 0"),
        ("concurrency: 2", "concurrency: 2, request_rate: 3", "load: give exactly one of concurrency"),
        ("{concurrency: 2}", "{}", "load: give exactly one of concurrency"),
        ("{concurrency: 2}", "2", "load: must be a mapping of settings, not 2"),
        ("concurrency: 2", "replay: true", "load.replay needs a trace"),
        ("{name: bls, profile: synthetic}", "", "subjects: must not be empty"),
        ("name: bls", "name: größe", "subjects.0.name: must be letters a to z, digits"),
        ("[{name: bls, profile: synthetic}]", "{name: bls}", "subjects: must be a list"),
        (", profile: synthetic", "", "subjects.0: give exactly one of profile"),
        (
            "profile: synthetic",
            "profile: a, server: {grpc: 'h:1', http: 'h:2'}",
            "give exactly one of profile",
        ),
        ("profile: synthetic", "server: {grpc: 'http://h:1', http: 'h:2'}", "subjects.0.server.grpc"),
        ("synthetic}", "synthetic}, {name: bls, profile: cpu}", "subjects: bls is there twice"),
        (
            "{input: 8, output: 4}",
            "[{input: 8, output: 4}, {input: 8, output: 4}]",
            "lengths: i8-o4 is there",
        ),
        ("lengths: {input: 8, output: 4}\n", "", "give exactly one of lengths and trace"),
    ],
)
def test_what_is_wrong_is_refused_by_name(write, old: str, new: str, said: str):
    assert old in LEAST
    assert said in refusal(write(LEAST.replace(old, new)))


def test_a_list_with_a_faulty_entry_is_not_called_empty(write):
    assert "empty" not in refusal(write(LEAST.replace("name: bls", "nam: bls")))


def test_all_faults_are_named_at_once(write):
    twice_wrong = LEAST.replace("requests: 6", "requests: x").replace("concurrency: 2", "concurrency: -1")
    said = refusal(write(twice_wrong))
    assert "requests: " in said
    assert "load.concurrency.0: " in said


@pytest.mark.parametrize("text", ["- a list", "just words", "", "a: [", "\tname: x"])
def test_what_is_no_mapping_is_refused(write, text: str):
    assert "lab.yaml" in refusal(write(text))


def test_lists_and_single_values_mean_the_same(write):
    one = read_scenario(write(LEAST))
    listed = LEAST.replace("concurrency: 2", "concurrency: [2]").replace(
        "{input: 8, output: 4}", "[{input: 8, output: 4}]"
    )
    assert read_scenario(write(listed)) == one


def test_a_traces_file_is_looked_for_beside_the_scenario(write, tmp_path: Path):
    scenario = read_scenario(write(REPLAY))
    assert scenario.trace is not None
    assert scenario.trace.file == tmp_path / "data" / "azure.csv"
    assert scenario.trace.format is TraceFormat.AZURE


def test_an_option_takes_the_place_of_the_traces_file(write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path.parent)
    scenario = read_scenario(write(REPLAY), Path("other.csv"))
    assert scenario.trace is not None
    assert scenario.trace.file == tmp_path.parent / "other.csv"


def test_a_trace_without_a_file_asks_for_one_and_says_where_it_is_from(write):
    said = refusal(write(REPLAY.replace(", file: data/azure.csv", "")))
    assert "--trace" in said
    assert "Azure/AzurePublicDataset" in said


def test_a_trace_for_a_scenario_that_uses_none_is_refused(write):
    assert "leave --trace out" in refusal(write(LEAST), Path("x"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("format: azure", "format: asure", "trace.format: must be one of mooncake, azure, not 'asure'"),
        ("format: azure", "format: azure, divide_lengths_by: 0.5", "trace.divide_lengths_by"),
        ("replay: true", "concurrency: 1", None),
        (
            "load: {replay: true}\ntrace: {format: azure",
            "load: {concurrency: 1}\ntrace: {stretch_arrivals_by: [1, 2], format: azure",
            "swept only with load.replay",
        ),
        ("load: {replay: true}", "load: {replay: true}\nrequests_per_stream: 2", "needs load.concurrency"),
    ],
)
def test_what_a_trace_may_say(write, old: str, new: str, said: str | None):
    assert old in REPLAY
    path = write(REPLAY.replace(old, new))
    if said is None:
        assert read_scenario(path).trace is not None
    else:
        assert said in refusal(path)


def test_a_scenario_is_found_by_path_or_by_name(tmp_path: Path):
    for name in ("mine", "other"):
        (tmp_path / f"{name}.yaml").write_text(LEAST, encoding="utf-8")
    assert find_scenario("mine", tmp_path) == tmp_path / "mine.yaml"
    assert find_scenario(str(tmp_path / "other.yaml"), tmp_path / "elsewhere") == tmp_path / "other.yaml"
    with pytest.raises(ScenarioError, match="no scenario nine: give a YAML file, or one of mine, other"):
        find_scenario("nine", tmp_path)


@pytest.mark.parametrize("path", supplied_scenarios(), ids=lambda path: path.stem)
def test_every_supplied_scenario_is_sound(path: Path):
    scenario = read_scenario(path, need_trace=False)
    assert scenario.name == path.stem
    assert 10 < len(scenario.summary) < 100
    assert points_of(scenario)
    profiles = {profile.stem for profile in PROFILES_FOLDER.glob("*.yaml")} | {DEFAULT_PROFILE}
    assert {subject.profile for subject in scenario.subjects} <= profiles
    assert "error_budget" in path.read_text(encoding="utf-8")  # a promise that reports read as well


def test_the_supplied_scenarios_cover_every_kind_of_load():
    loads = [read_scenario(path, need_trace=False).load for path in supplied_scenarios()]
    assert any(load.concurrency for load in loads)
    assert any(load.request_rate for load in loads)
    assert any(load.replay for load in loads)
    assert any(len(points_of(read_scenario(path, need_trace=False))) == 24 for path in supplied_scenarios())
