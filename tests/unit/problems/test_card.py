"""The data card: everything that went in is told, the same way each time."""

from dataclasses import replace

import pytest

from rstar2.problems.data.card import Build, SourceReport, StepReport, data_card
from rstar2.problems.data.rows import DropReason

MINE = SourceReport(
    name="mine",
    what="Invented problems.",
    licence="Not known here: it is for the user to know.",
    records=120,
    rows=100,
    distinct=90,
    origin="sha256:0123",
    notes=("100 records: a part of the set, as asked for.",),
    faults=("Some lack a question.",),
)
TEST_SET = replace(MINE, name="exam", records=30, rows=30, distinct=30, notes=(), faults=())
BUILD = Build(
    title="An invented pool",
    what="Made for a test.",
    sources=(MINE,),
    steps=(
        StepReport("integer", 100, 80, {DropReason.BAD_GOLD: 15, DropReason.HUGE_GOLD: 5}),
        StepReport("dedup", 80, 70, {DropReason.DUPLICATE: 10}, 4, {"groups": 1_234}),
    ),
    benchmarks=(TEST_SET,),
    rows=70,
    content_hash="sha256:4567",
    command="rstar2 data build --source mine.jsonl",
)


def test_the_card_of_a_small_build() -> None:
    assert (
        data_card(BUILD)
        == """\
# An invented pool

Made for a test.

70 problems; content hash `sha256:4567`.

## Sources

| Source | Records | Rows | Distinct texts | Origin |
| --- | --: | --: | --: | --- |
| `mine` | 120 | 100 | 90 | `sha256:0123` |

- `mine`: Invented problems. Licence: Not known here: it is for the user to know.

Notes of the loaders:

- `mine`: 100 records: a part of the set, as asked for.

## Filters

Steps in order. A doubtful row is kept and listed for a person to look at.

| Step | Rows in | Kept | Dropped | Doubtful | Further counts |
| --- | --: | --: | --- | --: | --- |
| integer | 100 | 80 | bad_gold 15, huge_gold 5 | 0 | - |
| dedup | 80 | 70 | duplicate 10 | 4 | groups 1,234 |

## Decontamination

Rows that are, or nearly are, a problem of these sets were dropped.

| Benchmark | Problems | Origin |
| --- | --: | --- |
| `exam` | 30 | `sha256:0123` |

## Known faults

- `mine`: Some lack a question.

## How to make it again

```bash
rstar2 data build --source mine.jsonl
```
"""
    )


def test_a_pool_that_was_compared_with_nothing_says_so() -> None:
    card = data_card(replace(BUILD, benchmarks=()))
    assert "**No benchmark was given" in card
    assert "were dropped" not in card


def test_an_empty_build_has_a_card() -> None:
    card = data_card(Build("Nothing", "Empty.", (), (), (), 0, "sha256:0", "true"))
    assert "0 problems;" in card
    assert card.count("None.") == 2, "no source and no step"
    assert "None are known." in card


@pytest.mark.parametrize(
    ("steps", "rows"),
    [
        ((StepReport("integer", 99, 99),), 99),
        ((StepReport("integer", 100, 80, {DropReason.BAD_GOLD: 19}),), 80),
        ((StepReport("integer", 100, 100), StepReport("dedup", 80, 80)), 80),
        ((StepReport("integer", 100, 100),), 99),
    ],
)
def test_counts_that_contradict_each_other_are_no_card(
    steps: tuple[StepReport, ...], rows: int
) -> None:
    with pytest.raises(ValueError, match="rows"):
        data_card(replace(BUILD, steps=steps, rows=rows))


def test_text_from_outside_cannot_break_the_tables() -> None:
    odd = replace(MINE, name="a|b\n`c`", faults=("one\n\n# two",))
    card = data_card(replace(BUILD, sources=(odd,)))
    (row,) = [line for line in card.splitlines() if line.startswith("| `a")]
    assert row == "| `a\\|b 'c'` | 120 | 100 | 90 | `sha256:0123` |"
    assert "\n# two" not in card
