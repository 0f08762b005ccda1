"""The data card of a mix: what it is made of, under which licences, and what is wrong with it."""

from rstar2.training.sft_mix.report import MixReport, SourceReport, histogram_lines, total_lengths


def mix_card(report: MixReport) -> str:
    """Write the data card.

    Returns:
        Markdown, with a newline at its end; no text of a conversation stands in it.
    """
    against = report.decontaminated
    rewriter = report.rewriter
    parts = [
        "# SFT mix",
        "Demonstrations for the non-reasoning cold start: function calling, instruction "
        "following and chat, without mathematics.",
        f"{report.rows:,} conversations, {report.tokens:,} tokens; content hash "
        f"`sha256:{report.content_hash}`.",
        "## Sources",
        _sources(report.sources),
        *("\n".join(_origin(source)) for source in report.sources),
        "## Filters",
        _refusals(report.sources),
        f"Prompts were compared with {against} and copies left out."
        if against
        else "**No benchmark was given, so no prompt was compared with one.**",
        f"Texts were rewritten by {rewriter}." if rewriter else "No text was rewritten.",
        "## Length in tokens",
        "\n".join(["```text", *histogram_lines(total_lengths(report.sources)), "```"]),
    ]
    return "\n\n".join(parts) + "\n"


def _sources(sources: tuple[SourceReport, ...]) -> str:
    lines = [
        "| Source | Licence | Read | Refused | Wanted | Kept | Rewritten | Tokens |",
        "| --- | --- | --: | --: | --: | --: | --: | --: |",
    ]
    for one in sources:
        refused = sum(one.refused.values())
        lines.append(
            f"| `{one.name}` | {one.licence} | {one.read:,} | {refused:,} | {one.target:,} | "
            f"{one.kept:,} | {one.rewritten:,} | {one.tokens:,} |"
        )
    return "\n".join(lines)


def _origin(source: SourceReport) -> list[str]:
    files = ", ".join(f"`{name}` sha256:{digest}" for name, digest in source.files.items())
    faults = [f"  - {fault}" for fault in source.faults]
    return [f"- `{source.name}`: {source.dataset}; {files}", *faults]


def _refusals(sources: tuple[SourceReport, ...]) -> str:
    lines = ["| Source | Reason | Records |", "| --- | --- | --: |"]
    for one in sources:
        lines += [f"| `{one.name}` | {name} | {n:,} |" for name, n in sorted(one.refused.items())]
    return "\n".join(lines) if len(lines) > 2 else "No record was refused."
