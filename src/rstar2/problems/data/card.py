"""The data card: what a training pool is made of, in Markdown.

The text depends on its arguments alone: no date, no path of a machine, no duration. The same
build gives the same card.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rstar2.problems.data.rows import DropReason


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What was read from one source.

    Attributes:
        name: Its name, as ``dapo-17k``; of a file of one's own, the name of the file.
        what: One sentence: what it is.
        licence: Under which terms it stands, with its caveat.
        records: Records in the file or data set.
        rows: Rows they make; fewer where a problem repeats, once per solution.
        distinct: Rows whose text differs from every earlier one, character by character.
        origin: ``sha256:…`` of the file, or ``dataset@revision``.
        notes: What the loader has to say, as that this is a subset.
        faults: Known faults, one sentence each.
    """

    name: str
    what: str
    licence: str
    records: int
    rows: int
    distinct: int
    origin: str
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step of the pipeline did.

    Attributes:
        name: The step.
        rows_in: Rows that came.
        rows_kept: Rows that went on.
        dropped: Rows that did not, by reason; the counts add up to the difference.
        doubts: Kept rows that a person should look at.
        facts: Further counts, by what they count.
    """

    name: str
    rows_in: int
    rows_kept: int
    dropped: Mapping[DropReason, int] = field(default_factory=dict)
    doubts: int = 0
    facts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Build:
    """All that a data card tells.

    Attributes:
        title: The name of the pool.
        what: A sentence or two: what it is for.
        sources: What went in, in order.
        steps: What was done, in order.
        benchmarks: The sets that the pool was compared with; empty if none were given.
        rows: Rows in the pool.
        content_hash: Hash of the pool's content, with the name of the hash function.
        command: The command that makes it again.
    """

    title: str
    what: str
    sources: Sequence[SourceReport]
    steps: Sequence[StepReport]
    benchmarks: Sequence[SourceReport]
    rows: int
    content_hash: str
    command: str


def data_card(build: Build) -> str:
    """Write the data card.

    Returns:
        Markdown, with a newline at its end.

    Raises:
        ValueError: The counts contradict each other: a step that does not start with the rows
            the step before it kept, drops that do not add up, another number of rows at the end.
    """
    _check(build)
    head = f"# {_line(build.title)}\n\n{_line(build.what)}"
    size = f"{_count(build.rows, 'problem')}; content hash `{_code(build.content_hash)}`."
    parts = [
        head,
        size,
        *_sources(build.sources),
        *_steps(build.steps),
        *_benchmarks(build.benchmarks),
        *_faults([*build.sources, *build.benchmarks]),
        "## How to make it again",
        f"```bash\n{build.command}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _check(build: Build) -> None:
    rows = sum(source.rows for source in build.sources)
    for step in build.steps:
        lost = step.rows_in - step.rows_kept
        if step.rows_in != rows or lost != sum(step.dropped.values()):
            raise ValueError(
                f"step {step.name!r}: {rows} rows came, {step.rows_in} said; "
                f"{lost} lost, {sum(step.dropped.values())} with a reason"
            )
        rows = step.rows_kept
    if rows != build.rows:
        raise ValueError(f"the last step kept {rows} rows, the pool has {build.rows}")


def _sources(sources: Sequence[SourceReport]) -> list[str]:
    rows = [
        (f"`{_code(s.name)}`", f"{s.records:,}", f"{s.rows:,}", f"{s.distinct:,}", f"`{s.origin}`")
        for s in sources
    ]
    heads = ("Source", "Records", "Rows", "Distinct texts", "Origin")
    told = [f"- `{_code(s.name)}`: {_line(s.what)} Licence: {_line(s.licence)}" for s in sources]
    notes = [f"- `{_code(s.name)}`: {_line(note)}" for s in sources for note in s.notes]
    parts = ["## Sources", _table(heads, rows, right=(1, 2, 3)), "\n".join(told)]
    return [*parts, "Notes of the loaders:", "\n".join(notes)] if notes else parts


def _steps(steps: Sequence[StepReport]) -> list[str]:
    rows = [
        (
            _line(step.name),
            f"{step.rows_in:,}",
            f"{step.rows_kept:,}",
            _counts({reason.value: n for reason, n in step.dropped.items() if n}),
            f"{step.doubts:,}",
            _counts(step.facts),
        )
        for step in steps
    ]
    heads = ("Step", "Rows in", "Kept", "Dropped", "Doubtful", "Further counts")
    explained = "Steps in order. A doubtful row is kept and listed for a person to look at."
    return ["## Filters", explained, _table(heads, rows, right=(1, 2, 4))]


def _benchmarks(benchmarks: Sequence[SourceReport]) -> list[str]:
    title = "## Decontamination"
    if not benchmarks:
        return [
            title,
            "**No benchmark was given, so nothing was compared: the pool may hold problems of "
            "any benchmark.**",
        ]
    rows = [(f"`{_code(s.name)}`", f"{s.rows:,}", f"`{s.origin}`") for s in benchmarks]
    told = "Rows that are, or nearly are, a problem of these sets were dropped."
    return [title, told, _table(("Benchmark", "Problems", "Origin"), rows, right=(1,))]


def _faults(sources: Sequence[SourceReport]) -> list[str]:
    faults = [f"- `{_code(s.name)}`: {_line(fault)}" for s in sources for fault in s.faults]
    return ["## Known faults", "\n".join(faults) if faults else "None are known."]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    if not rows:
        return "None."
    rule = ["--:" if column in right else "---" for column in range(len(heads))]
    lines = [heads, rule, *([_cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _counts(counts: Mapping[str, int]) -> str:
    """Counts in their order, as ``duplicate 12, conflict 3``."""
    return ", ".join(f"{_line(name)} {number:,}" for name, number in counts.items()) or "-"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _line(text: str) -> str:
    """Keep a text on one line: a line break would end its list item or table row."""
    return " ".join(text.split())


def _code(text: str) -> str:
    return _line(text).replace("`", "'")


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")
