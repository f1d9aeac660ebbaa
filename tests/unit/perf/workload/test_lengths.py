"""Lengths: what YAML may say, and what is drawn."""

from __future__ import annotations

import random
import statistics

import pytest

from naiad_perf.errors import ScenarioError
from naiad_perf.workload.lengths import Length, Lengths
from naiad_perf.workload.strict_yaml import validated


def drawn(content: object, count: int = 4000) -> list[int]:
    length = validated(Lengths, {"input": content, "output": 1}, "test").input
    source = random.Random(1)
    return [length.draw(source) for _ in range(count)]


def refusal(content: object) -> str:
    with pytest.raises(ScenarioError) as refused:
        validated(Lengths, content, "test")
    return str(refused.value)


def test_a_number_is_a_fixed_length():
    assert set(drawn(17)) == {17}


def test_uniform_draws_every_length_between_its_bounds_about_as_often():
    values = drawn({"uniform": {"min": 3, "max": 6}})
    counts = {value: values.count(value) for value in set(values)}
    assert counts.keys() == {3, 4, 5, 6}
    assert min(counts.values()) > 900  # a thousand of each on average, standard deviation 27


def test_normal_has_its_mean_and_stays_within_its_bounds():
    values = drawn({"normal": {"mean": 50, "stdev": 10, "min": 40, "max": 60}})
    assert statistics.fmean(values) == pytest.approx(50, abs=0.5)
    assert (min(values), max(values)) == (40, 60)
    # Cut off, not piled up at the bounds: a piled-up 40 would hold 17 % of all draws.
    assert values.count(40) / len(values) < 0.05


def test_lognormal_has_its_median_and_a_long_tail():
    values = drawn({"lognormal": {"median": 100, "sigma": 0.5, "max": 100_000}})
    assert statistics.median(values) == pytest.approx(100, rel=0.05)
    two_thirds = sum(60 < value < 166 for value in values) / len(values)
    assert two_thirds == pytest.approx(0.69, abs=0.03)  # within one sigma: 100 / e^0.5 to 100 * e^0.5
    assert statistics.fmean(values) == pytest.approx(113, rel=0.05)  # median * e^(sigma^2 / 2)


def test_bounds_far_from_the_curve_give_the_nearer_bound():
    assert set(drawn({"normal": {"mean": 1000, "stdev": 1, "max": 10}}, 50)) == {10}
    assert set(drawn({"normal": {"mean": 1, "stdev": 0.001, "min": 10, "max": 20}}, 50)) == {10}


def test_empirical_draws_what_was_seen_as_often_as_it_was_seen():
    values = drawn({"empirical": [5, 5, 5, 9]})
    assert set(values) == {5, 9}
    assert values.count(5) / len(values) == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize(
    ("content", "label"),
    [
        (128, "128"),
        ({"uniform": {"min": 1, "max": 9}}, "1to9"),
        ({"normal": {"mean": 12.5, "stdev": 1, "max": 20}}, "n12.5"),
        ({"lognormal": {"median": 80, "sigma": 1, "max": 200}}, "ln80"),
        ({"empirical": [2, 4, 9]}, "e5"),
    ],
)
def test_lengths_name_themselves(content: object, label: str):
    assert validated(Lengths, {"input": content, "output": 7}, "test").label == f"i{label}-o7"
    assert validated(Lengths, {"name": "chat", "input": content, "output": 7}, "test").label == "chat"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"input": 1}, "output: Field required"),
        ({"input": 0, "output": 1}, "input.fixed: Input should be greater than or equal to 1, not 0"),
        ({"input": 1.5, "output": 1}, "input: give a whole number of tokens, or one of fixed, uniform"),
        ({"input": True, "output": 1}, "input: give a whole number"),
        ({"input": "9", "output": 1}, "not '9'"),
        ({"input": {}, "output": 1}, "input: give a whole number"),
        ({"input": {"fixed": 1, "empirical": [1]}, "output": 1}, "input: give a whole number"),
        ({"input": {"unifrom": {}}, "output": 1}, "unknown key 'unifrom'; did you mean 'uniform'?"),
        ({"input": {"uniform": {"min": 5, "max": 4}}, "output": 1}, "input.uniform: min 5 is above max 4"),
        ({"input": {"normal": {"mean": 5, "stdev": 1}}, "output": 1}, "input.normal.max: Field required"),
        ({"input": {"lognormal": {"median": 5, "sigma": 0, "max": 9}}, "output": 1}, "input.lognormal.sigma"),
        ({"input": {"empirical": []}, "output": 1}, "input.empirical"),
        ({"input": {"empirical": [3, 0]}, "output": 1}, "input.empirical.1"),
        ({"name": "a/b", "input": 1, "output": 1}, "name: must be letters a to z, digits"),
    ],
)
def test_what_is_wrong_is_said_by_place(content: object, said: str):
    assert said in refusal(content)


def test_every_draw_takes_one_number_so_that_kinds_can_be_exchanged():
    kinds: list[dict[str, object]] = [{"fixed": 3}, {"uniform": {"min": 1, "max": 5}}, {"empirical": [1, 2]}]
    for kind in kinds:
        source = random.Random(7)
        Length.model_validate(kind).draw(source)
        same = random.Random(7)
        same.random()
        assert source.random() == same.random()
