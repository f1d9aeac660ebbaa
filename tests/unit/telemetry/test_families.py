"""Metric families: NVIDIA's names and labels, closed label sets, valid Prometheus."""

from __future__ import annotations

import inspect
import re

import pytest

from naiad.contract import errors
from naiad.contract.errors import NaiadError
from naiad.telemetry import FAMILIES, Family, Kind
from naiad.telemetry.families import FAILURES, TEXT_FAMILIES

by_family = pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])


def test_every_error_code_is_a_reason_and_every_reason_an_error_code():
    codes = {
        found.code
        for _, found in inspect.getmembers(errors, inspect.isclass)
        if issubclass(found, NaiadError)
    }
    assert set(FAILURES.values) == codes


def test_names_are_unique_and_the_text_models_are_among_them():
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    assert set(TEXT_FAMILIES) <= set(FAMILIES)


@by_family
def test_a_family_is_valid_prometheus(family: Family):
    assert re.fullmatch(r"(nv_trt_llm|nv_llm|naiad)_[a-z_]+", family.name)
    assert family.description
    assert (family.label is None) == (family.values == ())
    assert len(family.values) == len(set(family.values))
    assert family.label not in {"model", "version"}


@by_family
def test_histograms_alone_have_buckets_in_rising_order(family: Family):
    assert (family.kind is Kind.HISTOGRAM) == bool(family.buckets)
    assert list(family.buckets) == sorted(set(family.buckets))


@by_family
def test_times_are_in_seconds_and_say_so(family: Family):
    own_histogram = family.kind is Kind.HISTOGRAM and family.name.startswith("naiad_")
    assert not own_histogram or family.name.endswith("_seconds")
