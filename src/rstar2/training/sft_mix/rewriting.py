"""The paper's rewriting step: texts of the mix written anew by another model.

The paper had o4-mini rewrite the responses of the instruction-following set and the prompts
of the chat set (section 4.1). It does not print its prompts; those below are ours.

What it costs: one request per conversation, so 57,000 for the paper's mix. Each request
sends the conversation once and receives one text; ``Usage`` counts the tokens that the
endpoint reports.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from rstar2.training.sft_mix.messages import Conversation, Role
from rstar2.training.sft_mix.spec import Rewriting

RESPONSE_PROMPT = """\
You rewrite the answers of an assistant. You are given a conversation that ends with an
answer. Write a better answer to the last request: correct, clear, complete and no longer
than it must be. Follow every instruction and every constraint of the request to the letter,
those on form, length, words and case included. Do not show your reasoning and do not speak
about the rewriting. Reply with the new answer alone."""

PROMPT_PROMPT = """\
You rewrite the requests of users. You are given a conversation that ends with a request,
and the answer that it got. Write the request anew, as a person would ask it: natural, clear
and specific. Keep its language, its meaning and all facts in it, so that the given answer
still answers it fully. Do not answer it and do not speak about the rewriting. Reply with
the new request alone."""


class RewriteStatus(StrEnum):
    """What became of a request."""

    OK = "ok"
    EMPTY = "empty"
    """The model gave no text."""
    CUT = "cut"
    """The model ran into its limit of tokens."""


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """What the rewriting model is given.

    Attributes:
        prompt: The instructions, as the system message.
        text: The conversation, as the user message.
    """

    prompt: str
    text: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What it gave."""

    status: RewriteStatus
    text: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What rewriting took.

    Attributes:
        requests: Requests that were answered, tried ones counted once.
        retries: Requests that were sent again.
        cached: Tasks that an earlier run had done.
        prompt_tokens: Tokens sent, as the endpoint counts them.
        completion_tokens: Tokens received, hidden reasoning included.
    """

    requests: int = 0
    retries: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Rewriter(Protocol):
    """Anything that rewrites texts; ``OpenAIRewriter`` is one."""

    @property
    def model(self) -> str:
        """Names the model, for the report and the hash of the mix."""
        ...

    @property
    def usage(self) -> Usage:
        """What it took so far."""
        ...

    async def rewrite(
        self, tasks: Sequence[RewriteTask], on_done: Callable[[int, int], None]
    ) -> tuple[Rewrite, ...]:
        """One outcome per task, in order; ``on_done(done, total)`` after each."""
        ...


def rewrite_task(one: Conversation, rewriting: Rewriting) -> RewriteTask:
    """What to ask for a conversation.

    Raises:
        ValueError: Nothing is to be rewritten.
    """
    if rewriting is Rewriting.NONE:
        raise ValueError("nothing of this conversation is to be rewritten")
    shown = "\n\n".join(f"[{message.role.value}]\n{message.text}" for message in one.messages)
    whole = rewriting is Rewriting.RESPONSE
    return RewriteTask(RESPONSE_PROMPT if whole else PROMPT_PROMPT, shown)


def rewritten(one: Conversation, rewriting: Rewriting, text: str) -> Conversation:
    """The conversation with its last answer or its last request replaced."""
    role = Role.ASSISTANT if rewriting is Rewriting.RESPONSE else Role.USER
    messages = list(one.messages)
    place = max(at for at, message in enumerate(messages) if message.role is role)
    messages[place] = replace(messages[place], text=text.strip())
    return replace(one, messages=tuple(messages))
