"""Which texts denote one integer, and which do not."""

import pytest

from rstar2.grading import parse_integer

FORTY_TWO = [
    # Layout round the number.
    *["42", " 42 ", "\n42\n", "42.", "42 .", "42\\\\", r"\, 42", r"42\quad", r"\hspace{1cm}42"],
    *["{42}", "{}42", "{{{42}}}", "4{2}", "(42)", "((42))", r"\left(42\right)", r"\bigl(42\bigr)"],
    *[
        "$42$",
        "$42.$",
        "$42$.",
        "$$42$$",
        r"\(42\)",
        r"\[42\]",
        "**42**",
        r"\boxed{42}",
        r"\fbox{42}",
    ],
    *[r"\text{42}", r"\text{ 42 }", r"\mathbf{42}", r"\mathbf 42", r"{\bf 42}", r"\bm{42}"],
    *[r"\displaystyle 42", r"\displaystyle{42}", r"\Large{42}", r"\underline{42}", r"\emph{42}"],
    *[r"\textcolor{red}{42}", r"\color{red}42", r"{\color{red}42}", r"\mathrm{\mathbf{42}}"],
    *[r"\textbf{(B)} 42", r"\textbf{(B) }42", r"\textbf{(B)}\ 42", "(B) 42", r"\mathrm{(B)\ }42"],
    # Signs and zeros.
    *["+42", "042", "0042.0", "42.000", "-(-42)", r"\frac{-84}{-2}"],
    # Unicode.
    *["４２", "٤٢", "۴۲", "४२", "𝟒𝟐", "4２", "4\u200b2", "\ufeff42", "\u200f42", "\u202a42\u202c"],
    *["\u206642\u2069", "42\u3000", "\u00a042", "42。", "４２．", "x＝42", "42％", "42٪"],
    # Units.
    *["42%", r"42\%", r"42\,\%", r"\text{42\%}", r"42\text{ percent}", "42°", "42º", "42℃"],
    *[r"42^\circ", r"42^{\circ}", r"42\degree", r"42^\circ\text{C}", r"42\text{ degrees}"],
    *["$42", r"\$42", r"\$ 42", r"\$42.00", r"42\$", "€42", "42€", "42¢", "＄42", "42 dollars"],
    *["42 cm", "42cm", "42 cm²", r"42\text{ cm}^2", r"42\ \mathrm{cm}^{2}", r"\mathrm{42~cm}"],
    *[r"42\text{ km/h}", r"42\text{ m}", r"42\text{ m/s}^2", r"42\operatorname{cm}", "42 USD"],
    *["42 ways", r"42\text{ways}", r"\text{42 ways}", r"42\text{ times}", "42 apples", "42元"],
    *[r"42\text{ sq. units}", r"42\text{ miles per hour}", "42 个", r"42\text{个}"],
    *["42_{10}", "42₁₀", r"42_{\text{ten}}", r"42\pmod{100}", r"42 \mod 100", "42 (mod 100)"],
    *[r"42\text{ square units}", r"42\text{ units of area}", r"42\text{ man-hours}", "42 dogs"],
    *[
        r"42\text{ ordered pairs}",
        r"42\text{ distinct real solutions}",
        r"42\text{ in total}",
        r"42\text{ years old}",
    ],
    *[rf"42\text{{ {noun}}}" for noun in ("people", "dice", "months", "paths", "deaths", "births")],
    *[r"42\text{ per cent}", r"42\text{ A}", r"42\text{ K}", r"42\ \Omega", r"42\,\mu m", "42 μm"],
    *[r"42\text{ N}\cdot\text{m}", r"42\text{ kg m/s}^2", r"42\text{ degrees Celsius}"],
    *[r"\text{USD }42", "USD 42", r"\text{Rs. }42", r"US\$42", r"42\text{ US dollars}"],
    # Styles and delimiters that show nothing.
    *[r"\textcolor[rgb]{1,0,0}{42}", r"\color[rgb]{1,0,0}42", r"\pmb{42}", r"\textsl{42}"],
    *[r"\footnotesize 42", r"\scriptsize 42", r"\left. 42\right.", r"\left.42\right."],
    # Work that is done.
    *[r"\frac{84}{2}", r"\dfrac{84}{2}", r"\frac{84} {2}", r"\frac{84}2", "84/2", r"84\div 2"],
    *["84÷2", "84⁄2", r"\frac{8.4}{0.2}", r"\frac{\frac{168}{2}}{2}", r"6\cdot7", r"6 \times 7"],
    *["6*7", "6×7", "6⋅7", "6∙7", "6✕7", r"2\cdot(21)", r"6\cdot7\text{ ways}", "42^1"],
    *[r"4.2\times 10^{1}", r"4.2\cdot 10", r"420\cdot10^{-1}", r".42\times10^2", "42*1", "42/1"],
    # Equations.
    *[r"$\textbf{(B)}\ 42$", r"$\mathrm{(C)}~42$"],
    *["x=42", "=42", "x = y = 42", "m+n=42", "m + n + p = 42.", "f(3)=42", "f(2,3)=42", "f'(3)=42"],
    *["a_1=42", "x₁=42", "S_{100}=42", r"P(-1)=42", "m-n=42", "xy=42", r"x\cdot y=42", "$x=42$"],
    *[r"\lambda = 42", r"\ell=42", r"\angle ABC = 42^{\circ}", r"\overline{AB}=42", r"\hat{x}=42"],
    *["[ABC]=42", r"[\triangle ABC]=42", r"\#S=42", r"\text{Area}=42\text{ cm}^2", "Answer = 42"],
    *[r"x\equiv 42\pmod{100}", r"6\cdot7=42", "20+22=42", "m+n=25+17=42", r"\frac{84}{2}=42"],
    *["x_1=42", "x_1+x_2=42", "f(3)+f(4)=42", "P(A)=42", "P(x+1)=42", "a_{10}(3)=42", "AA'=42"],
    *["f(f(1))=42", "f(f(f(1)))=42", "f(g(3))=42", r"f(2^{10})=42", r"x_{\text{max}}=42"],
    *["|S|=42", r"\left|S\right|=42", r"\lvert S\rvert=42", "|AB|=42", "|A|+|B|=42"],
    *[r"\alpha+\beta=42", r"\text{Answer}=42", "area=42", r"\text{Area of a side of a cube}=42"],
    *[r"x=\boxed{42}", r"42 = 6 \cdot 7", "42=42.0"],
]


@pytest.mark.parametrize("text", FORTY_TWO)
def test_reads_forty_two(text: str) -> None:
    assert parse_integer(text) == 42


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("0", 0), ("-0", 0), ("+0", 0), ("00", 0), (".0", 0), ("0/5", 0), ("2^0", 1)],
        *[(f"{dash}42", -42) for dash in "-−–—‐‑﹣－"],
        *[("- 42", -42), (r"-\,42", -42), ("{-}42", -42), ("-{42}", -42), ("(-42)", -42)],
        *[(r"\text{-42}", -42), (r"\textbf{-42}", -42), (r"-\$42", -42), (r"\$-42", -42)],
        *[("x = −42", -42), (r"-\frac{84}{2}", -42), (r"\frac{84}{-2}", -42), ("-42%", -42)],
        # Groups of three.
        *[("1,234", 1234), ("1{,}234", 1234), (r"1,\!234", 1234), (r"1\!,\!234", 1234)],
        *[(f"1{space}234", 1234) for space in (" ", "~", r"\,", r"\ ", r"\;", r"{\,}", "  ")],
        *[(f"1{space}234", 1234) for space in "\u00a0\u2008\u2009\u202f\u3000"],
        *[("１，２３４", 1234), ("1٬234", 1234), (r"1\text{,}234", 1234), ("$1{,}234$", 1234)],
        *[("1,234.00", 1234), ("-1,234", -1234), (r"\$1,234", 1234), ("1,234,567", 1234567)],
        *[("1\u2009234\u2009567", 1234567), ("100,000", 100_000), ("12 345", 12345)],
        # Powers.
        *[("2^{10}", 1024), ("2^10", 1024), ("2¹⁰", 1024), ("2^{3^2}", 512), ("10⁶", 10**6)],
        *[("-2^2", -4), ("(-2)^2", 4), ("(-2)^3", -8), (r"(-1)^{2024}", 1), ("10^{100}", 10**100)],
        *[(r"2^3\cdot3^2", 72), (r"\frac{2^{3}\cdot 3}{6}", 4), (r"\frac84", 2), ("2^3=8", 8)],
        # Number words and bases.
        *[(r"100\text{ million}", 10**8), (r"\$1.5\text{ million}", 1_500_000)],
        *[("2 thousand", 2000), (r"42\text{ quadrillion}", 42 * 10**15)],
        *[("101_{2}", 101), (r"(101)_{\text{two}}", 101), (r"101_\text{two}", 101)],
    ],
)
def test_reads(text: str, value: int) -> None:
    assert parse_integer(text) == value


NO_UNITS = [
    # Multiples and parts.
    *[
        "tens",
        "ones",
        "dozens",
        "scores",
        "hundreds",
        "myriad",
        "lakhs",
        "twice",
        "halves",
        "thirds",
    ],
    *["twelfths", "fifteenths", "twentieths", "hundredths", "millionths", "root", "square", "log"],
    # Not this value, or not sure.
    *["never", "always", "rejected", "is too small", "upper bound", "onwards", "likely", "guess"],
    *["inverse", "octal", "in base seven", "odd", "exceeds", "cm or m"],
    # Words that end like a plural, and phrases without their noun.
    *[
        "thus",
        "this",
        "perhaps",
        "yes",
        "plus",
        "minus",
        "as",
        "its",
        "per",
        "units of",
        "different",
    ],
]
NO_NAMES = [
    "half of x",
    "square of x",
    "at least",
    "AT MOST",
    "Not",
    "Twice x",
    "two x",
    "square root",
]

UNREADABLE = [
    # Nothing, or no digits.
    *[
        "",
        " ",
        r"\text{}",
        "x",
        "forty-two",
        r"\text{forty two}",
        "XLII",
        "Ⅷ",
        "四十二",
        "...",
        "?",
    ],
    *[r"\infty", r"\emptyset", "B", "(B)", r"\text{No solution}", "None", r"\ldots", r"\pi"],
    # C5: separators that do not make groups of three.
    *["4 2", "12,34", "0,123", "01,234", "1,23,456", "12,34,567", "1,2345", "1000,000", "1234,567"],
    *["1,234 567", "1 2345", "1234 567", "0 042", "1.234.567", "1.234,00", "1, 234", r"1,\,234"],
    *["1'234", "1’234", "1_234", "1、234", "12٬34", "1,234.5", "42,", "42;", "1\u2063234"],
    # C5: two numbers, however far apart.
    *["1\n234", r"1\quad 234", r"1\hspace{2pt}234", r"1\\234", r"4\\2", r"4\,2", "42 & 43"],
    # C6: near is not equal.
    *["42.4", "41.9999999", "42." + "0" * 60 + "1", "0.42", ".5", "4.2", "42½", "½", "42..0"],
    *[r"\frac{85}{2}", r"\frac{85}{2}=42", r"\frac{1}{2^{99}}", "2^{-1}", r"5\div 2"],
    # C7: more than one value, or another kind of thing.
    *[r"\{42\}", r"\left\{42\right\}", "[42]", r"\langle 42\rangle", "(40,42)", "(42, 43)"],
    *["[40,44]", "40-44", "40–44", "40--44", "1,2,3", "42;43", "42|43", r"42\text{ and }43"],
    *[r"\pm 42", "±42", r"\mp 42", "42 or 43", r"42\text{ or }43", r"42\lor 43", "42 vs 43"],
    *[r"42\text{ or more}", r"\text{about }42", r"42\text{ at most}", r"42\text{ish}"],
    *["x=42,y=1", "x=42, y=42", r"x=42\text{ or }x=43", "|x|=42", "[x]=42", "42+", "42?"],
    *["x>42", "41 < x < 43", r"\ge 42", r"x\ne 42", r"\approx 42", r"42\approx 42", r"42\neq 43"],
    *["12:00", "3:4", r"7\text{ pm}", r"6\text{ hours }30\text{ minutes}", "42°30'", "42'"],
    *[r"42\text{ ft }6\text{ in}", r"41\frac{1}{2}", r"41\frac12", r"2\frac{84}{2}", "42 R 3"],
    *[r"42\pi", r"42\text{ pi}", r"42\theta", "42i", "42!", r"42\text{i}", "42e", "42x", "42xy"],
    *["42 m", "42nd", r"42^{\text{nd}}", r"42\text{th}", r"42\text{ dozen}", r"42\text{ fifths}"],
    *[r"42\text{ bn}", "42k", "42M", r"42\text{ squared}", "42 (forty-two)", "42^{*}", "42 + C"],
    *[r"\text{2A}", "2A_{16}", "0x2A", "0b101010", "1e3", "4.2E1", r"\text{minus }42", "⁴²", "₄₂"],
    *["--42", "+-42", "−−42", r"\text{--}42", "(-)42", r"2\cdot-21", "\u202e24\u202c", "4\u03362"],
    # C7: what only looks like a unit.
    *[rf"42\text{{ {word}}}" for word in NO_UNITS],
    *[
        r"42\mathrm{xy}",
        "42 xxxx",
        "42 abcs",
        r"42_{\text{cm}}",
        r"42_{\text{octal}}",
        r"42\text{A}",
    ],
    # What only looks like a layout: it hides, repeats, or joins.
    *[r"\phantom{42}", r"4\phantom{1}2", r"\cancel{41}42", r"\boxed{4}\boxed{2}", r"\boxed{4}2"],
    *[r"\overline{42}", r"41.\overline{9}", r"\hat{42}", r"\#42", r"\frac842", r"\frac{84}{2}1"],
    *[r"\begin{array}{c}42\end{array}", r"\tag{1}42", r"\not 42", r"\def\x{42}\x", "&#52;2"],
    # C8: work left for the grader.
    *["40+2", "50-8", "42+0", "m+n=20+22", r"\sum_{k=1}^{9}k", r"\int_0^{42}1dx", "6(7)", "(6)(7)"],
    *[r"\gcd(84,126)", r"\text{gcd}(84,126)", r"\operatorname{lcm}(6,7)", r"\max(41,42)", "f(42)"],
    *[r"142\bmod 100", "142 mod 100", "142%100", r"\sqrt{1764}", r"\sqrt[3]{8}", r"\binom{7}{2}"],
    *["|-42|", "|42|", r"\lfloor 42.5\rfloor", r"\log_2 8", "4^{1/2}", "7!", r"\frac{8!}{960}"],
    *["2**5", "84//2", "sum(range(9))", "int('42')", 'int("42")', "10^{2+1}", "1^{99999}"],
    # Equations that are false, or that give the unknown another value.
    *["42=43", "40+3=42", "42=x", "2x=42", "½x=42", "Ⅱx=42", "x/2=42", "-x=42", "100m+n=42"],
    *["3x+4y+14=0", "x^2=49", r"\sqrt{x}=42", "x=", "==42", "x=42=43", "=42=43", r"0.42=42\%"],
    *[r"42\text{ cm}=420\text{ mm}", r"\gcd(84,126)=42", r"\stackrel{?}{=}42", "x:=42"],
    # Names that hide work, bound, or deny.
    *["n(n+1)=42", "nf(n)=42", "x(x)=42", "x+x=42", "x-x=42", "x*x=42", "xx=42", r"\mathrm{xx}=42"],
    *[
        "x+x_1+x=42",
        "f(3)+f(3)=42",
        r"\alpha+\alpha=42",
        r"\text{x}+x=42",
        r"x\frac12=42",
        "(x)=42",
    ],
    *["ln x=42", "lnx=42", r"\text{ln }x=42", "sqrt(x)=42", "abs(x)=42", "sin(x)=42", "a(b)(c)=42"],
    *["|x+y|=42", "|A|+|A|=42", "2|A|=42", "|AB=42", "|A|B|=42", "x+=42", "f((x))=42"],
    *[rf"\text{{{words}}}=42" for words in NO_NAMES],
    *[r"x\text{ OR }y=42", r"x\text{ Or }y=42", r"\text{area}+\text{area}=42"],
    # No number at all, or no end.
    *[r"\frac{42}{0}", "0/0", "0^0", "0^{-1}", "42^", "^42", "_2", "42*", "*42", "42/", "(", "()"],
    *["(42", "42)", "{", "}", "\\", r"\frac", r"\frac{84}", r"\frac{}{}", "{42", "42}", "$", "]42"],
    *["42\x00", "4\x002", "42\ud800", "<b>42</b>", "`42`"],
]


@pytest.mark.parametrize("text", UNREADABLE)
def test_does_not_read(text: str) -> None:
    assert parse_integer(text) is None
