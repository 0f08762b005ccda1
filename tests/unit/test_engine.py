"""``TorchEngine``: what it samples is what the library's model says, always the same way."""

import asyncio
import copy
import random
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import Qwen3ForCausalLM

from rstar2.protocol import MANIFESTS
from rstar2.rollout import SamplingParams, TokenOutput, TorchEngine
from rstar2.rollout.decode import DecodeModel, UnsupportedModelError
from rstar2.rollout.kv_cache import KVCache
from rstar2.training.checkpoint import load_policy
from rstar2.training.model import new_model
from rstar2.training.spec import ModelSpec

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
END = 1
VOCABULARY = 24
SPEC = ModelSpec(
    vocab_size=301,  # the smallest that a preset may name; the models here have fewer
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=48,
    max_positions=256,
)


def make_model(seed: int = 0, *, tied: bool = True) -> Qwen3ForCausalLM:
    """A small model whose distributions have a clear peak."""
    model = new_model(SPEC, vocab_size=VOCABULARY, end_id=END, seed=seed)
    if not tied:
        config = model.config
        config.tie_word_embeddings = False
        untied = Qwen3ForCausalLM(config)
        untied.eval()
        untied.load_state_dict(model.state_dict())
        generator = torch.Generator().manual_seed(seed)
        untied.lm_head.weight.data.normal_(0.0, 0.3, generator=generator)
        return untied
    model.model.embed_tokens.weight.data *= 15.0
    model.eval()
    return model


@pytest.fixture(scope="module")
def model() -> Qwen3ForCausalLM:
    return make_model()


@pytest.fixture(scope="module", params=["tied", "untied"])
def either(request: pytest.FixtureRequest) -> Qwen3ForCausalLM:
    """A model with tied, then one with untied embeddings."""
    return make_model(tied=request.param == "tied")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs it in a loop of its own; a hang becomes an error."""
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def params(max_tokens: int, temperature: float = 1.0) -> SamplingParams:
    return {"temperature": temperature, "max_tokens": max_tokens}


def prompt_of(length: int, seed: int = 0) -> list[int]:
    """Tokens that are not the end token."""
    rng = random.Random(f"{seed}/{length}")
    return [rng.randrange(2, VOCABULARY) for _ in range(length)]


@torch.no_grad()
def forward(model: Qwen3ForCausalLM, ids: Sequence[int]) -> Tensor:
    """Logits of the library's full forward, ``[len(ids), vocabulary]``."""
    logits: Tensor = model(torch.tensor([list(ids)])).logits[0]
    return logits


@dataclass(frozen=True)
class Chat:
    """A conversation to have: a prompt, the budget of each turn, the tool's tokens between."""

    name: str
    prompt: list[int]
    budgets: tuple[int, ...] = (20,)
    tool: tuple[int, ...] = (3, 4, 5, 6, 7)
    temperature: float = 1.0


@dataclass(frozen=True)
class Said:
    """What came of it: all tokens, and each turn with the place of its first token."""

    ids: list[int]
    turns: list[tuple[int, TokenOutput]]


async def have(engine: TorchEngine, chat: Chat, delays: random.Random | None = None) -> Said:
    """Has a conversation; the tool takes its time if ``delays`` are given."""
    said = Said(list(chat.prompt), [])
    for number, budget in enumerate(chat.budgets):
        if number:
            said.ids.extend(chat.tool)
            if delays is not None:
                await asyncio.sleep(delays.choice([0.0, 0.0, 0.001, 0.004]))
        output = await engine.generate(
            chat.name, prompt_ids=said.ids, sampling_params=params(budget, chat.temperature)
        )
        said.turns.append((len(said.ids), output))
        said.ids.extend(output.token_ids)
    await engine.end(chat.name)
    return said


async def have_all(
    engine: TorchEngine, chats: Sequence[Chat], delays: random.Random | None = None
) -> list[Said]:
    return list(await asyncio.gather(*(have(engine, chat, delays) for chat in chats)))


def new_engine(model: Qwen3ForCausalLM, **options: Any) -> TorchEngine:
    return TorchEngine(model, **{"end_id": END, "seed": 0, **options})


def check(model: Qwen3ForCausalLM, chats: Sequence[Chat], said: Sequence[Said]) -> None:
    """Every turn keeps its budget and ends as it must; its log-probs are the full forward's."""
    for chat, one in zip(chats, said, strict=True):
        scale = chat.temperature or 1.0
        log_probs = torch.log_softmax(forward(model, one.ids) / scale, dim=-1)
        for budget, (start, output) in zip(chat.budgets, one.turns, strict=True):
            ids = output.token_ids
            assert 1 <= len(ids) <= budget
            assert END not in ids[:-1]
            assert len(ids) == budget or ids[-1] == END
            rows = torch.arange(start - 1, start - 1 + len(ids))
            expected = log_probs[rows, torch.tensor(ids)]
            torch.testing.assert_close(
                torch.tensor(output.log_probs), expected, atol=1e-5, rtol=0.0
            )


MIXED = [
    Chat("long prompt", prompt_of(130), (3, 4)),
    Chat("one token", prompt_of(1), (40, 40)),
    Chat("long answer", prompt_of(7), (120,)),
    Chat("short", prompt_of(9), (1,)),
    Chat("many turns", prompt_of(30), (6, 9, 1, 12, 5)),
    Chat("at once", prompt_of(30), (4,) * 8, tool=(2,)),
    Chat("no tool tokens", prompt_of(30), (10, 10), tool=()),
    Chat("long tool", prompt_of(5), (8, 8), tool=tuple(prompt_of(90))),
    *[Chat(f"same {n}", prompt_of(12), (10 * n + 1, 5)) for n in range(5)],
]
"""Rows of very different lengths that end, wait and go on at different steps."""


# --- the model below ---------------------------------------------------------------------


def prefilled(decode: DecodeModel, prompts: Sequence[list[int]], rows: Sequence[int]) -> KVCache:
    """A cache whose row ``i`` begins with prompt ``rows[i]``."""
    cache = decode.new_cache()
    admit(decode, cache, prompts, rows)
    return cache


def admit(
    decode: DecodeModel, cache: KVCache, prompts: Sequence[list[int]], rows: Sequence[int]
) -> None:
    """Adds rows; the padding of the prompts is noise."""
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    generator = torch.Generator().manual_seed(0)
    shape = (len(prompts), int(lengths.max()) + 3)
    ids = torch.randint(VOCABULARY, shape, generator=generator)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt, dtype=torch.long)
    cache.append(*decode.prefill(ids), lengths, torch.tensor(rows))


def step_all(decode: DecodeModel, cache: KVCache, texts: Sequence[list[int]], at: int) -> Tensor:
    """Feeds each row the token of its text that stands ``at`` places behind its prompt."""
    places = cache.prompt_lengths[cache.prompt_of] + at
    tokens = torch.tensor([text[place] for text, place in zip(texts, places, strict=True)])
    cache.reserve(at + 1)
    return decode.step(tokens, places, cache)


def assert_last(
    model: Qwen3ForCausalLM, logits: Tensor, texts: Sequence[list[int]], ends: Sequence[int]
) -> None:
    """The logits of each row are those of the library behind the first ``ends`` tokens."""
    wanted = [forward(model, text[:end])[-1] for text, end in zip(texts, ends, strict=True)]
    torch.testing.assert_close(logits, torch.stack(wanted), atol=2e-5, rtol=0.0)


@given(
    lengths=st.lists(st.integers(0, 20), min_size=1, max_size=4),
    seats=st.lists(st.integers(0, 3), min_size=1, max_size=7),
    seed=st.integers(0, 5),
)
@settings(max_examples=25, deadline=None)
def test_steps_after_a_shared_prompt_are_the_librarys_forward(
    lengths: list[int], seats: list[int], seed: int
) -> None:
    model = make_model()
    decode = DecodeModel(model)
    prompts = [prompt_of(length, number) for number, length in enumerate(lengths)]
    rows = [seat % len(prompts) for seat in seats]
    texts = [prompts[row] + prompt_of(4, 10 * seed + number) for number, row in enumerate(rows)]
    cache = prefilled(decode, prompts, rows)
    for at in range(4):
        logits = step_all(decode, cache, texts, at)
        assert_last(model, logits, texts, [len(prompts[row]) + at + 1 for row in rows])


def test_long_texts_outgrow_the_first_room(either: Qwen3ForCausalLM) -> None:
    decode = DecodeModel(either)
    prompts = [prompt_of(5, 1), prompt_of(40, 2)]
    texts = [prompt + prompt_of(200, 3) for prompt in prompts]
    cache = prefilled(decode, prompts, [0, 1])
    for at in range(200):
        logits = step_all(decode, cache, texts, at)
    assert_last(either, logits, texts, [205, 240])


def test_known_tokens_fed_at_once_are_those_fed_one_a_step(model: Qwen3ForCausalLM) -> None:
    decode = DecodeModel(model)
    prompts = [prompt_of(6, 1), prompt_of(11, 2)]
    rows = [0, 1, 0]
    texts = [prompts[row] + prompt_of(30, 7 + number) for number, row in enumerate(rows)]
    cache = prefilled(decode, prompts, rows)
    for at in range(3):
        step_all(decode, cache, texts, at)
    counts = torch.tensor([9, 4])
    fed = [2, 1]
    starts = torch.tensor([len(prompts[rows[row]]) + 3 for row in fed])
    ids = torch.full((2, 9), 5)
    for number, row in enumerate(fed):
        start, count = int(starts[number]), int(counts[number])
        ids[number, :count] = torch.tensor(texts[row][start : start + count])
    cache.reserve(13)
    decode.extend(torch.tensor(fed), ids, counts, starts, cache)
    ends = [len(prompts[0]) + 3, len(prompts[1]) + 7, len(prompts[0]) + 12]
    tokens = torch.tensor([text[end] for text, end in zip(texts, ends, strict=True)])
    logits = decode.step(tokens, torch.tensor(ends), cache)
    assert_last(model, logits, texts, [end + 1 for end in ends])


def test_tokens_fed_at_once_may_reach_the_last_position(model: Qwen3ForCausalLM) -> None:
    decode = DecodeModel(model)
    text = prompt_of(256)
    cache = prefilled(decode, [text[:4]], [0, 0])
    cache.reserve(252)
    ids = torch.zeros(2, 251, dtype=torch.long)
    ids[0] = torch.tensor(text[4:255])
    ids[1, 0] = text[4]
    start = torch.tensor([4, 4])
    decode.extend(torch.tensor([0, 1]), ids, torch.tensor([251, 1]), start, cache)
    logits = decode.step(torch.tensor([text[255], text[5]]), torch.tensor([255, 5]), cache)
    assert_last(model, logits, [text, text], [256, 6])


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_rows_leave_and_join_without_touching_the_others(data: st.DataObject) -> None:
    model = make_model()
    decode = DecodeModel(model)
    prompts = [prompt_of(length, length) for length in (0, 3, 9, 14)]
    rows = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=8))
    texts = [prompts[row] + prompt_of(6, number) for number, row in enumerate(rows)]
    cache = prefilled(decode, prompts, rows)
    step_all(decode, cache, texts, 0)
    gone = data.draw(st.sets(st.sampled_from(range(len(rows)))))
    order = cache.remove(sorted(gone))
    assert sorted(order) == sorted(set(range(len(rows))) - gone)
    texts = [texts[number] for number in order]
    ends = [int(length) + 2 for length in cache.prompt_lengths[cache.prompt_of]]
    late = prompt_of(21, 21)
    admit(decode, cache, [late], [0, 0])
    texts += [late + prompt_of(6, 30), late + prompt_of(6, 31)]
    # The late rows have fed nothing yet, the others one token.
    tokens = [text[end - 1] for text, end in zip(texts, ends, strict=False)]
    tokens += [text[21] for text in texts[-2:]]
    ends += [22, 22]
    places = torch.tensor([end - 1 for end in ends])
    logits = decode.step(torch.tensor(tokens), places, cache)
    assert_last(model, logits, texts, ends)


def test_a_cache_may_empty_and_fill_again(model: Qwen3ForCausalLM) -> None:
    decode = DecodeModel(model)
    cache = prefilled(decode, [prompt_of(9, 1), prompt_of(2, 2)], [0, 1, 1])
    assert cache.remove([0, 1, 2]) == []
    assert cache.longest_prompt == 0
    text = prompt_of(8, 3)
    admit(decode, cache, [text[:7]], [0])
    assert_last(model, step_all(decode, cache, [text], 0), [text], [8])


def test_the_layout_is_a_copy_of_the_weights() -> None:
    model = make_model()
    decode = DecodeModel(model)
    text = prompt_of(3)
    before = forward(model, text)[-1]
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    cache = prefilled(decode, [text[:2]], [0])
    logits = step_all(decode, cache, [text], 0)[0]
    torch.testing.assert_close(logits, before, atol=2e-5, rtol=0.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attention_bias", True),
        ("use_sliding_window", True),
        ("hidden_act", "gelu"),
        ("rope_parameters", {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}),
    ],
)
def test_a_model_that_asks_for_more_is_refused(name: str, value: Any) -> None:
    config = make_model().config
    setattr(config, name, value)
    model = Qwen3ForCausalLM(config)
    with pytest.raises(UnsupportedModelError, match=name.partition("_parameters")[0]):
        DecodeModel(model)


def test_weights_of_another_type_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"weights in torch\.bfloat16"):
        DecodeModel(make_model().to(torch.bfloat16))


# --- equal to the library ----------------------------------------------------------------


def test_recorded_log_probs_are_those_of_a_full_forward(either: Qwen3ForCausalLM) -> None:
    said = run(have_all(new_engine(either), MIXED))
    check(either, MIXED, said)
    lengths = {len(output.token_ids) for one in said for _, output in one.turns}
    assert len(lengths) > 10
    assert any(output.token_ids[-1] == END for one in said for _, output in one.turns)


def test_on_a_trained_policy_the_difference_is_that_of_float32() -> None:
    checkpoint = next(ROOT.glob("results/laptop-natural/grpo-roc-*/checkpoint"))
    model = load_policy(checkpoint, MANIFESTS["laptop"]).model
    size = model.config.vocab_size
    rng = random.Random(0)
    chats = [
        Chat(f"{n}", [rng.randrange(3, size) for _ in range(20 + n)], (60, 40)) for n in range(12)
    ]
    said = run(have_all(TorchEngine(model, end_id=-1, seed=0), chats))
    exact = copy.deepcopy(model).double()
    ours, theirs = [], []
    for one in said:
        wanted = torch.log_softmax(forward(exact, one.ids), dim=-1)
        library = torch.log_softmax(forward(model, one.ids), dim=-1)
        for start, output in one.turns:
            rows = torch.arange(start - 1, start - 1 + len(output.token_ids))
            tokens = torch.tensor(output.token_ids)
            ours.append((torch.tensor(output.log_probs) - wanted[rows, tokens]).abs())
            theirs.append((library[rows, tokens] - wanted[rows, tokens]).abs())
    assert torch.cat(ours).max() < 1.5 * torch.cat(theirs).max() < 5e-5
    assert torch.cat(ours).mean() < 1.5 * torch.cat(theirs).mean()


def test_greedy_is_the_librarys_generate(either: Qwen3ForCausalLM) -> None:
    chats = [
        Chat(f"{n}", prompt_of(length, n), (budget,), temperature=0.0)
        for n, (length, budget) in enumerate([(1, 60), (3, 1), (70, 80), (12, 30), (12, 60)] * 2)
    ]
    said = run(have_all(new_engine(either), chats))
    check(either, chats, said)
    for chat, one in zip(chats, said, strict=True):
        ids = torch.tensor([chat.prompt])
        library: Any = either
        generated = library.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=chat.budgets[0],
            eos_token_id=END,
            pad_token_id=0,
        )
        assert one.ids == generated[0].tolist()


@pytest.mark.parametrize("max_rows", [1, 3])
def test_conversations_that_queue_are_sampled_as_those_that_do_not(
    model: Qwen3ForCausalLM, max_rows: int
) -> None:
    queued = run(have_all(new_engine(model, max_rows=max_rows), MIXED))
    check(model, MIXED, queued)
    together = run(have_all(new_engine(model), MIXED))
    assert [one.ids for one in queued] == [one.ids for one in together]


@pytest.mark.parametrize("interval", [1, 3, 30])
def test_the_wait_for_a_tool_changes_no_token(model: Qwen3ForCausalLM, interval: int) -> None:
    said = run(have_all(new_engine(model, interval=interval), MIXED))
    check(model, MIXED, said)
    assert [one.ids for one in said] == [one.ids for one in run(have_all(new_engine(model), MIXED))]


# --- sampling ----------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.6])
def test_tokens_are_drawn_as_often_as_the_softmax_says(
    model: Qwen3ForCausalLM, temperature: float
) -> None:
    count, prompt = 3_000, prompt_of(4)
    chats = [Chat(f"{n}", prompt, (1,), temperature=temperature) for n in range(count)]
    said = run(have_all(new_engine(model, max_rows=count), chats))
    drawn = torch.bincount(torch.tensor([one.ids[-1] for one in said]), minlength=VOCABULARY)
    probabilities = torch.softmax(forward(model, prompt)[-1] / temperature, dim=-1)
    bound = 4.5 * (count * probabilities * (1 - probabilities)).sqrt() + 1
    assert ((drawn - count * probabilities).abs() <= bound).all()
    assert (drawn > 0).sum() > 5
    log_probs = torch.tensor([one.turns[0][1].log_probs[0] for one in said])
    expected = probabilities.log()[torch.tensor([one.ids[-1] for one in said])]
    torch.testing.assert_close(log_probs, expected, atol=1e-5, rtol=0.0)


def test_temperatures_may_differ_within_a_batch(model: Qwen3ForCausalLM) -> None:
    chats = [
        Chat(f"{n}", prompt_of(6, n), (15, 5), temperature=temperature)
        for n, temperature in enumerate([0.0, 0.5, 1.0, 2.0, 0.0])
    ]
    check(model, chats, run(have_all(new_engine(model), chats)))


def test_random_numbers_belong_to_the_request_not_to_its_batch(model: Qwen3ForCausalLM) -> None:
    together = run(have_all(new_engine(model), MIXED))
    backwards = run(have_all(new_engine(model), MIXED[::-1]))[::-1]
    alone = [run(have(new_engine(model), chat)) for chat in MIXED]
    tokens = [one.ids for one in together]
    assert tokens == [one.ids for one in backwards] == [one.ids for one in alone]


def test_another_name_or_seed_gives_other_tokens(model: Qwen3ForCausalLM) -> None:
    def ids(name: str, seed: int) -> tuple[int, ...]:
        chat = Chat(name, prompt_of(5), (30,))
        return tuple(run(have(new_engine(model, seed=seed), chat)).ids)

    assert len({ids("a", 0), ids("b", 0), ids("a", 1), ids("b", 1)}) == 4
    assert ids("a", 0) == ids("a", 0)


# --- the same run again ------------------------------------------------------------------


@pytest.mark.parametrize("max_rows", [4, 256])
def test_the_delay_of_the_tools_changes_nothing(model: Qwen3ForCausalLM, max_rows: int) -> None:
    quick = run(have_all(new_engine(model, max_rows=max_rows), MIXED))
    for seed in range(3):
        engine = new_engine(model, max_rows=max_rows)
        assert run(have_all(engine, MIXED, random.Random(seed))) == quick


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_batch_does_not_depend_on_the_one_before(
    model: Qwen3ForCausalLM, seed: int | None
) -> None:
    # A row alone is multiplied by other kernels than a row among others: the last bits tell.
    later = Chat("later", prompt_of(20), (30, 20))
    earlier = [Chat(f"{n}", prompt_of(3, n), (20 + n, 2)) for n in range(6)]

    def never_ending() -> TorchEngine:
        return new_engine(model, end_id=-1, interval=15)

    async def after() -> Said:
        engine = never_ending()
        await have_all(engine, earlier, None if seed is None else random.Random(seed))
        return await have(engine, later)

    assert run(after()) == run(have(never_ending(), later))


def test_new_weights_are_taken_between_two_batches_of_one_loop(model: Qwen3ForCausalLM) -> None:
    updated = make_model(seed=5)
    fresh = run(have_all(new_engine(updated), MIXED))

    async def main() -> list[Said]:
        engine = new_engine(model)
        await have_all(engine, MIXED)
        engine.load(updated)
        return await have_all(engine, MIXED)

    said = run(main())
    check(updated, MIXED, said)
    assert said == fresh


def test_an_engine_serves_one_loop_after_another(model: Qwen3ForCausalLM) -> None:
    engine = new_engine(model)
    first = run(have_all(engine, MIXED))
    assert run(have_all(engine, MIXED)) == first


def test_rows_that_have_ended_keep_nobody_waiting(model: Qwen3ForCausalLM) -> None:
    ended = [Chat("ended", prompt_of(3), (1,))]
    waiting = [Chat(f"{n}", prompt_of(3, n), (2 + n, 2)) for n in range(1, 5)]
    for steps in range(1, 12):
        engine = new_engine(model, interval=steps)
        check(model, ended + waiting, run(have_all(engine, ended + waiting)))


def test_the_engine_rests_when_no_conversation_is_open(model: Qwen3ForCausalLM) -> None:
    async def main() -> int:
        await have_all(new_engine(model), MIXED)
        for _ in range(500):
            await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1


# --- misuse and faults -------------------------------------------------------------------


def test_a_prompt_that_does_not_continue_the_conversation_is_refused(
    model: Qwen3ForCausalLM,
) -> None:
    async def main() -> None:
        engine = new_engine(model)
        prompt = prompt_of(5)
        output = await engine.generate("a", prompt_ids=prompt, sampling_params=params(4))
        for wrong in (prompt, [9, *prompt, *output.token_ids], [*prompt, *output.token_ids[:-1]]):
            with pytest.raises(ValueError, match="a: the prompt does not continue"):
                await engine.generate("a", prompt_ids=wrong, sampling_params=params(4))
        right = [*prompt, *output.token_ids, 5]
        assert await engine.generate("a", prompt_ids=right, sampling_params=params(4))
        await engine.end("a")

    run(main())


def test_a_second_turn_of_a_conversation_that_is_being_sampled_is_refused(
    model: Qwen3ForCausalLM,
) -> None:
    async def main() -> None:
        engine = new_engine(model)
        sampling = asyncio.create_task(have(engine, Chat("a", prompt_of(5))))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="a: its turn is still being sampled"):
            await engine.generate("a", prompt_ids=prompt_of(5), sampling_params=params(4))
        await sampling

    run(main())


@pytest.mark.parametrize(
    ("prompt", "sampling", "says"),
    [
        ([], params(4), "the prompt is empty"),
        ([3], params(0), "max_tokens is 0: it must be 1 or more"),
        ([3], params(4, -0.5), "temperature is -0.5: it must be 0 or more"),
        ([3], params(4, float("nan")), "temperature is nan"),
    ],
)
def test_what_cannot_be_sampled_is_refused_and_harms_nobody(
    model: Qwen3ForCausalLM, prompt: list[int], sampling: SamplingParams, says: str
) -> None:
    async def main() -> None:
        engine = new_engine(model)
        other = asyncio.create_task(have(engine, MIXED[0]))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match=f"a: {says}"):
            await engine.generate("a", prompt_ids=prompt, sampling_params=sampling)
        check(model, MIXED[:1], [await other])

    run(main())


def test_a_row_of_one_token_outlives_all_longer_prompts(model: Qwen3ForCausalLM) -> None:
    chats = [Chat("long", prompt_of(9), (1,)), Chat("one", prompt_of(1), (60, 60))]
    check(model, chats, run(have_all(new_engine(model), chats)))


def test_a_conversation_that_was_open_at_a_fault_does_not_begin_anew(
    model: Qwen3ForCausalLM,
) -> None:
    async def main() -> None:
        engine = new_engine(model)
        prompt = prompt_of(5)
        output = await engine.generate("a", prompt_ids=prompt, sampling_params=params(4))
        with pytest.raises(RuntimeError, match="the engine stopped"):
            await engine.generate("b", prompt_ids=[VOCABULARY, 3], sampling_params=params(4))
        on = [*prompt, *output.token_ids, 5]
        with pytest.raises(RuntimeError, match="a: the engine stopped; end the conversation"):
            await engine.generate("a", prompt_ids=on, sampling_params=params(4))
        for name in ("a", "b"):
            await engine.end(name)
        engine.load(model)
        check(model, MIXED[:1], [await have(engine, MIXED[0])])

    run(main())


def test_a_conversation_past_the_last_position_is_refused(model: Qwen3ForCausalLM) -> None:
    fits = Chat("fits", prompt_of(250), (6,))
    check(model, [fits], [run(have(new_engine(model), fits))])
    with pytest.raises(ValueError, match="257 tokens, but the model has 256 positions"):
        run(have(new_engine(model), Chat("long", prompt_of(250), (7,))))


def test_weights_cannot_change_under_an_open_conversation(model: Qwen3ForCausalLM) -> None:
    async def main() -> None:
        engine = new_engine(model)
        await engine.generate("a", prompt_ids=prompt_of(5), sampling_params=params(4))
        with pytest.raises(RuntimeError, match="1 conversations are open"):
            engine.load(model)
        await engine.end("a")
        engine.load(model)

    run(main())


NO_SUCH_TOKEN = VOCABULARY + 5


@pytest.mark.parametrize(
    "faulty",
    [
        Chat("faulty", [3, NO_SUCH_TOKEN], (4,)),
        Chat("faulty", prompt_of(3), (2, 2), tool=(3, NO_SUCH_TOKEN, 4)),
    ],
    ids=["prompt", "tool"],
)
@pytest.mark.parametrize("max_rows", [4, 256])
def test_a_fault_reaches_everyone_who_waits_and_the_engine_lives_on(
    model: Qwen3ForCausalLM, faulty: Chat, max_rows: int
) -> None:
    others = [Chat(f"{n}", prompt_of(8, n), (120,)) for n in range(6)]
    # Only a token that the model may not end with makes them all wait when the fault comes.
    patient = make_model(seed=2)
    engine = TorchEngine(patient, end_id=-1, seed=0, max_rows=max_rows)

    async def main() -> list[Said | BaseException]:
        chats = [faulty, *others]
        said = await asyncio.gather(*(have(engine, chat) for chat in chats), return_exceptions=True)
        for chat in chats:
            await engine.end(chat.name)
        return said

    for outcome in run(main()):
        assert isinstance(outcome, RuntimeError)
        assert str(outcome).startswith("the engine stopped: IndexError")
        assert isinstance(outcome.__cause__, IndexError)
    engine.load(patient)
    again = [Chat(f"again {n}", prompt_of(8, n), (5, 5)) for n in range(6)]
    said = run(have_all(engine, again))
    assert said == run(have_all(TorchEngine(patient, end_id=-1, seed=0, max_rows=max_rows), again))


@pytest.mark.parametrize("max_rows", [3, 256])
def test_cancelled_conversations_leave_no_hang(model: Qwen3ForCausalLM, max_rows: int) -> None:
    engine = new_engine(model, max_rows=max_rows)
    chats = [Chat(f"{n}", prompt_of(6, n), (20, 20)) for n in range(8)]

    async def closing(chat: Chat) -> Said:
        try:
            return await have(engine, chat, random.Random(0))
        finally:
            await engine.end(chat.name)

    async def main() -> list[Said]:
        tasks = [asyncio.create_task(closing(chat)) for chat in chats]
        for number in (0, 5, 3, 7):
            for _ in range(4):
                await asyncio.sleep(0)
            tasks[number].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        cancelled = [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes]
        assert cancelled == [number in (0, 5, 3, 7) for number in range(8)]
        engine.load(model)
        return [outcome for outcome in outcomes if isinstance(outcome, Said)]

    left = [chat for number, chat in enumerate(chats) if number not in (0, 5, 3, 7)]
    check(model, left, run(main()))
    check(model, MIXED, run(have_all(engine, MIXED)))


def test_a_loop_that_stops_in_the_middle_leaves_a_usable_engine(model: Qwen3ForCausalLM) -> None:
    engine = new_engine(model)

    async def main(iterations: int) -> None:
        tasks = [asyncio.create_task(have(engine, chat)) for chat in MIXED]
        for _ in range(iterations):
            await asyncio.sleep(0)
        assert not all(task.done() for task in tasks)

    for iterations in (1, 2, 30):
        asyncio.run(main(iterations))
        engine.load(model)
    check(model, MIXED, run(have_all(engine, MIXED)))


def test_who_waits_for_a_conversation_that_is_ended_is_told(model: Qwen3ForCausalLM) -> None:
    async def main() -> None:
        engine = new_engine(model)
        sampling = asyncio.create_task(have(engine, Chat("a", prompt_of(5), (100,))))
        await asyncio.sleep(0)
        await engine.end("a")
        with pytest.raises(RuntimeError, match="a: ended while its turn was sampled"):
            await sampling

    run(main())
