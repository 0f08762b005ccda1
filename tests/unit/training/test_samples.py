"""Samples on disk, and what they decide: labels to believe, problems that are hard."""

import asyncio
import dataclasses
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rstar2.errors import UserError
from rstar2.grading import Reason
from rstar2.problems import Problem
from rstar2.protocol import PAPER, StopReason, TokenTemplate, ToolResult
from rstar2.records import RecordError
from rstar2.rollout import RolloutLimits, SamplingParams, TokenOutput
from rstar2.sandbox import SandboxUnavailable
from rstar2.training import samples
from rstar2.training.collect import RolloutsLostError
from rstar2.training.label_check import (
    ThresholdError,
    hard_problems,
    label_check,
    pass_counts,
    suspect_labels,
)
from rstar2.training.samples import (
    OtherSamplesError,
    Sample,
    SampleRecord,
    SamplingSettings,
    read_samples,
    sample_problems,
)

LIMITS = RolloutLimits(
    max_prompt_tokens=500,
    max_response_tokens=20_000,
    max_turns=2,
    max_tool_tokens=20,
    tool_timeout=1.0,
)
SETTINGS = SamplingSettings(policy="scripted", samples=4, limits=LIMITS, seed=0)
CALL = '<tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>'


def problem(name: str, answer: int = 7) -> Problem:
    return Problem(f"set/{name}", f"What is {name}?", answer, "set")


PROBLEMS = [problem(name) for name in "abcdef"]


def answer(text: object) -> str:
    return f"So.</reason><answer>\\boxed{{{text}}}</answer>"


class Writer:
    """An engine that writes a given text for each problem and sample, and 7 without one."""

    def __init__(
        self,
        template: TokenTemplate,
        texts: Mapping[tuple[str, int], str] | None = None,
        fails_at: str = "",
    ) -> None:
        self.template, self.texts, self.fails_at = template, texts or {}, fails_at
        self.asked: list[str] = []
        self.open: set[str] = set()
        self.most_open = 0

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: Sequence[int],  # noqa: ARG002  what it writes depends on names alone
        sampling_params: SamplingParams,
    ) -> TokenOutput:
        self.asked.append(request_id)
        self.open.add(request_id)
        self.most_open = max(self.most_open, len(self.open))
        await asyncio.sleep(0)
        name, _, sample, _ = request_id.removeprefix("samples/").rsplit("/", 3)
        if name == self.fails_at:
            raise ConnectionError("the engine is gone")
        text = self.texts.get((name, int(sample)), answer(7))
        ids = [*self.template.encode(text), self.template.end_id]
        ids = ids[: sampling_params["max_tokens"]]
        return TokenOutput(tuple(ids), (0.0,) * len(ids))

    async def end(self, request_id: str) -> None:
        self.open.discard(request_id)


class NoSandbox:
    """A sandbox that is gone."""

    async def run(self, *_: object) -> ToolResult:
        raise SandboxUnavailable("gone")


def sample(
    path: Path,
    engine: Writer,
    problems: Sequence[Problem] = PROBLEMS,
    settings: SamplingSettings = SETTINGS,
    in_flight: int = 8,
) -> list[tuple[int, int]]:
    """Samples into a record; gives the progress that was told."""
    told: list[tuple[int, int]] = []
    asyncio.run(
        sample_problems(
            path,
            problems,
            settings,
            engine=engine,
            sandbox=NoSandbox(),
            template=engine.template,
            in_flight=in_flight,
            on_problems=lambda done, total: told.append((done, total)),
        )
    )
    return told


# --- the record ---------------------------------------------------------------------------


def test_a_record_has_a_line_for_each_sample_with_what_the_grader_said(
    tmp_path: Path, laptop: TokenTemplate
) -> None:
    texts = {("set/a", 1): answer("1{,}000"), ("set/a", 2): "I do not know.</reason>"}
    path = tmp_path / "folder" / "samples.jsonl"
    told = sample(path, Writer(laptop, texts), PROBLEMS[:2])
    assert told == [(0, 2), (1, 2), (2, 2)]
    record = read_samples(path)
    assert len(record.samples) == len(path.read_text().splitlines()) - 1 == 8
    right, other, none, _ = (one for one in record.samples if one.problem_id == "set/a")
    assert (right.correct, right.value, right.box, right.gold) == (True, "7", "7", "7")
    assert (other.reason, other.value, other.box) == (Reason.MISMATCH, "1000", "1{,}000")
    assert (none.reason, none.value, none.stop) == (
        Reason.NO_ANSWER_BLOCK,
        None,
        StopReason.NO_CALL,
    )
    assert none.tokens == len(laptop.encode(texts["set/a", 2])) + 1


@pytest.mark.parametrize("digits", [1, 40, 4_200, 4_900])
def test_integers_of_any_size_survive(digits: int, tmp_path: Path, laptop: TokenTemplate) -> None:
    """Python prints no integer of more than 4,300 digits, and the grader names none."""
    text = "9" * digits
    gold = 10**digits - 1
    path = tmp_path / "samples.jsonl"
    sample(path, Writer(laptop, {("set/a", 0): answer(text)}), [problem("a", gold)])
    right, wrong = read_samples(path).samples[:2]
    assert right.correct
    assert not wrong.correct
    assert right.gold == text
    assert right.value == (text if digits < 4_215 else None)


def test_a_second_run_has_nothing_to_do(tmp_path: Path, laptop: TokenTemplate) -> None:
    path = tmp_path / "samples.jsonl"
    sample(path, Writer(laptop))
    before = path.read_bytes()
    again = Writer(laptop)
    assert sample(path, again) == [(6, 6)]
    assert again.asked == []
    assert path.read_bytes() == before


def test_a_record_grows_by_further_problems(tmp_path: Path, laptop: TokenTemplate) -> None:
    path = tmp_path / "samples.jsonl"
    sample(path, Writer(laptop), PROBLEMS[:2])
    more = Writer(laptop)
    assert sample(path, more)[0] == (2, 6)
    assert len(more.asked) == 16
    assert len(read_samples(path).samples) == 24


@pytest.mark.parametrize("cut", range(1, 400, 37))
def test_a_killed_run_goes_on_and_ends_with_the_same_samples(
    cut: int, tmp_path: Path, laptop: TokenTemplate
) -> None:
    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    texts = {("set/c", 1): answer(8), ("set/f", 3): answer(9)}
    first = Writer(laptop, texts)
    sample(whole, first)
    killed.write_bytes(whole.read_bytes()[:-cut])
    resumed = Writer(laptop, texts)
    sample(killed, resumed)
    assert set(resumed.asked) < set(first.asked)
    ended, expected = read_samples(killed), read_samples(whole)
    assert ended.header == expected.header
    assert sorted(ended.samples, key=repr) == sorted(expected.samples, key=repr)


def test_an_engine_that_fails_leaves_what_was_finished(
    tmp_path: Path, laptop: TokenTemplate
) -> None:
    path = tmp_path / "samples.jsonl"
    failing = Writer(laptop, fails_at="set/d")
    with pytest.raises(ConnectionError):
        sample(path, failing)
    assert failing.open == set(), "no conversation is left open"
    finished = {one.problem_id for one in read_samples(path).samples}
    assert {"set/a", "set/b"} <= finished
    assert "set/d" not in finished
    sample(path, Writer(laptop))
    assert len(read_samples(path).samples) == 24


def test_rollouts_in_flight_are_bounded_and_do_not_name_them(
    tmp_path: Path, laptop: TokenTemplate
) -> None:
    engines = []
    for in_flight in (1, 8, 1_000):
        engines.append(Writer(laptop))
        sample(tmp_path / f"{in_flight}.jsonl", engines[-1], in_flight=in_flight)
    assert [engine.most_open for engine in engines] == [4, 8, 24]
    assert len({frozenset(engine.asked) for engine in engines}) == 1


def test_with_one_turn_no_tool_is_run(tmp_path: Path, laptop: TokenTemplate) -> None:
    """A strong model can be asked without a sandbox: here there is none."""
    settings = dataclasses.replace(SETTINGS, limits=dataclasses.replace(LIMITS, max_turns=1))
    path = tmp_path / "samples.jsonl"
    sample(path, Writer(laptop, {("set/a", 0): CALL}), PROBLEMS[:1], settings)
    called, answered = read_samples(path).samples[:2]
    assert called.stop is StopReason.MAX_TURNS
    assert answered.correct


def test_what_the_sandbox_lost_is_sampled_again_by_the_next_run(
    tmp_path: Path, laptop: TokenTemplate
) -> None:
    path = tmp_path / "samples.jsonl"
    sample(path, Writer(laptop, {("set/a", 2): CALL}), PROBLEMS[:2])
    record = read_samples(path)
    assert [one.sample for one in record.samples if one.problem_id == "set/a"] == [0, 1, 3]
    choice = label_check(record)
    assert [one.problem_id for one in choice.unfinished] == ["set/a"]
    assert [one.problem_id for one in choice.kept] == ["set/b"]

    sample(path, Writer(laptop), PROBLEMS[:2])
    assert [one.problem_id for one in label_check(read_samples(path)).kept] == ["set/a", "set/b"]


def test_a_sandbox_that_loses_everything_stops_the_run(
    tmp_path: Path, laptop: TokenTemplate
) -> None:
    lost = Writer(laptop, {("set/b", number): CALL for number in range(4)})
    with pytest.raises(RolloutsLostError, match=r"every rollout of set/b.*run it again"):
        sample(tmp_path / "samples.jsonl", lost)


def test_two_problems_of_one_name_are_refused(tmp_path: Path, laptop: TokenTemplate) -> None:
    with pytest.raises(ValueError, match=r"1 problem names stand there twice, as 'set/a'"):
        sample(tmp_path / "samples.jsonl", Writer(laptop), [*PROBLEMS, problem("a", 8)])


def test_no_problems_make_an_empty_record(tmp_path: Path, laptop: TokenTemplate) -> None:
    path = tmp_path / "samples.jsonl"
    assert sample(path, Writer(laptop), []) == [(0, 0)]
    record = read_samples(path)
    assert record.samples == ()
    assert label_check(record).kept == ()
    assert suspect_labels(record) == []


# --- what may not be mixed ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"policy": "another"}, "policy 'scripted', now it is 'another'"),
        ({"samples": 8}, "samples 4, now it is 8"),
        ({"seed": 1}, "seed 0, now it is 1"),
        ({"limits": dataclasses.replace(LIMITS, temperature=0.6)}, "limits"),
    ],
)
def test_other_settings_need_another_record(
    change: dict[str, object], named: str, tmp_path: Path, laptop: TokenTemplate
) -> None:
    path = tmp_path / "samples.jsonl"
    sample(path, Writer(laptop), PROBLEMS[:2])
    before = path.read_bytes()
    with pytest.raises(OtherSamplesError, match=named):
        sample(path, Writer(laptop), settings=dataclasses.replace(SETTINGS, **change))
    assert path.read_bytes() == before


def test_other_texts_or_another_grader_need_another_record(
    tmp_path: Path, laptop: TokenTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "samples.jsonl"
    sample(path, Writer(laptop), PROBLEMS[:2])
    with pytest.raises(OtherSamplesError, match="made with texts"):
        sample(path, Writer(TokenTemplate(laptop.tokenizer, PAPER)))
    monkeypatch.setattr(samples, "deciding_sources", lambda _: [Path(__file__)])
    with pytest.raises(OtherSamplesError, match="made with grader"):
        sample(path, Writer(laptop))


@pytest.mark.parametrize("change", [{"answer": 8}, {"question": "What is it really?"}])
def test_a_problem_that_has_changed_is_noticed(
    change: dict[str, object], tmp_path: Path, laptop: TokenTemplate
) -> None:
    path = tmp_path / "samples.jsonl"
    sample(path, Writer(laptop))
    with pytest.raises(OtherSamplesError, match="'set/c' with another text or label"):
        sample(path, Writer(laptop), [dataclasses.replace(PROBLEMS[2], **change)])


@pytest.mark.parametrize(
    "content", [b"", b"my notes", b'{"a": 1}\n', b'{"format": 2}\n', b"\xff\n"]
)
def test_a_file_that_is_no_record_is_left_as_it_is(
    content: bytes, tmp_path: Path, laptop: TokenTemplate
) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"samples\.jsonl"):
        sample(path, Writer(laptop))
    assert path.read_bytes() == content


def test_a_record_that_two_processes_wrote_is_refused(
    tmp_path: Path, laptop: TokenTemplate
) -> None:
    path = tmp_path / "samples.jsonl"
    sample(path, Writer(laptop))
    with path.open("ab") as file:
        file.write(path.read_bytes().splitlines(keepends=True)[-1])
    with pytest.raises(RecordError, match="two samples of one number of 'set/f'"):
        read_samples(path)


@pytest.mark.parametrize("change", [{"reason": "mood"}, {"stop": 3}, {"more": 1}, {"box": None}])
def test_a_line_that_is_no_sample_is_named(
    change: dict[str, object], tmp_path: Path, laptop: TokenTemplate
) -> None:
    path = tmp_path / "samples.jsonl"
    sample(path, Writer(laptop), PROBLEMS[:1])
    lines = path.read_text().splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), **change})
    if change == {"box": None}:
        lines[2] = json.dumps({"problem_id": "set/a"})
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(RecordError, match=r"line 3: no sample"):
        read_samples(path)


# --- the rules ----------------------------------------------------------------------------


def record(answers: Mapping[str, Sequence[int | None]], per_problem: int = 8) -> SampleRecord:
    """A record in which every label is 7."""
    made = tuple(
        Sample(
            problem_id=name,
            question="",
            gold="7",
            sample=number,
            value=None if value is None else str(value),
            reason=(
                Reason.NOT_INTEGER
                if value is None
                else Reason.CORRECT
                if value == 7
                else Reason.MISMATCH
            ),
            stop=StopReason.ANSWERED,
            tokens=10,
            box="x",
        )
        for name, values in answers.items()
        for number, value in enumerate(values)
    )
    return SampleRecord({"samples": per_problem}, made)


def solved(times: int, of: int) -> list[int]:
    return [7] * times + [1] * (of - times)


def test_a_label_is_kept_when_two_of_sixteen_match() -> None:
    found = label_check(record({f"{n:02}": solved(n, 16) for n in range(17)}, 16))
    assert [one.problem_id for one in found.dropped] == ["00", "01"]
    assert [one.correct for one in found.kept] == list(range(2, 17))
    assert found.unfinished == ()


def test_a_problem_is_hard_until_eight_of_eight_are_right() -> None:
    tried = record({str(n): solved(n, 8) for n in range(9)})
    assert [one.problem_id for one in hard_problems(tried).dropped] == ["8"]
    assert [one.problem_id for one in hard_problems(tried, most=5).dropped] == ["6", "7", "8"]


answers = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=2),
    st.lists(st.sampled_from([7, 7, 1, 2, None]), min_size=1, max_size=8),
    max_size=12,
)


@given(answers, st.integers(1, 8))
def test_every_problem_of_a_record_is_kept_dropped_or_unfinished(
    said: dict[str, list[int | None]], least: int
) -> None:
    made = record(said)
    strict, loose = label_check(made, least), label_check(made, 1)
    for choice in (strict, loose, hard_problems(made, least - 1)):
        names = [
            one.problem_id
            for part in (choice.kept, choice.dropped, choice.unfinished)
            for one in part
        ]
        assert sorted(names) == sorted(said)
        assert {one.problem_id for one in choice.unfinished} == {
            name for name, values in said.items() if len(values) < 8
        }
    assert set(strict.kept) <= set(loose.kept)
    assert set(strict.kept) == set(hard_problems(made, least - 1).dropped)


@given(answers, st.randoms(use_true_random=False))
def test_the_order_of_the_lines_decides_nothing(
    said: dict[str, list[int | None]], shuffler: random.Random
) -> None:
    made = record(said)
    shuffled = list(made.samples)
    shuffler.shuffle(shuffled)
    other = dataclasses.replace(made, samples=tuple(shuffled))
    assert pass_counts(other) == pass_counts(made)
    assert suspect_labels(other) == suspect_labels(made)


@given(answers)
def test_counts_add_up(said: dict[str, list[int | None]]) -> None:
    for count in pass_counts(record(said)):
        values = said[count.problem_id]
        assert sum(number for _, number in count.reasons) == count.samples == len(values)
        assert count.correct == values.count(7)
        assert dict(count.others) == {
            str(value): values.count(value) for value in {1, 2} & set(values)
        }


def test_a_label_that_most_samples_contradict_with_one_voice_is_suspect() -> None:
    said = {
        "half": [1, 1, 1, 1, 2, 3, 4, 7],
        "split": [1, 1, 1, 2, 2, 2, 3, 3],
        "most": [1, 1, 1, 1, 1, 7, 7, 7],
        "all": [2] * 8,
        "unread": [None] * 8,
        "right": solved(7, 8),
    }
    found = suspect_labels(record(said))
    assert [(one.problem_id, one.said, one.votes, one.correct) for one in found] == [
        ("all", "2", 8, 0),
        ("most", "1", 5, 3),
    ]
    assert [one.problem_id for one in suspect_labels(record(said), share=0.75)] == ["all"]


@pytest.mark.parametrize("least", [0, 9, -1])
def test_a_label_check_that_checks_nothing_is_refused(least: int) -> None:
    with pytest.raises(ThresholdError, match=f"least is {least}, but a problem has 8 samples"):
        label_check(record({}), least)


@pytest.mark.parametrize("most", [8, -1])
def test_mining_that_drops_nothing_is_refused(most: int) -> None:
    with pytest.raises(ThresholdError, match=f"most is {most}, but a problem has 8 samples"):
        hard_problems(record({}), most)


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_a_share_without_a_winner_is_refused(share: float) -> None:
    with pytest.raises(UserError, match=f"share is {share}"):
        suspect_labels(record({}), share)
