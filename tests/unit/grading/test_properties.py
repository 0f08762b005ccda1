"""What holds for every integer, every style and every text."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from rstar2.grading import Reason, Verdict, grade
from rstar2.grading.answer import model_text


def answer(body: str) -> str:
    return rf"<answer>\boxed{{{body}}}</answer>"


# --- any integer, any style ----------------------------------------------------------------


def grouped(separator: str) -> Callable[[str], str]:
    return lambda digits: f"{int(digits):,}".replace(",", separator)


def in_digits(figures: str) -> Callable[[str], str]:
    return lambda digits: digits.translate(str.maketrans("0123456789", figures))


def times(factor: int, layout: str) -> Callable[[str], str]:
    return lambda digits: layout.format(int(digits) * factor, factor)


MINUS = ["-", "- ", "−", "–", "－", "{-}", r"-\,"]
PLUS = ["", "+", "＋"]
FIGURES = [
    *[
        str,
        lambda digits: "00" + digits,
        in_digits("０１２３４５６７８９"),
        in_digits("٠١٢٣٤٥٦٧٨٩"),
    ],
    *[
        grouped(mark)
        for mark in (",", "{,}", r",\!", r"\,", " ", "~", "\u00a0", "\u202f", "\u2009")
    ],
    *[times(2, r"\frac{{{}}}{{{}}}"), times(7, r"\dfrac {{{}}} {{{}}}"), times(3, "{}/{}")],
    *[times(1, r"{} \cdot {}"), times(10, r"{}\times{}^{{-1}}"), times(4, r"{} \div {}")],
]
"""Ways to write the digits of a number that is not negative."""
DECIMALS = ["", "", ".0", ".000"]
WRAPPERS = [
    *["{}", "{{{}}}", " {} ", "\n{}\n", "\u200b{}", r"\left({}\right)", r"\textbf{{{}}}"],
    *[r"\text{{{}}}", r"\mathbf{{{}}}", r"\displaystyle {}", r"\textcolor{{red}}{{{}}}", "({})"],
    *[r"\textcolor[rgb]{{1,0,0}}{{{}}}", r"\pmb{{{}}}", r"\textsl{{{}}}", r"\footnotesize {}"],
    *[r"\left. {}\right."],
]
PREFIXES = [
    *["", "", r"\$", r"\textbf{(B)} ", "x=", "x = y = ", "m+n=", "f(3) = ", "a_{10}=", "[ABC]="],
    *[r"\angle A = ", r"x\equiv ", "=", r"\text{Area} = ", "|S|=", "f(f(1))=", r"\alpha+\beta="],
]
SUFFIXES = [
    *[
        "",
        "",
        ".",
        r"\%",
        r"^\circ",
        "°",
        "_{10}",
        r"\text{ cm}",
        r"\,\mathrm{cm}^2",
        r"\text{ ways}",
    ],
    *[" apples", r"\text{ dollars}", r" \pmod{1000}", "\u00a0%"],
]
DELIMITERS = ["{}", "{}", "${}$", r"\({}\)", "{{{}}}", " {} "]


@st.composite
def written(draw: st.DrawFn, number: int) -> str:
    """A number in a style made of a sign, figures, wrappers, a prefix, a suffix, delimiters."""

    def pick(styles: list[str]) -> str:
        return draw(st.sampled_from(styles))

    figures = draw(st.sampled_from(FIGURES))(str(abs(number)))
    if figures.replace(",", "").isdecimal():
        figures += pick(DECIMALS)
    text = pick(MINUS if number < 0 else PLUS) + figures
    for _ in range(draw(st.integers(0, 3))):
        text = pick(WRAPPERS).format(text)
    return pick(DELIMITERS).format(pick(PREFIXES) + text + pick(SUFFIXES))


INTEGERS = st.integers(-10_000, 10_000) | st.integers() | st.integers(-(10**60), 10**60)


def neighbours(number: int) -> set[int]:
    """Other integers that a careless grader takes for the number."""
    digits = str(abs(number))
    near = {number + 1, number - 1, -number, number * 10, number // 10, int(digits[::-1])}
    return {*near, int(digits[-1] + digits[1:-1] + digits[0]), number % 10} - {number}


@settings(max_examples=400, deadline=None)
@given(st.data(), INTEGERS)
def test_any_integer_passes_in_every_style_and_its_neighbours_fail(
    data: st.DataObject, number: int
) -> None:
    response = f"<reason>Easy.</reason>{answer(data.draw(written(number)))}"
    assert grade(response, number) == Verdict(True, number, Reason.CORRECT)
    assert grade(response, str(number)).correct
    for neighbour in neighbours(number):
        assert grade(response, neighbour) == Verdict(False, number, Reason.MISMATCH)


HEDGES = [
    *["{} or {}", r"{} \text{{ or }} {}", r"{} \text{{ and }} {}", "{}, {}", r"\{{{}, {}\}}"],
    *["({}, {})", "[{}, {}]", "{};{}", "{}:{}", "{} < x < {}", "{}={}", r"{} \lor {}", r"{}\\{}"],
    *["x={}, y={}", "{}..{}", r"{}\text{{ to }}{}", r"{}\quad {}", "{}\n{}", r"{}\pm {}", "{}|{}"],
    *[r"{}}} \boxed{{{}", r"{}}} or \fbox{{{}", r"{}}}</answer><answer>\boxed{{{}"],
    *[
        r"{}}}</answer><answer>\boxed{{{}}}</answer><answer>\boxed{{...",
        r"\boxed{{{}}}\boxed{{{}}}",
    ],
]


@settings(max_examples=300, deadline=None)
@given(st.data(), INTEGERS, INTEGERS, st.sampled_from(HEDGES))
def test_two_integers_never_pay_for_either(
    data: st.DataObject, first: int, second: int, hedge: str
) -> None:
    if first == second:
        second += 1
    response = answer(hedge.format(data.draw(written(first)), data.draw(written(second))))
    assert not grade(response, first).correct
    assert not grade(response, second).correct


# --- any text ------------------------------------------------------------------------------


FRAGMENTS = [
    *[r"\boxed{", r"\fbox{", "{", "}", "<answer>", "</answer>", "<tool_response>"],
    *["</tool_response>", "<tool_call>", "</tool_call>", "\\", r"\frac", r"\text{", r"\pmod", "^"],
    *[
        "_",
        "(",
        ")",
        "[",
        "]",
        "=",
        ",",
        ".",
        "-",
        "*",
        "/",
        "42",
        "7",
        "1,234",
        " ",
        "\n",
        "$",
        "%",
    ],
    *["°", "x", '"', "@", "~", "²", "₂", "½", "Ⅷ", "\ud800", "\x00", "\u202e", "or", "million"],
    *[r"\quad", r"\hspace{1em}", r"\color{red}", r"\overline", r"\#", r"\\", r"\div", "(B)", "cm"],
]
SOUP = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=40).map("".join)
SURROGATES = st.text(st.characters(exclude_categories=()), max_size=40)


@settings(max_examples=500, deadline=None)
@given(SOUP | SURROGATES)
def test_no_text_raises(text: str) -> None:
    for response in (text, answer(text)):
        verdict = grade(response, 42)
        assert verdict.correct == (verdict.reason is Reason.CORRECT)
        assert verdict.correct == (verdict.value == 42)
        assert verdict.box in model_text(response)
        assert repr(verdict)


@given(st.binary(max_size=200))
def test_no_bytes_raise(raw: bytes) -> None:
    for text in (raw.decode("latin-1"), raw.decode("utf-8", "surrogateescape")):
        assert isinstance(grade(text, 42), Verdict)
        assert isinstance(grade(answer(text), 42), Verdict)


def without_spans(text: str) -> str:
    return text.replace("tool_response", "")


@settings(max_examples=400, deadline=None)
@given(SOUP.map(without_spans), SOUP, st.sampled_from(["", answer("42"), answer("41"), "<answer>"]))
def test_tool_output_before_or_after_never_changes_the_verdict(
    noise: str, printed: str, said: str
) -> None:
    span = f"<tool_response>{printed}{answer('42')}{printed}</tool_response>"
    for text in (noise + said, said + noise):
        alone = grade(text, 42)
        assert grade(text + span, 42) == alone
        assert grade(span + text, 42) == alone
