"""Second stage of a mix: draw of the candidates of a set, rewrite, encode, until it has enough."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rstar2.protocol import TokenTemplate
from rstar2.records.files import atomic_writer
from rstar2.training.sft_mix.candidates import (
    Candidate,
    Tally,
    prompt_key,
    read_candidates,
    read_conversation,
    screen,
)
from rstar2.training.sft_mix.decontamination import Decontamination
from rstar2.training.sft_mix.messages import Conversation, Refusal, Refused, conversation, to_json
from rstar2.training.sft_mix.rendering import encode_conversation
from rstar2.training.sft_mix.report import LENGTH_EDGES, length_bin
from rstar2.training.sft_mix.rewriting import Rewriter, RewriteStatus, rewrite_task, rewritten
from rstar2.training.sft_mix.spec import MixError, Rewriting, SourceSpec

OnProgress = Callable[[str, int, int], None]
"""``on_progress(what, done, total)``, now and then; ``total`` is 0 where it is not known."""

_EVERY = 100
_REWRITE_STATUS = {
    RewriteStatus.EMPTY: Refusal.REWRITE_EMPTY,
    RewriteStatus.CUT: Refusal.REWRITE_CUT,
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """What all sets of a mix are drawn with.

    Attributes:
        seed: Decides the order.
        max_tokens: Longer conversations are left out.
        template: Encodes.
        rewriter: Rewrites, if there is one.
        decontamination: Looks at what was rewritten.
        on_progress: Told what goes on.
        seen: Keys of the prompts that the mix has looked at; it grows.
    """

    seed: int
    max_tokens: int
    template: TokenTemplate
    rewriter: Rewriter | None
    decontamination: Decontamination | None
    on_progress: OnProgress
    seen: set[str]


@dataclass(slots=True)
class Drawn:
    """What was drawn of a set.

    Attributes:
        path: File of the drawn lines.
        places: Where the line of each rank begins in it, in bytes.
        size: Bytes of the file.
        tokens: Tokens of all lines.
        model_tokens: Those with a loss.
        rewritten: Lines of which a text was rewritten.
        unused: Candidates that were not needed.
        lengths: Lines per bin of ``LENGTH_EDGES``.
    """

    path: Path
    places: dict[str, int] = field(default_factory=dict)
    size: int = 0
    tokens: int = 0
    model_tokens: int = 0
    rewritten: int = 0
    unused: int = 0
    lengths: list[int] = field(default_factory=lambda: [0] * len(LENGTH_EDGES))


def draw(source: SourceSpec, part: Path, tally: Tally, drawing: Drawing) -> Drawn:
    """Go through the candidates of a set in random order until its target is met.

    Args:
        source: The set.
        part: Its file of candidates.
        tally: Its counts; refusals of this stage are added.
        drawing: What all sets share.

    Raises:
        MixError: Not one conversation of the set is fit.
        RecordError: The lines cannot be written.
        RewriteError: The endpoint of an ``OpenAIRewriter`` failed.
    """
    fit = _distinct(part, tally, drawing)
    drawn, at = Drawn(part.with_suffix(".drawn.jsonl")), 0
    with atomic_writer(drawn.path) as write:
        while len(drawn.places) < source.target and at < len(fit):
            batch = fit[at : at + source.target - len(drawn.places)]
            at += len(batch)
            for candidate, one, changed in _final(source, part, batch, tally, drawing):
                _add(drawn, write, source, candidate, one, changed, tally, drawing)
                if len(drawn.places) % _EVERY == 0:
                    drawing.on_progress(f"{source.name}: draw", len(drawn.places), source.target)
    if not drawn.places:
        raise MixError(f"{source.name}: not one of {tally.read} records is kept: {_why(tally)}")
    drawn.unused = len(fit) - at
    return drawn


def _why(tally: Tally) -> str:
    """The commonest refusals of a set, each with the first record that it met."""
    told = []
    for reason, count in tally.refused.most_common(3):
        first = tally.samples[reason][0]
        where = ": ".join(filter(None, (first.record, " ".join(first.detail.split()))))
        told.append(f"{count} {reason} ({where})")
    return "; ".join(told)


def _distinct(part: Path, tally: Tally, drawing: Drawing) -> list[Candidate]:
    """The candidates whose prompts are new to the mix, in random order."""
    fit = []
    for candidate in read_candidates(part):
        if candidate.key in drawing.seen:
            tally.refuse(candidate.record, Refused(Refusal.DUPLICATE))
        else:
            drawing.seen.add(candidate.key)
            fit.append(candidate)
    fit.sort(key=lambda candidate: _rank(drawing.seed, candidate))
    return fit


def _rank(seed: int, candidate: Candidate) -> str:
    return hashlib.sha256(f"{seed}:{candidate.key}".encode()).hexdigest()


def _final(
    source: SourceSpec, part: Path, batch: Sequence[Candidate], tally: Tally, drawing: Drawing
) -> Iterator[tuple[Candidate, Conversation, bool]]:
    """The conversations of a batch as they go into the mix, and whether they were rewritten."""
    rewriter, rewriting = drawing.rewriter, source.rewriting
    if rewriter is None or rewriting is Rewriting.NONE:
        for candidate in batch:
            yield candidate, read_conversation(part, candidate), False
        return
    originals = [read_conversation(part, candidate) for candidate in batch]
    tasks = [rewrite_task(one, rewriting) for one in originals]
    what = f"{source.name}: rewrite"
    outcomes = asyncio.run(
        rewriter.rewrite(tasks, lambda done, total: drawing.on_progress(what, done, total))
    )
    for candidate, one, outcome in zip(batch, originals, outcomes, strict=True):
        try:
            if outcome.status in _REWRITE_STATUS:
                raise Refused(_REWRITE_STATUS[outcome.status])
            changed = rewritten(one, rewriting, outcome.text)
            changed = conversation(changed.messages, changed.tools)
            screen(changed, drawing.decontamination)
            _check_new(candidate, changed, drawing.seen)
        except Refused as refused:
            tally.refuse(candidate.record, refused)
        else:
            yield candidate, changed, True


def _add(
    drawn: Drawn,
    write: Callable[[bytes], None],
    source: SourceSpec,
    candidate: Candidate,
    one: Conversation,
    changed: bool,
    tally: Tally,
    drawing: Drawing,
) -> None:
    example = encode_conversation(one, drawing.template)
    length = len(example.ids)
    if length > drawing.max_tokens:
        tally.refuse(candidate.record, Refused(Refusal.TOO_LONG, f"{length} tokens"))
        return
    model_tokens = sum(example.mask)
    row = {
        "id": f"{source.name}/{prompt_key(one)[:16]}",
        "source": source.name,
        "tokens": length,
        "model_tokens": model_tokens,
        "rewritten": changed,
        **to_json(one),
    }
    line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
    drawn.places[_rank(drawing.seed, candidate)] = drawn.size
    write(line)
    drawn.size += len(line)
    drawn.tokens += length
    drawn.model_tokens += model_tokens
    drawn.rewritten += changed
    drawn.lengths[length_bin(length)] += 1


def _check_new(candidate: Candidate, changed: Conversation, seen: set[str]) -> None:
    """A rewritten prompt may have become another one of the mix."""
    key = prompt_key(changed)
    if key != candidate.key and key in seen:
        raise Refused(Refusal.DUPLICATE, "once rewritten")
    seen.add(key)
