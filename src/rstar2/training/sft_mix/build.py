"""Builds the mix: convert, screen, draw, rewrite, encode, write (paper, section 4.1).

    report = build_mix(PAPER_MIX, {"toolace": Path("data.json"), ...}, Path("mix.jsonl"), template)

The output is JSON lines of ``id``, ``source``, ``tokens``, ``model_tokens``, ``rewritten``,
``messages`` and ``tools``; ``from_json`` and ``encode_conversation`` make an example of a
line. Its report stands beside it. The same spec, files, code, tokenizer and rewritten texts
give the same bytes. A second run finds the mix done; one that was interrupted goes on after
the sets that were converted and the texts that were rewritten.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rstar2.problems.data.formats import record_files
from rstar2.protocol import PAPER, TokenTemplate
from rstar2.records import deciding_sources, run_id
from rstar2.records.files import atomic_write, atomic_writer, make_folder
from rstar2.training.sft_mix.candidates import Tally, collect_candidates
from rstar2.training.sft_mix.card import mix_card
from rstar2.training.sft_mix.columns import check_columns
from rstar2.training.sft_mix.decontamination import Decontamination
from rstar2.training.sft_mix.drawing import Drawing, Drawn, OnProgress, draw
from rstar2.training.sft_mix.report import MixReport, SourceReport
from rstar2.training.sft_mix.rewriting import Rewriter, Usage
from rstar2.training.sft_mix.spec import MixError, MixSpec, SourceSpec


def build_mix(
    spec: MixSpec,
    inputs: Mapping[str, Path],
    out: Path,
    template: TokenTemplate,
    *,
    rewriter: Rewriter | None = None,
    decontamination: Decontamination | None = None,
    on_progress: OnProgress | None = None,
) -> MixReport:
    """Build a mix with its report, ``<out>.report.json``, and its data card, ``<out>.CARD.md``.

    A rewriter is awaited here: call it from plain code, not from a running event loop.

    Args:
        spec: What to take.
        inputs: File, or folder of files, of each source of the spec.
        out: File of the mix; replaced whole.
        template: Counts tokens; its tokenizer is the one of the model to train.
        rewriter: Rewrites what the spec says; None keeps the texts as they are.
        decontamination: Prompts to leave out; None leaves none out.
        on_progress: Told what goes on.

    Raises:
        MixError: Inputs and sources do not match, a file is of another set, a set has no
            conversation that is fit, or ``out`` is a folder.
        SourceError: A file cannot be read, or a record is malformed.
        RecordError: The folder of ``out`` cannot be written.
        RewriteError: The endpoint of an ``OpenAIRewriter`` failed.
    """
    check_out(out)
    files = _hashed_inputs(spec, inputs)
    code = run_id("", {}, deciding_sources(Path(__file__)))
    mark = _fingerprint(spec, files, code, template, rewriter, decontamination)
    done = _finished(out, mark)
    if done is not None:
        return done
    for source in spec.sources:
        check_columns(source.name, files[source.name], source.format)
    parts = out.with_name(f".{out.name}.parts")
    make_folder(parts)
    tell = on_progress or _silent
    drawing = Drawing(
        spec.seed, spec.max_tokens, template, rewriter, decontamination, tell, seen=set()
    )
    reports, drawn = [], []
    for source in spec.sources:
        part = parts / f"{source.name}.tsv"
        hashes = files[source.name]
        tally = collect_candidates(
            hashes, source.format, part, decontamination, code, _reading(source, tell)
        )
        drawn.append(draw(source, part, tally, drawing))
        reports.append(_source_report(source, hashes, tally, drawn[-1]))
    digest = _write(out, drawn)
    report = MixReport(
        fingerprint=mark,
        content_hash=digest,
        rows=sum(len(one.places) for one in drawn),
        rewriter=rewriter.model if rewriter else "",
        decontaminated=decontamination.name if decontamination else "",
        usage=rewriter.usage if rewriter else Usage(),
        sources=tuple(reports),
    )
    atomic_write(_card_path(out), mix_card(report).encode())
    atomic_write(_report_path(out), report.model_dump_json(indent=1).encode())
    shutil.rmtree(parts)
    return report


def check_out(out: Path) -> None:
    """Make sure that no folder stands where a mix and what goes with it are written.

    Raises:
        MixError: One does.
    """
    for place in (Path, _report_path, _card_path):
        if place(out).is_dir():
            raise MixError(f"{place(out)} is a folder; give the name of a file to write")


def _hashed_inputs(spec: MixSpec, inputs: Mapping[str, Path]) -> dict[str, dict[Path, str]]:
    names = {source.name: source.dataset for source in spec.sources}
    for name in inputs.keys() - names.keys():
        raise MixError(f"there is no source {name}; the spec has {', '.join(names)}")
    for name in names.keys() - inputs.keys():
        raise MixError(
            f"no file for {name}: give one of {names[name]}, or leave it out of the spec"
        )
    return {name: {file: _file_hash(file) for file in record_files(inputs[name])} for name in names}


def _file_hash(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise MixError(f"cannot read {path}: {error.strerror}") from error


def _fingerprint(
    spec: MixSpec,
    files: Mapping[str, Mapping[Path, str]],
    code: str,
    template: TokenTemplate,
    rewriter: Rewriter | None,
    decontamination: Decontamination | None,
) -> str:
    decides = [
        spec.model_dump(mode="json"),
        {name: list(hashes.values()) for name, hashes in files.items()},
        code,
        [PAPER.system, PAPER.tool_schema],
        hashlib.sha256(template.tokenizer.backend_tokenizer.to_str().encode()).hexdigest(),
        rewriter.model if rewriter else "",
        decontamination.name if decontamination else "",
    ]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()


def _report_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.report.json")


def _card_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.CARD.md")


def _finished(out: Path, mark: str) -> MixReport | None:
    path = _report_path(out)
    if not (out.is_file() and path.is_file()):
        return None
    try:
        report = MixReport.model_validate_json(path.read_bytes())
    except ValueError:
        return None  # of another version: build it again
    same = report.fingerprint == mark and report.content_hash == _file_hash(out)
    return report if same else None


def _source_report(
    source: SourceSpec, files: Mapping[Path, str], tally: Tally, drawn: Drawn
) -> SourceReport:
    return SourceReport(
        name=source.name,
        dataset=source.dataset,
        licence=source.licence,
        faults=source.faults,
        files={file.name: digest for file, digest in files.items()},
        read=tally.read,
        refused=dict(tally.refused),
        samples={reason: tuple(kept) for reason, kept in tally.samples.items()},
        target=source.target,
        kept=len(drawn.places),
        unused=drawn.unused,
        rewritten=drawn.rewritten,
        tokens=drawn.tokens,
        model_tokens=drawn.model_tokens,
        lengths=tuple(drawn.lengths),
    )


def _write(out: Path, drawn: Sequence[Drawn]) -> str:
    """Write all lines in the order of their ranks; returns the hash of the file."""
    digest = hashlib.sha256()
    ranked = sorted((rank, place) for place, one in enumerate(drawn) for rank in one.places)
    with ExitStack() as stack:
        files = [stack.enter_context(one.path.open("rb")) for one in drawn]
        write = stack.enter_context(atomic_writer(out))
        for rank, place in ranked:
            files[place].seek(drawn[place].places[rank])
            line = files[place].readline()
            write(line)
            digest.update(line)
    return digest.hexdigest()


def _reading(source: SourceSpec, tell: OnProgress) -> Callable[[int], None]:
    return lambda read: tell(f"{source.name}: convert", read, 0)


def _silent(what: str, done: int, total: int) -> None:
    """Tells nobody."""
    del what, done, total
