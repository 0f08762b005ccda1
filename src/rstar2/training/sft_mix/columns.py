"""The columns of each set, looked for before anything is converted."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from rstar2.problems.data.formats import open_records
from rstar2.training.sft_mix.spec import Format, MixError

COLUMNS: Mapping[Format, tuple[frozenset[str], ...]] = {
    Format.TOOLACE: (frozenset({"system", "conversations"}),),
    Format.APIGEN: (frozenset({"tools", "conversations"}),),
    Format.GLAIVE: (frozenset({"system", "chat"}),),
    Format.MAGICODER: (
        frozenset({"lang", "problem", "solution"}),
        frozenset({"instruction", "response"}),
    ),
    Format.TULU: (frozenset({"messages"}),),
    Format.NEMOTRON: (frozenset({"category", "reasoning", "input", "output"}),),
}
"""What a record must have; for Magicoder, which is two sets, one or the other."""


def check_columns(source: str, files: Iterable[Path], schema: Format) -> None:
    """Make sure that each file holds a record with the columns of its set.

    A file is read as far as its first such record: one of another set is read whole.

    Args:
        source: Name of the set.
        files: Its files.
        schema: What they should hold.

    Raises:
        MixError: A file has no such record, or none at all.
        SourceError: A file cannot be read, or a record is malformed.
    """
    for path in files:
        file = open_records(path)
        if file.rows == 0:
            raise MixError(f"{source}: {path} holds no records")
        for _, record in file.records(file.columns):
            if any(record.keys() >= wanted for wanted in COLUMNS[schema]):
                break
        else:
            expected = " or ".join(", ".join(sorted(wanted)) for wanted in COLUMNS[schema])
            raise MixError(
                f"{source}: {path} is no file of this set: no record has its columns: expected "
                f"{expected}; found {', '.join(file.columns)}"
            )
