"""First stage of a mix: every record of a set becomes a candidate or is refused.

The candidates of a set are kept in a file until the mix is done, so that a run that was
interrupted goes on without converting them again, with another seed or target too.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from rstar2.problems.data.formats import read_records
from rstar2.records.files import atomic_write, atomic_writer
from rstar2.training.sft_mix.apigen import convert_apigen
from rstar2.training.sft_mix.chat import convert_nemotron, convert_tulu
from rstar2.training.sft_mix.checks import find_maths
from rstar2.training.sft_mix.decontamination import Decontamination
from rstar2.training.sft_mix.glaive import convert_glaive
from rstar2.training.sft_mix.magicoder import convert_magicoder
from rstar2.training.sft_mix.messages import (
    Conversation,
    Refusal,
    Refused,
    Role,
    from_json,
    to_json,
)
from rstar2.training.sft_mix.report import Sample
from rstar2.training.sft_mix.spec import Format
from rstar2.training.sft_mix.toolace import convert_toolace

_SAMPLES = 5
_MATHS_SAMPLES = 50
_EVERY = 500

CONVERTERS: Mapping[Format, Callable[[Mapping[str, Any]], Conversation]] = {
    Format.TOOLACE: convert_toolace,
    Format.APIGEN: convert_apigen,
    Format.GLAIVE: convert_glaive,
    Format.MAGICODER: convert_magicoder,
    Format.TULU: convert_tulu,
    Format.NEMOTRON: convert_nemotron,
}


class Tally(BaseModel):
    """Counts of the first stage of one set.

    Attributes:
        key: Hash of all that decides the candidates.
        read: Records read.
        refused: Records per reason.
        samples: A few refused records per reason.
    """

    model_config = ConfigDict(extra="forbid")

    key: str
    read: int = 0
    refused: Counter[str] = Counter()
    samples: dict[str, list[Sample]] = {}

    def refuse(self, record: str, refused: Refused) -> None:
        """Count a refusal, and keep it as a sample if there are few of its reason."""
        reason = refused.reason.value
        self.refused[reason] += 1
        kept = self.samples.setdefault(reason, [])
        if len(kept) < (_MATHS_SAMPLES if refused.reason is Refusal.MATHS else _SAMPLES):
            detail = refused.detail.encode(errors="replace").decode()
            kept.append(Sample(record=record, detail=detail))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A conversation that is fit for the mix.

    Attributes:
        key: Hash of its prompts and tools; equal keys are duplicates.
        record: File and number of its record, from 1.
        place: Where its line begins in the file of candidates, in bytes.
    """

    key: str
    record: str
    place: int


def convert(record: Mapping[str, Any], schema: Format) -> Conversation | Refused:
    """A raw record as a conversation, or why it is none."""
    try:
        return CONVERTERS[schema](record)
    except Refused as refused:
        return refused


def screen(one: Conversation, decontamination: Decontamination | None) -> None:
    """Look for mathematics and benchmarks.

    Raises:
        Refused: ``MATHS`` or ``CONTAMINATED``, with what was found.
    """
    finding = find_maths(one)
    if finding is not None:
        detail = f"{finding.rule.value}: {finding.asked} => {finding.shown}"
        raise Refused(Refusal.MATHS, detail)
    for prompt in one.texts(Role.USER) if decontamination else ():
        found = decontamination.find(prompt) if decontamination else None
        if found is not None:
            raise Refused(Refusal.CONTAMINATED, f"{found}: {prompt[:120]}")


def collect_candidates(
    files: Mapping[Path, str],
    schema: Format,
    part: Path,
    decontamination: Decontamination | None,
    code: str,
    on_progress: Callable[[int], None],
) -> Tally:
    """Convert all records of a set into ``part``; done already, it is only read.

    Args:
        files: The set's files and their hashes.
        schema: How they are read.
        part: File of candidates; its counts stand beside it.
        decontamination: Prompts to leave out.
        code: Hash of the code.
        on_progress: Called now and then with the number of records read.

    Raises:
        SourceError: A file cannot be read, or a record is malformed.
        RecordError: ``part`` cannot be written.
    """
    against = decontamination.name if decontamination else ""
    decides = [schema.value, list(files.values()), against, code]
    key = hashlib.sha256(json.dumps(decides).encode()).hexdigest()
    counts = part.with_suffix(".counts.json")
    if counts.exists() and part.exists():
        known = json.loads(counts.read_bytes())
        if known["key"] == key:
            return Tally.model_validate(known)
    tally = Tally(key=key)
    counts.unlink(missing_ok=True)  # before the candidates change that it counts
    with atomic_writer(part) as write:
        for file in files:
            for place, record in read_records(file):
                line = _line(record, schema, f"{file.name}, {place}", decontamination, tally)
                if line is not None:
                    write(line)
                if tally.read % _EVERY == 0:
                    on_progress(tally.read)
    atomic_write(counts, tally.model_dump_json().encode())
    return tally


def read_candidates(part: Path) -> Iterator[Candidate]:
    """The candidates of a set, in the order of its records."""
    place = 0
    with part.open("rb") as file:
        for line in file:
            key, record, _ = line.split(b"\t", 2)
            yield Candidate(key.decode(), record.decode(), place)
            place += len(line)


def read_conversation(part: Path, candidate: Candidate) -> Conversation:
    """The conversation of a candidate."""
    with part.open("rb") as file:
        file.seek(candidate.place)
        return from_json(json.loads(file.readline().split(b"\t", 2)[2]))


def prompt_key(one: Conversation) -> str:
    """Hash of the prompts, but for spacing and case, and of the names of the tools."""
    prompts = [" ".join(text.casefold().split()) for text in one.texts(Role.USER)]
    return hashlib.sha256(json.dumps([prompts, sorted(one.tool_names)]).encode()).hexdigest()


def _line(
    record: Mapping[str, Any],
    schema: Format,
    name: str,
    decontamination: Decontamination | None,
    tally: Tally,
) -> bytes | None:
    tally.read += 1
    converted = convert(record, schema)
    if isinstance(converted, Refused):
        tally.refuse(name, converted)
        return None
    try:
        screen(converted, decontamination)
    except Refused as refused:
        tally.refuse(name, refused)
        return None
    row = json.dumps(to_json(converted), ensure_ascii=False)
    return f"{prompt_key(converted)}\t{' '.join(name.split())}\t{row}\n".encode()
