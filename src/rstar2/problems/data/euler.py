"""Project Euler: problem texts that the user fetched, joined by number with integer answers.

Neither texts nor answers are part of this project. The texts are CC BY-NC-SA 4.0; the site
gives each as a bare piece of HTML at ``/minimal=N``. The answers are a list of the user's own.
"""

import csv
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from rstar2.problems.data.formats import SourceError
from rstar2.problems.data.rows import Progress

SITE = "https://projecteuler.net"
_AGENT = "rstar2 (fetches problem texts once, one a second, for its user)"
_NO_SUCH_PROBLEM = "Data for that problem cannot be found"
_MAX_BYTES = 2**20
_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"[0-9]{1,6}")
_LIST_LINE = re.compile(r"\s*([0-9]{1,6})\.\s+(\S.*?)\s*")
_TEXT_FILE = re.compile(r"0*([1-9][0-9]*)\.(?:html|txt)")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with its answer.

    Attributes:
        number: Its number on the site.
        question: Its text.
        answer: An integer in decimal digits.
    """

    number: int
    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Joined:
    """What came of joining texts and answers; every answer is in one of the groups.

    Attributes:
        problems: Those with a text and an integer answer, by number.
        not_integer: Numbers of those whose answer is no integer.
        without_text: Numbers of those with no text in the folder.
        needs_file: Numbers of those that cannot be solved without a file of the site.
        unreadable: Numbers of those whose text is no HTML: a bare ``<`` swallows what follows.
    """

    problems: tuple[Problem, ...]
    not_integer: tuple[int, ...]
    without_text: tuple[int, ...]
    needs_file: tuple[int, ...]
    unreadable: tuple[int, ...]

    def json_lines(self) -> bytes:
        """The problems as a file that :func:`~rstar2.problems.data.sources.read` reads."""
        rows = (
            {"number": p.number, "question": p.question, "answer": p.answer} for p in self.problems
        )
        return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def fetch_euler(
    answers: Path,
    texts: Path,
    *,
    download: bool = False,
    site: str = SITE,
    pause: float = 1.0,
    progress: Progress | None = None,
) -> Joined:
    """Join texts with answers; with ``download``, first fetch the texts that are not there.

    Args:
        answers: Markdown with lines like ``1. 233168``, or CSV with number and answer.
        texts: Folder of the texts, as ``0001.html`` or ``1.txt``; downloads go there too, one
            by one, so that an interrupted download goes on where it stopped.
        download: Whether to fetch what is missing.
        site: The address that has ``/minimal=N``.
        pause: Seconds between two requests.
        progress: Called with texts looked for and their total.

    Raises:
        SourceError: A file cannot be read or written, or the site does not answer as it should.
    """
    known = read_answers(answers)
    integers = sorted(number for number, answer in known.items() if _INTEGER.fullmatch(answer))
    if download:
        _download(integers, texts, site, pause, progress)
    return _join(known, texts)


def read_answers(path: Path) -> Mapping[int, str]:
    """Read a list of answers.

    Returns:
        The answer to each number, as text.

    Raises:
        SourceError: The file cannot be read, holds no answers, or two for one number.
    """
    text = _read(path)
    if path.suffix.lower() == ".csv":
        try:
            fields = [row for row in csv.reader(text.splitlines()) if len(row) >= 2]
        except csv.Error as error:
            raise SourceError(f"{path}: not CSV: {error}") from error
        pairs = [(row[0].strip(), row[1].strip()) for row in fields]
    else:
        found = map(_LIST_LINE.fullmatch, text.splitlines())
        pairs = [(match[1], match[2]) for match in found if match]
    answers: dict[int, str] = {}
    for number, answer in pairs:
        if not _NUMBER.fullmatch(number) or not answer:  # a heading, or a gap in the list
            continue
        if answers.setdefault(int(number), answer) != answer:
            raise SourceError(f"{path}: problem {number} has two answers; remove the wrong one")
    if not answers:
        raise SourceError(f"{path}: no answers; expected lines like '1. 233168', or CSV '1,233168'")
    return answers


def _join(answers: Mapping[int, str], folder: Path) -> Joined:
    texts = _text_files(folder)
    problems: list[Problem] = []
    not_integer: list[int] = []
    without_text: list[int] = []
    needs_file: list[int] = []
    unreadable: list[int] = []
    for number, answer in sorted(answers.items()):
        if not _INTEGER.fullmatch(answer):
            not_integer.append(number)
        elif number not in texts:
            without_text.append(number)
        elif (page := _Page(_read(texts[number]))).unknown_tag:
            unreadable.append(number)
        elif page.needs_file:
            needs_file.append(number)
        else:
            problems.append(Problem(number, page.text(), answer))
    return Joined(
        tuple(problems),
        tuple(not_integer),
        tuple(without_text),
        tuple(needs_file),
        tuple(unreadable),
    )


def _text_files(folder: Path) -> dict[int, Path]:
    files: dict[int, Path] = {}
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise SourceError(
            f"cannot read {folder}: {error.strerror}; give the texts' folder"
        ) from error
    for path in paths:
        match = _TEXT_FILE.fullmatch(path.name)
        if match and (other := files.setdefault(int(match[1]), path)) != path:
            raise SourceError(f"{folder}: {other.name} and {path.name} are the same problem")
    return files


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: not UTF-8 at byte {error.start}") from error


# --- download ------------------------------------------------------------------------------


def _download(
    numbers: Collection[int],
    folder: Path,
    site: str,
    pause: float,
    progress: Progress | None,
) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SourceError(f"cannot make folder {folder}: {error.strerror}") from error
    there = _text_files(folder)
    asked = False
    for done, number in enumerate(numbers, start=1):
        if number not in there:
            if asked:
                time.sleep(pause)
            asked = True
            if text := _get(site, number):
                _write_whole(folder / f"{number:04}.html", text)
        if progress:
            progress(done, len(numbers))


def _get(site: str, number: int) -> str:
    """Fetch one text; empty if the site does not have the problem."""
    address = f"{site}/minimal={number}"
    request = urllib.request.Request(address, headers={"User-Agent": _AGENT})
    again = "texts fetched so far are kept: run the command again later"
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            data = response.read(_MAX_BYTES + 1)
            told = response.headers.get("Content-Length")
    except urllib.error.HTTPError as error:
        raise SourceError(f"{address} answered {error.code} {error.reason}; {again}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = " ".join(str(error).split())
        raise SourceError(f"cannot reach {address} ({reason}); {again}") from error
    if told and len(data) <= _MAX_BYTES and told.strip() != str(len(data)):
        raise SourceError(f"{address} was cut off: {len(data)} of {told} bytes came; {again}")
    try:
        text = bytes(data).decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise SourceError(f"{address} is not UTF-8 at byte {error.start}; {again}") from error
    if text == _NO_SUCH_PROBLEM:
        return ""
    if not text or len(data) > _MAX_BYTES or "<html" in text.lower():
        raise SourceError(f"{address} gave no problem text but another page; {again}")
    return text


def _write_whole(path: Path, text: str) -> None:
    """Write a file under another name first, so that a kill leaves no half of it."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise SourceError(f"cannot write {path}: {error.strerror}; check the space") from error


# --- HTML ----------------------------------------------------------------------------------

_PARAGRAPH = re.compile("blockquote|center|div|dl|h[1-4]|ol|p|pre|table|ul")
_INLINE = re.compile(
    "a|abbr|b|big|br|caption|cite|code|col|colgroup|dd|del|dfn|dt|em|font|hr|i|img|ins|kbd|li|mark|"
    "nobr|q|s|samp|script|small|span|strong|style|su[bp]|t(?:body|d|foot|h|head|r|t)|u|var|wbr"
)
_MARKS = {"br": "\n", "tr": "\n", "td": "  ", "th": "  ", "li": "\n- ", "sup": "^{", "sub": "_{"}
_CLOSED = {"sup": "}", "sub": "}"}


class _Page(HTMLParser):
    """The text of a piece of HTML; formulas in ``$…$`` stay as they are."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.needs_file = False
        self.unknown_tag = ""
        self._parts: list[str] = []
        self._hidden = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if not _PARAGRAPH.fullmatch(tag) and not _INLINE.fullmatch(tag):
            self.unknown_tag = tag
        if tag in ("script", "style"):
            self._hidden += 1
        elif tag == "img":
            self._parts.append(" [figure] ")
        elif tag == "a" and "resources/" in (dict(attributes).get("href") or ""):
            self.needs_file = True
        else:
            self._parts.append("\n\n" if _PARAGRAPH.fullmatch(tag) else _MARKS.get(tag, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._hidden -= 1
        else:
            self._parts.append("\n\n" if _PARAGRAPH.fullmatch(tag) else _CLOSED.get(tag, ""))

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._parts.append(re.sub(r"\s+", " ", data))

    def text(self) -> str:
        """Paragraphs with one blank line between them."""
        lines = "\n".join(line.strip() for line in "".join(self._parts).split("\n"))
        return re.sub(r"\n{3,}", "\n\n", lines).strip()
