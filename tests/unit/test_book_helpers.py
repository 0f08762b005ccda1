"""What the chapters draw with."""

import base64
import json
import math
import re
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from rstar2.book import style
from rstar2.book.build import BookBuildError, build_book
from rstar2.book.exercise import Case, Exercise, solutions
from rstar2.book.explore import explore_bundle, live_bundle
from rstar2.book.figure import figure, figure_bundle
from rstar2.book.page import legend_above, source
from rstar2.book.provenance import Source, duration, provenance_line, provenance_summary
from rstar2.book.rendered import show_table
from rstar2.book.trajectory_view import show_tokens, show_trajectory
from rstar2.experiments.report import Record
from rstar2.protocol.types import CallStatus, StopReason, ToolCall, Trajectory, Turn

RUN = {
    "id": "ab12cd34ef",
    "arm": "grpo-roc",
    "preset": "laptop",
    "seed": 3,
    "commit": "0123456789abcdef",
    "dirty": False,
    "hardware": {"cpu": "EPYC", "cores": 2, "memory_gib": 7.8},
    "wall_seconds": 754.0,
    "started": "2026-02-03T04:05:06+00:00",
    "label": "laptop run",
}


@pytest.fixture(autouse=True)
def _book_style():
    with mpl.rc_context():
        mpl.use("Agg")
        style.use()
        yield
    plt.close("all")


def drawn(value: float = 1.0):
    fig, ax = plt.subplots()
    ax.plot([0, 1], [0, value], label="a & b")
    ax.set_xlabel("step")
    ax.legend()
    return fig


# Style


def test_the_two_arms_differ_in_colour_line_and_marker():
    roc, grpo = style.arm_style("grpo-roc"), style.arm_style("grpo")
    assert all(roc.line()[key] != grpo.line()[key] for key in roc.line())


def test_an_unknown_arm_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'ppo'.*grpo, grpo-2g, grpo-roc"):
        style.arm_style("ppo")


@pytest.mark.parametrize("color", style.PALETTE)
@pytest.mark.parametrize("ground", ["#ffffff", "#121212"])
def test_every_colour_of_the_palette_stands_out_on_light_and_dark(color, ground):
    def luminance(name):
        channels = np.array(mpl.colors.to_rgb(name))
        linear = np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        )
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted([luminance(color), luminance(ground)])
    assert (high + 0.05) / (low + 0.05) >= 3


# Provenance


def test_a_run_of_a_sweep_goes_by_its_name_there():
    run = {**RUN, "arm": "grpo", "sweep_arm": "collapse"}
    assert "· arm collapse ·" in provenance_line(run)
    assert "· collapse ·" in provenance_summary([run, {**run, "seed": 4}])


def test_a_provenance_line_says_what_ran_where_and_when():
    assert provenance_line(RUN) == (
        "laptop run · run ab12cd34ef · arm grpo-roc · preset laptop · seed 3 · commit 01234567 · "
        "2 cores (EPYC), 8 GiB · 13 min · 2026-02-03"
    )


def test_uncommitted_changes_and_an_unknown_commit_show():
    assert "commit 01234567+ ·" in provenance_line(RUN | {"dirty": True})
    assert "commit unknown ·" in provenance_line(RUN | {"commit": None, "dirty": None})


def test_a_record_without_a_fact_is_refused_by_name():
    run = {key: value for key, value in RUN.items() if key not in ("seed", "commit")}
    with pytest.raises(ValueError, match=r"run ab12cd34ef: run\.json lacks commit, seed"):
        provenance_line(run)


def test_a_run_is_never_labelled_as_something_else():
    with pytest.raises(ValueError, match="'simulated' is not one of"):
        provenance_line(RUN | {"label": "simulated"})


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(4.2, "4 s"), (89, "89 s"), (120, "2 min"), (5399, "1 h 30 min"), (11100, "3 h 05 min")],
)
def test_durations_are_for_people(seconds, words):
    assert duration(seconds) == words


# Figures


def bundle(name="a-figure", **changes):
    arguments = {"caption": "A < B", "alt": 'It "rises".', "source": Source.SIMULATED}
    return figure_bundle(drawn(), name, **(arguments | changes))


def test_a_figure_has_a_label_a_caption_and_its_source():
    page = bundle()["text/html"]
    assert page.startswith(
        '<figure class="fig" id="a-figure"><svg role="img" aria-label="It &quot;'
    )
    assert "A &lt; B" in page
    assert '<span class="prov">simulated</span>' in page


def test_a_figure_of_runs_names_each_of_them():
    page = bundle(runs=[RUN, RUN | {"id": "second"}], source=None)["text/html"]
    assert page.count('class="prov"') == 2
    assert "run second" in page
    assert "<summary>laptop run · 2 runs · " in page


def test_a_figure_takes_its_ink_from_the_page():
    page = bundle()["text/html"]
    assert "currentColor" in page
    assert style.INK not in page


def test_a_figure_is_the_same_bytes_each_time_and_shares_no_id_with_another():
    assert bundle()["text/html"] == bundle()["text/html"]
    one, two = (set(re.findall(r' id="([^"]+)"', bundle(name)["text/html"])) for name in ("a", "b"))
    assert one
    assert not one & two


def test_ids_that_a_figure_refers_to_exist():
    page = bundle()["text/html"]
    used = set(re.findall(r'href="#([^"]+)"', page)) | set(re.findall(r"url\(#([^)]+)\)", page))
    assert used
    assert used <= set(re.findall(r' id="([^"]+)"', page))


def test_a_viewer_without_html_gets_a_png_and_a_terminal_the_caption():
    data = bundle()
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/plain"] == "A < B"


def test_showing_a_figure_closes_it(capsys):
    fig = drawn()
    figure(fig, name="a", caption="c", alt="a", source=Source.FORMULA)
    assert not plt.fignum_exists(fig.number)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"name": "A Figure"}, "use lower-case letters"),
        ({"alt": " "}, "alt is empty"),
        ({"source": None}, "say where the numbers come from"),
        ({"source": Source.LAPTOP}, "'laptop run' must name its runs"),
    ],
)
def test_a_figure_that_would_leave_a_reader_guessing_is_refused(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        bundle(**changes)


def test_a_figure_drawn_without_the_style_is_refused():
    mpl.rcdefaults()
    with pytest.raises(ValueError, match=r"style\.use"):
        bundle()


# Sliders


def slider(values=(0.1, 0.5, 2.0), index=1):
    return explore_bundle(drawn, values, "epsilon", "eps", "A line.", index=index)


def test_a_slider_shows_one_frame_and_says_its_value():
    page = slider()["text/html"]
    assert page.count('<div class="frame"') == 3
    assert page.count('<div class="frame" hidden>') == 2
    assert 'aria-valuetext="0.5"' in page
    assert 'aria-label="A line. epsilon = 2."' in page
    assert '<input type="range" min="0" max="2" value="1"' in page


def test_a_sliders_names_survive_the_markup():
    page = slider()["text/html"]
    names = re.search(r'data-names="([^"]+)"', page)[1].replace("&quot;", '"')
    assert json.loads(names) == ["0.1", "0.5", "2"]


def test_a_slider_is_a_widget_in_a_notebook_and_a_picture_elsewhere():
    assert "application/vnd.jupyter.widget-view+json" in live_bundle(
        drawn, (0.1, 0.5), "epsilon", 0
    )
    assert base64.b64decode(slider()["image/png"]).startswith(b"\x89PNG")


@pytest.mark.parametrize(("values", "index"), [((1.0,), 0), ((1.0, 2.0), 2)])
def test_a_slider_needs_stops(values, index):
    with pytest.raises(ValueError, match="slider eps"):
        slider(values, index)


# Exercises

DOUBLE = Exercise("Doubling", cases=(Case((2,), 4, "two"), Case((np.ones(2),), [2, 2], "an array")))


def test_an_open_exercise_waits():
    assert DOUBLE.check(...).message == "Doubling: waiting for your answer."
    assert not DOUBLE.check(None).passed


def test_a_right_function_passes(capsys):
    DOUBLE(lambda x: 2 * x)
    assert capsys.readouterr().out == "✓ Doubling: right.\n"


def raises(x):
    raise KeyError("x")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda x: x + 2, "fails for an array: your function returns array.*not right"),
        (str, "fails for two: your function returns '2', a number"),
        (lambda x: 2 * np.max(x), r"fails for an array: .* of shape \(\), \(2,\) is asked for"),
        (raises, "fails for two: your function raised KeyError: 'x'"),
        (4, "a function is asked for, not 4"),
    ],
)
def test_a_wrong_function_is_told_where_it_fails(answer, words):
    verdict = DOUBLE.check(answer)
    assert not verdict.passed
    assert re.search(words, verdict.message)


def test_a_value_is_compared_within_the_tolerance_and_a_wrong_one_gets_the_hint():
    exercise = Exercise("Third", want=1 / 3, hint="divide", tolerance=1e-2)
    assert exercise.check(0.333).passed
    assert exercise.check(0.3).message == (
        "Third: not yet; your answer is 0.3, which is not right. Hint: divide"
    )
    assert not exercise.check(True).passed
    assert not exercise.check([[1], [2, 3]]).passed


def test_an_answer_may_be_words():
    exercise = Exercise("Which", want="answered")
    assert exercise.check("answered").passed
    assert not exercise.check("max_turns").passed


def test_solutions_are_found_in_markdown_cells():
    text = "````{solution} ex-a\n:class: dropdown\n\nSince.\n\n```python\nx = 1\n```\n````\n"
    cells = [
        {"cell_type": "code", "source": [text]},
        {"cell_type": "markdown", "source": [text, "\n", text.replace("ex-a", "ex-b")]},
    ]
    found = solutions(cells)
    assert [(s.name, s.code) for s in found] == [("ex-a", "x = 1\n"), ("ex-b", "x = 1\n")]


# Tables


def test_a_table_escapes_its_values_and_puts_numbers_to_the_right():
    table = show_table([{"name": "<b>", "share": 0.25}, {"name": "c", "share": 1.0}], digits=2)
    assert "&lt;b&gt;" in table.html
    assert '<td style="text-align:right">0.25</td>' in table.html
    assert str(table) == "name  share\n<b>    0.25\nc      1.00"


def test_a_ragged_table_is_refused():
    with pytest.raises(ValueError, match="row 1 has the columns"):
        show_table([{"a": 1}, {"b": 1}])


# Trajectories

EVIL = "</pre><script>alert(1)</script><answer>"


def trajectory() -> Trajectory:
    fine = ToolCall(
        raw='{"name": "python", "arguments": {"code": "print(1)\\nprint(2)"}}',
        status=CallStatus.OK,
        code="print(1)\nprint(2)",
        response=EVIL,
    )
    broken = ToolCall(raw="{", status=CallStatus.MALFORMED, response="Error", error_type="bad_json")
    first = Turn(
        f"<reason>x<tool_call>{fine.raw}</tool_call><tool_call>{{</tool_call>", 9, (fine, broken)
    )
    last = Turn("<reason>y</reason><answer>\\boxed{3}</answer>", 5, answer_tags=1)
    return Trajectory(
        "r", (1, 2), (3, 4, 5), (1, 0, 1), (-0.1, 0.0, -0.2), (first, last), StopReason.ANSWERED
    )


def decode(ids):
    return "".join(f"<{token}>" for token in ids)


def test_each_block_says_who_wrote_it_in_a_word_a_letter_and_a_class():
    page = show_trajectory(trajectory(), decode=decode).html
    kinds = re.findall(
        r'<li class="turn (\w+)">.*?aria-hidden="true">(.)</span><span>(\w+)</span>', page
    )
    assert kinds == [
        ("env", "E", "Environment"),
        ("model", "M", "Model"),
        ("env", "E", "Environment"),
        ("error", "!", "Error"),
        ("model", "M", "Model"),
    ]
    for border in ("solid", "dashed", "double"):
        assert f"border-style:{border}" in page


def test_what_a_program_prints_is_never_markup():
    page = show_trajectory(trajectory(), decode=decode).html
    assert "<script>" not in page
    assert page.count("</pre>") == page.count("<pre")


def test_a_program_is_shown_as_a_program():
    page = show_trajectory(trajectory(), decode=decode).html
    assert '<pre class="code">print(1)\nprint(2)</pre>' in page


def test_the_end_and_the_counts_are_told():
    shown = show_trajectory(trajectory(), decode=decode)
    words = "3 tokens after the prompt, 2 of them the model's; 2 tool calls, 1 of them failed."
    assert words in shown.html
    assert "End (answered): the last turn closed with an answer." in str(shown)


def test_a_terminal_gets_the_same_in_words():
    text = str(show_trajectory(trajectory(), decode=decode))
    heads = re.findall(r"^\[(\w+)\]", text, re.M)
    assert heads == ["environment", "model", "environment", "error", "model"]


def test_tokens_show_writer_and_probability():
    shown = show_tokens(
        [7, 8, 9, 5, 6], [1, 0, 0, 1, 0], [math.log(0.25), 0, 0, 0, 0], decode, primed=(9,)
    )
    assert re.findall(r'<li class="tok (\w+)">', shown.html) == [
        "model",
        "env",
        "primed",
        "model",
        "env",
    ]
    assert str(shown) == "<7>(0.25) <8>(E) <9>(P) <5>(1.00) <6>(E)"
    assert "&lt;8&gt;" in shown.html


def test_white_space_in_a_token_can_be_seen():
    words = {7: " a\n"}
    assert "␣a⏎" in show_tokens([7], [0], [0.0], lambda ids: words[ids[0]]).html


def test_tokens_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="differ in length: 1, 2, 1"):
        show_tokens([1], [1, 0], [0.0], decode)


# Build


def test_a_build_needs_a_book_and_a_key(tmp_path: Path):
    with pytest.raises(BookBuildError, match=r"there is no .*_config\.yml"):
        build_book(tmp_path, cache_key="k")
    (tmp_path / "_config.yml").touch()
    (tmp_path / "_toc.yml").touch()
    with pytest.raises(BookBuildError, match=r"cache key '\.\./k'"):
        build_book(tmp_path, cache_key="../k")


# --- words that chapters share --------------------------------------------------------------


def test_a_legend_of_several_axes_names_each_label_once() -> None:
    fig, axes = plt.subplots(2, 1)
    for ax, labels in zip(axes, (["GRPO", "GRPO-RoC"], ["GRPO", "other"]), strict=True):
        for label in labels:
            ax.plot([0, 1], label=label)
    legend_above(fig, *axes)
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["GRPO", "GRPO-RoC", "other"]


def test_one_run_is_told_whole_and_several_in_one_line() -> None:
    runs = [Record(Path(f"r{seed}"), {**RUN, "seed": seed}) for seed in (7, 8)]
    assert source(runs[:1]) == f"Source: {provenance_line(runs[0].run)}."
    assert source(runs) == f"Source: {provenance_summary([run.run for run in runs])}."
