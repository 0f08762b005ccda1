"""Project Euler: texts fetched politely and once, joined with answers by number."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from aiohttp import web

from rstar2.problems.data.euler import fetch_euler, read_answers
from rstar2.problems.data.formats import SourceError
from rstar2.problems.data.sources import read

FIXTURES = Path(__file__).parents[1] / "data" / "sources"
ANSWERS = FIXTURES / "euler_answers.md"
PAGE = (FIXTURES / "euler_page.html").read_text()


@dataclass
class Site:
    """A site with a text for each number, and what it was asked."""

    address: str = ""
    texts: dict[int, str] = field(default_factory=dict)
    status: int = 200
    cut: Literal["", "length", "chunks", "status line"] = ""
    asked: list[int] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)

    async def answer(self, request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        self.asked.append(number)
        self.agents.add(request.headers["User-Agent"])
        if self.status != 200:
            return web.Response(status=self.status)
        text = self.texts.get(number, "Data for that problem cannot be found")
        if self.cut and number == 3:
            return self.broken_off(request, text)
        return web.Response(body=text.encode("utf-8", "surrogateescape"))

    def broken_off(self, request: web.Request, text: str) -> web.Response:
        """Send the first half of an answer and close the connection."""
        half = text[: len(text) // 2].encode()
        start = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
        data = {
            "length": start + b"Content-Length: %d\r\n\r\n" % len(text) + half,
            "chunks": start + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(text) + half,
            "status line": b"hello\r\n\r\n",
        }
        assert request.transport
        request.transport.write(data[self.cut])
        request.transport.close()
        return web.Response()


@pytest.fixture
def site() -> Iterator[Site]:
    """A server on this machine, in a thread of its own."""
    served = Site()
    app = web.Application()
    app.router.add_get("/minimal={number}", served.answer)
    ready = threading.Event()
    loop = asyncio.new_event_loop()

    async def start() -> web.AppRunner:
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        served.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    def serve() -> None:
        runner = loop.run_until_complete(start())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(10)
    yield served
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def test_answers_are_joined_with_texts_and_the_rest_is_named(tmp_path: Path) -> None:
    (tmp_path / "0001.html").write_text(PAGE)
    (tmp_path / "3.txt").write_text("<p>How cold is it?</p>")
    (tmp_path / "0004.html").write_text("<p>Its answer is a list.</p>")
    linked = '<p>Using <a href="resources/documents/0007_x.txt?1">x.txt</a>, count.</p>'
    (tmp_path / "0007.html").write_text(linked)
    (tmp_path / "README").write_text("not a problem")
    joined = fetch_euler(ANSWERS, tmp_path)
    assert [(p.number, p.answer) for p in joined.problems] == [(1, "21"), (3, "-8")]
    assert joined.not_integer == (2, 4)
    assert joined.without_text == (5,)
    assert joined.needs_file == (7,)
    assert joined.unreadable == ()


def test_the_joined_file_is_a_source(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "0003.html").write_text("<p>Wie kalt ist es? −8 °C</p>", encoding="utf-8")
    path = tmp_path / "euler.jsonl"
    path.write_bytes(fetch_euler(ANSWERS, tmp_path / "texts").json_lines())
    loaded = read(str(path))
    assert [(row.name, row.question, row.gold) for row in loaded.rows] == [
        ("euler/3", "Wie kalt ist es? −8 °C", "-8")
    ]
    assert "CC BY-NC-SA 4.0" in loaded.report.licence


def test_html_becomes_text_and_formulas_stay(tmp_path: Path) -> None:
    (tmp_path / "1.html").write_text(PAGE)
    (problem,) = fetch_euler(ANSWERS, tmp_path).problems
    assert problem.question == (
        "Let $f(n)$ be the sum of the divisors of $n$, so $f(6) = 12$ & $f(2^{3}) = 15$.\n\n"
        "For example:\n\n"
        "- one has a_{1} = 2^{10},\n"
        "- two has none.\n\n"
        "1  2\n3  4\n\n"
        "[figure]\n\n"
        "Find $f(20)$\nfor all of it; see Problem 3."
    )


def test_a_bare_less_than_sign_is_not_swallowed(tmp_path: Path) -> None:
    (tmp_path / "1.html").write_text("<p>Let $1<n<10$ and <b>so on</b>.</p>")
    joined = fetch_euler(ANSWERS, tmp_path)
    assert (joined.problems, joined.unreadable) == ((), (1,))


def test_downloads_only_what_is_missing_and_has_an_integer_answer(
    tmp_path: Path, site: Site
) -> None:
    site.texts = {n: f"<p>Question {n}?</p>" for n in (1, 2, 3, 4, 5, 7)}
    (tmp_path / "5.html").write_text("<p>Mine.</p>")
    seen: list[tuple[int, int]] = []
    joined = fetch_euler(
        ANSWERS,
        tmp_path,
        download=True,
        site=site.address,
        pause=0,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert site.asked == [1, 3, 7]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [p.question for p in joined.problems] == [
        "Question 1?",
        "Question 3?",
        "Mine.",
        "Question 7?",
    ]
    assert all(agent.startswith("rstar2") for agent in site.agents)


def test_a_second_run_asks_for_nothing(tmp_path: Path, site: Site) -> None:
    site.texts = {n: f"<p>Question {n}?</p>" for n in (1, 3, 5, 7)}
    first = fetch_euler(ANSWERS, tmp_path, download=True, site=site.address, pause=0)
    site.asked.clear()
    assert fetch_euler(ANSWERS, tmp_path, download=True, site=site.address, pause=0) == first
    assert site.asked == []


def test_it_waits_between_requests(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("rstar2.problems.data.euler.time.sleep", waits.append)
    site.texts = dict.fromkeys((1, 3, 5, 7), "<p>Why?</p>")
    fetch_euler(ANSWERS, tmp_path, download=True, site=site.address)
    assert waits == [1.0, 1.0, 1.0]


def test_a_problem_that_the_site_does_not_have_is_named(tmp_path: Path, site: Site) -> None:
    site.texts = dict.fromkeys((1, 3, 7), "<p>Why?</p>")
    joined = fetch_euler(ANSWERS, tmp_path, download=True, site=site.address, pause=0)
    assert joined.without_text == (5,)
    assert not (tmp_path / "0005.html").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<!DOCTYPE html><HTML><body>Sign in</body></HTML>", "another page"),
        ("  ", "another page"),
        ("a" * (2**20 + 1), "another page"),
        ("<p>caf\udce9</p>", "not UTF-8"),
    ],
)
def test_another_page_than_a_text_is_not_kept(
    tmp_path: Path, site: Site, text: str, words: str
) -> None:
    site.texts = {1: "<p>Why?</p>", 3: text}
    with pytest.raises(SourceError, match=words):
        fetch_euler(ANSWERS, tmp_path, download=True, site=site.address, pause=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0001.html"]


def test_a_site_that_refuses_is_not_asked_again(tmp_path: Path, site: Site) -> None:
    site.status = 429
    with pytest.raises(SourceError, match=r"answered 429 .* run the command again later"):
        fetch_euler(ANSWERS, tmp_path, download=True, site=site.address, pause=0)
    assert site.asked == [1]


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        ("length", r"minimal=3 was cut off: 10 of 20 bytes came; .* run the command again"),
        ("chunks", r"cannot reach .*minimal=3 .* run the command again"),
        ("status line", r"cannot reach .*minimal=3 .* run the command again"),
    ],
)
def test_half_of_a_text_is_not_kept(
    tmp_path: Path, site: Site, cut: Literal["length", "chunks", "status line"], words: str
) -> None:
    site.texts = dict.fromkeys((1, 3, 5, 7), "<p>Why is it so?</p>")
    site.cut = cut
    with pytest.raises(SourceError, match=words):
        fetch_euler(ANSWERS, tmp_path, download=True, site=site.address, pause=0)
    assert [path.name for path in tmp_path.iterdir()] == ["0001.html"]
    site.cut = ""
    again = fetch_euler(ANSWERS, tmp_path, download=True, site=site.address, pause=0)
    assert {problem.question for problem in again.problems} == {"Why is it so?"}


def test_without_a_network_the_message_says_so(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot reach http://127\.0\.0\.1:9/minimal=1"):
        fetch_euler(ANSWERS, tmp_path, download=True, site="http://127.0.0.1:9")


def test_answers_of_a_list_and_of_csv(tmp_path: Path) -> None:
    listed = read_answers(ANSWERS)
    assert listed == {1: "21", 2: "0.4375", 3: "-8", 4: "1,13717420,8", 5: "99", 7: "12"}
    path = tmp_path / "answers.csv"
    path.write_bytes(b'\xef\xbb\xbfnumber,answer\r\n1,21\r\n4,"1,13717420,8"\r\n6,\r\n')
    assert read_answers(path) == {1: "21", 4: "1,13717420,8"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no answers"),
        (b"# Answers\n\nnone yet\n", "no answers"),
        (b"1. 21\n2. 3\n1. 22\n", "problem 1 has two answers"),
        (b"1. 2\xff\n", "not UTF-8 at byte 4"),
    ],
)
def test_a_list_without_use_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "answers.md"
    path.write_bytes(data)
    with pytest.raises(SourceError, match=words):
        read_answers(path)


def test_missing_places_and_two_texts_for_a_problem_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot read .*none\.md"):
        read_answers(tmp_path / "none.md")
    with pytest.raises(SourceError, match=r"cannot read .*none: No such file"):
        fetch_euler(ANSWERS, tmp_path / "none")
    (tmp_path / "1.txt").write_text("a")
    (tmp_path / "001.html").write_text("b")
    with pytest.raises(SourceError, match=r"001\.html and 1\.txt are the same problem"):
        fetch_euler(ANSWERS, tmp_path)
