"""Metric families of the fake Triton module: what the server refuses, and what a test can read back."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Mapping, MutableMapping
from typing import ClassVar

from tests.harness.fake_triton_data import TritonModelException, refuse_unless, typed

__all__ = ["Metric", "MetricFamily"]


class Metric:
    """One labelled metric; unusable once its family is gone."""

    def __init__(self, family: MetricFamily, labels: Mapping[str, str], buckets: list[float] | None) -> None:
        self._family = weakref.ref(family)
        self.labels, self.buckets, self.number = dict(labels), buckets, 0.0
        self.observations: list[float] = []

    def _for(self, *kinds: int) -> None:
        family = self._family()
        if family is None:
            raise TritonModelException("the corresponding 'MetricFamily' has been deleted.")
        refuse_unless(family.kind in kinds, f"unsupported operation for the kind of {family.name}")

    def increment(self, value: float) -> None:
        self._for(MetricFamily.COUNTER, MetricFamily.GAUGE)
        family = self._family()
        negative_counter = value < 0 and family is not None and family.kind == MetricFamily.COUNTER
        refuse_unless(not negative_counter, "a counter can only be incremented by a non-negative value")
        self.number += float(value)

    def set(self, value: float) -> None:
        self._for(MetricFamily.GAUGE)
        self.number = float(value)

    def observe(self, value: float) -> None:
        self._for(MetricFamily.HISTOGRAM)
        self.observations.append(float(value))

    def value(self) -> float:
        self._for(MetricFamily.COUNTER, MetricFamily.GAUGE)
        return self.number


class MetricFamily:
    """A family of metrics; the server forgets it when the model drops the object."""

    COUNTER, GAUGE, HISTOGRAM = range(3)
    name: str
    kind: int
    alive: ClassVar[MutableMapping[str, MetricFamily]]  # the connected server's

    def __init__(self, name: str, description: str, kind: int) -> None:
        typed(name, str, "the family's name")
        typed(description, str, "the family's description")
        refuse_unless(kind in (self.COUNTER, self.GAUGE, self.HISTOGRAM), f"unknown metric kind {kind}")
        before = self.alive.get(name)
        refuse_unless(before is None or before.kind == kind, f"{name} exists already as another kind")
        self.name, self.description, self.kind = name, description, int(kind)
        self.metrics: list[Metric] = []
        self.alive[name] = self

    def Metric(  # noqa: N802 - Triton's name
        self, labels: Mapping[str, str] | None = None, buckets: list[float] | None = None
    ) -> Metric:
        given = {} if labels is None else labels
        refuse_unless(isinstance(given, dict), "Failed to create metric. Labels must be a dictionary.")
        text = all(isinstance(part, str) for pair in given.items() for part in pair)
        refuse_unless(text, "Failed to create metric. Labels must be strings.")
        same = all(set(metric.labels) == set(given) for metric in self.metrics)
        refuse_unless(same, f"{self.name}: label names differ from those of its other metrics")
        histogram = self.kind == self.HISTOGRAM
        refuse_unless(
            not histogram or buckets is not None, "Failed to create metric. Missing required buckets."
        )
        refuse_unless(histogram or buckets is None, "Failed to create metric. Unexpected buckets found.")
        if buckets is not None:
            refuse_unless(isinstance(buckets, list), "Failed to create metric. Buckets must be a list.")
            rising = all(low < high for low, high in itertools.pairwise(buckets))
            finite = all(math.isfinite(bound) for bound in buckets)
            refuse_unless(rising and finite and bool(buckets), f"{self.name}: buckets must rise")
        metric = Metric(self, given, buckets)
        self.metrics.append(metric)
        return metric
