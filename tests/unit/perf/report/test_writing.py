"""The report as files: what is in them, that the page needs nothing else, and that pictures are pictures."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from naiad_perf.errors import RecordError
from naiad_perf.metrics import FIGURES, METRICS, Promise
from naiad_perf.report import Written, write_report
from naiad_perf.report.page import in_script, prose
from naiad_perf.results import PointSummary
from tests.harness.synthetic_sweep import Engine, Load, write_sweep


class Page(HTMLParser):
    """Collects what the tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.scripts: dict[str, str] = {}
        self.plain_scripts: list[str] = []
        self.cells: list[str] = []
        self._inside: tuple[str, str | None] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        for name in ("src", "href"):
            target = named.get(name)
            if target is not None and not target.startswith(("#", "data:")):
                self.loaded.append(f"{tag} {target}")
        if tag == "img":
            self.images.append(named)
        if tag in ("script", "td"):
            self._inside = tag, named.get("id")
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "td"):
            self._inside = None

    def handle_data(self, data: str) -> None:
        match self._inside:
            case ("script", None):
                self.plain_scripts.append(data)
            case ("script", str(name)):
                self.scripts[name] = self.scripts.get(name, "") + data
            case ("td", _):
                self.cells[-1] += data


@pytest.fixture(scope="module")
def text(written: Written) -> str:
    return written.page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def test_the_page_loads_nothing_and_forbids_itself_to(page, text):
    assert page.loaded == []
    assert page.images == []
    assert "default-src 'none'" in text


def test_the_drawing_library_is_there_once(page):
    assert len(page.plain_scripts) == 2  # the library, and the page's own
    assert sum("vega.github.io/schema" in script for script in page.plain_scripts) == 1


def test_code_cannot_end_its_script_element():
    assert in_script('a = "</script><!--";') == 'a = "<\\/script><\\!--";'


def test_definitions_become_paragraphs_with_code_and_nothing_else():
    assert prose("It is\nso.\n\nFormula: `a <b` of `c`.") == (
        "<p>It is so.</p><p>Formula: <code>a &lt;b</code> of <code>c</code>.</p>"
    )


def test_names_from_outside_are_shown_not_executed(page, text):
    assert "&lt;img src=x&gt;" in text
    assert "<img" not in text.split("<script>", maxsplit=1)[0]
    assert "for tests &lt;/script&gt;" in text
    assert "<img src=x>" in json.dumps(json.loads(page.scripts["specs"]))


def test_every_chart_and_timeline_is_in_the_page(page, summaries):
    specs, runs = json.loads(page.scripts["specs"]), json.loads(page.scripts["runs"])
    assert {
        "throughput_ttft_ms", "throughput_itl_ms", "throughput_latency_ms", "pareto", "comparison",
        "percentiles_ttft_ms", "percentiles_itl_ms", "percentiles_tpot_ms", "percentiles_latency_ms",
        "timeline", "cost",
    } == set(specs)  # fmt: skip
    assert len(runs) == len(summaries)
    for run in runs.values():
        assert {len(row) for row in run["requests"]["rows"]} == {len(run["requests"]["columns"])}
    assert set(json.loads(page.scripts["themes"])) == {"light", "dark"}


def test_axes_have_units(page):
    specs = json.dumps(json.loads(page.scripts["specs"]), ensure_ascii=False)
    titles = set(re.findall(r'"title": "([^"]*)"', specs))
    assert {
        "Time to first token (ms)", "Request latency (ms)", "Output tokens/s of the server", "TPOT (ms)",
        "USD per million output tokens", "Seconds since the first request was due",
    } <= titles  # fmt: skip


def test_the_page_says_what_was_promised_run_and_measured(text, written):
    assert "<title>small · Naiad benchmark</title>" in text
    assert "3 subjects at 4 points, 3 repeats each, 36 runs" in text
    assert "at most 50 ms" in text
    assert "1 % of the requests of a run" in text
    assert "made up, 2 cores" in text
    assert text.count("perf_analyzer -m engine --request-count 12 --streaming") >= 12
    for metric in METRICS:
        assert f"<code>{metric.name}" in text
    assert "The error budget was exceeded" in text
    assert "slos: {ttft_ms: 50" in text


def test_undefined_is_a_dash_in_the_table(page):
    assert "–" in page.cells  # the cost of the subject without a price


def test_csv_of_runs_has_every_figure_of_every_run(written):
    path = next(file for file in written.files if file.name == "runs.csv")
    rows = rows_of(path)
    assert len(rows) == len(written.results) == 36
    for row, result in zip(rows, written.results, strict=True):
        assert (row["subject"], row["point"], int(row["repeat"])) == (
            result.facts.subject,
            result.facts.point,
            result.facts.repeat,
        )
        for name in FIGURES:
            value = result.figures[name]
            assert row[name] == "" if value is None else float(row[name]) == value


def test_csv_of_points_has_medians_and_extremes(written, summaries: tuple[PointSummary, ...]):
    path = next(file for file in written.files if file.name == "points.csv")
    rows = rows_of(path)
    assert len(rows) == len(summaries) == 12
    for row, summary in zip(rows, summaries, strict=True):
        spread = summary.figures["ttft_ms_p50"]
        assert spread is not None
        found = [float(row[f"ttft_ms_p50_{part}"]) for part in ("median", "min", "max", "repeats")]
        assert found == [spread.median, spread.low, spread.high, spread.repeats]
        if summary.facts.hourly_price_usd is None:
            assert row["usd_per_million_tokens_median"] == ""
            assert row["usd_per_million_tokens_repeats"] == "0"


def test_the_page_carries_the_same_csv(text, written):
    for name in ("runs.csv", "points.csv"):
        encoded = re.search(rf'download="{name}" href="data:text/csv;base64,([^"]+)"', text)
        path = next(file for file in written.files if file.name == name)
        assert encoded is not None
        assert base64.b64decode(encoded.group(1)) == path.read_bytes()


def test_every_chart_is_a_picture_too(page, written):
    pictures = [file for file in written.files if file.suffix == ".png"]
    assert {file.stem for file in pictures} == set(json.loads(page.scripts["specs"]))
    for file in pictures:
        head = file.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(head[16:20], "big") > 1000  # pixels across


def test_the_comparison_is_with_the_first_subject(page):
    spec = json.loads(page.scripts["specs"])["comparison"]
    rows = max(spec["datasets"].values(), key=len)
    assert {row["subject"] for row in rows} == {"bls", "<img src=x>"}
    speed: dict[str, Any] = next(
        row for row in rows if row["figure"] == "Tokens/s ↑" and row["subject"] == "bls"
    )
    assert 0 < speed["from"] < speed["ratio"] < speed["to"] < 1
    assert speed["verdict"] == "worse"


def test_a_sweep_of_one_run_is_a_report_without_comparison(tmp_path):
    write_sweep(tmp_path / "sweep", [Engine("engine")], [Load(rate=5, requests=4, output_tokens=3)], 1)
    done = []
    written = write_report(
        tmp_path / "sweep",
        tmp_path / "out",
        Promise(),
        title="One <run>",
        pictures=False,
        report=lambda *step: done.append(step),
    )
    text = written.page.read_text(encoding="utf-8")
    assert "<h1>One &lt;run&gt;</h1>" in text
    assert 'id="comparison"' not in text
    assert "only once" in text
    assert [file.name for file in written.files] == ["runs.csv", "points.csv"]
    assert ("reading runs", 1, 1) in done
    left = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert left == ["points.csv", "report.html", "runs.csv"]


def test_a_report_of_nothing_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(RecordError, match="naiad bench sweep"):
        write_report(tmp_path, tmp_path / "out", Promise())
    assert not (tmp_path / "out").exists()


def test_where_every_request_failed_the_page_says_so(tmp_path):
    write_sweep(tmp_path, [Engine("engine", error_share=1, price_usd=None)], [Load(rate=5, requests=4)], 3)
    written = write_report(tmp_path, tmp_path / "out", Promise(), pictures=False)
    text = written.page.read_text(encoding="utf-8")
    assert "No request succeeded, so there are no latencies." in text
    assert "no request succeeded" in text
    assert "Undefined: no hourly price is stated." in text
