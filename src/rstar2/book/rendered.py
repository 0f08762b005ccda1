"""Things to look at that are no figures: something with an HTML and a plain-text face."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rendered:
    """Something to look at, as HTML and as plain text; Jupyter picks what it can show.

    Attributes:
        html: Self-contained markup.
        text: The same for a terminal.
    """

    html: str
    text: str

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": self.text}

    def __str__(self) -> str:
        return self.text


def show_table(
    rows: Sequence[Mapping[str, object]], *, caption: str = "", digits: int = 3
) -> Rendered:
    """A table of plain values: numbers to the right, everything escaped.

    Args:
        rows: One mapping a row, all with the keys of the first; the keys are the header.
        caption: What the table shows.
        digits: Decimals of a float.

    Raises:
        ValueError: There is no row, or a row has other keys.
    """
    if not rows:
        raise ValueError("a table needs at least one row")
    header = list(rows[0])
    for number, row in enumerate(rows):
        if list(row) != header:
            raise ValueError(f"row {number} has the columns {list(row)}, not {header}")
    cells = [[_shown(value, digits) for value in row.values()] for row in rows]
    right = [
        all(isinstance(row[name], int | float) and not isinstance(row[name], bool) for row in rows)
        for name in header
    ]
    return Rendered(_html(header, cells, right, caption), _text(header, cells, right))


def _shown(value: object, digits: int) -> str:
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def _html(
    header: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool], caption: str
) -> str:
    def row(values: Sequence[str], tag: str, attributes: str = "") -> str:
        return "".join(
            f'<{tag}{attributes} style="text-align:{"right" if to_right else "left"}">'
            f"{html.escape(value)}</{tag}>"
            for value, to_right in zip(values, right, strict=True)
        )

    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    body = "".join(f"<tr>{row(values, 'td')}</tr>" for values in cells)
    head = row(header, "th", ' scope="col"')
    return (
        f'<div class="rs-table" tabindex="0"><table class="table dataframe">{title}<thead><tr>'
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _text(header: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    return "\n".join(
        "  ".join(
            value.rjust(width) if to_right else value.ljust(width)
            for value, width, to_right in zip(values, widths, right, strict=True)
        ).rstrip()
        for values in (header, *cells)
    )
