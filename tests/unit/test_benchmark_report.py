"""What every benchmark writes: a bar is met on its side only, a record is plain JSON."""

import importlib
import json
from typing import Any

import pytest


@pytest.fixture
def report() -> Any:
    return importlib.import_module("benchmarks.report")


def test_a_bar_is_met_on_its_side_only_and_never_unmeasured(report):
    most, least = report.Bar("bytes", 1600, ""), report.Bar("rate", 4, "", at_least=True)
    assert [most.verdict({"bytes": figure}) for figure in (1600, 1600.1)] == ["met", "missed"]
    assert [least.verdict({"rate": figure}) for figure in (4, 3.999)] == ["met", "missed"]
    assert most.verdict({}) == "not measured"
    assert least.verdict({"rate": float("nan")}) == "missed"


def test_the_headline_names_what_is_missed_and_what_is_not_measured(report):
    bars = (report.Bar("a", 1, ""), report.Bar("b", 1, ""), report.Bar("c", 1, ""))
    headline = report.headline({"a": 0.5, "b": 1.00001, "extra": 3.0}, bars)
    assert headline == {"a": 0.5, "b": 1.0, "missed": ["b"], "not_measured": ["c"]}


def test_a_record_is_json_with_one_key_on_each_line(report):
    record = {"rate": 4.0, "latency_ms": [1.0, 2.5], "provenance": {"commit": None}}
    written = report.as_json(record)
    assert json.loads(written) == record
    assert written.count(b"\n") == len(record) + 2


def test_numbers_are_rounded_however_deep_they_stand(report):
    deep = {"a": [1.23456, {"b": (0.000123456, 3)}], "c": "1.23456"}
    assert report.rounded(deep) == {"a": [1.235, {"b": [0.0001235, 3]}], "c": "1.23456"}


def test_the_headline_tells_what_stands_beside_the_bars(report):
    headline = report.headline({"a": 2.0, "b": 0.123456}, (report.Bar("a", 1, ""),), ("b",))
    assert headline == {"b": 0.1235, "a": 2.0, "missed": ["a"], "not_measured": []}
