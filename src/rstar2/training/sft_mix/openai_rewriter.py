"""Rewriting by any endpoint that speaks OpenAI's chat completions."""

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import aiohttp
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from rstar2.errors import UserError
from rstar2.records.files import append_json_line, cut_json_lines, read_json_lines
from rstar2.training.sft_mix.rewriting import Rewrite, RewriteStatus, RewriteTask, Usage

_BUSY = 429
_LONGEST_WAIT = 60.0


class RewriteError(UserError):
    """The endpoint cannot be used; the message says which and why."""


def _or_nothing(kind: type) -> BeforeValidator:
    """Takes null for the empty value of a type, as some servers mean it."""
    return BeforeValidator(lambda value: kind() if value is None else value)


_Text = Annotated[str, _or_nothing(str)]
_Count = Annotated[int, _or_nothing(int)]


class _Message(BaseModel):
    content: _Text


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Tokens(BaseModel):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0


class _Completion(BaseModel):
    """What is read of a chat completion."""

    choices: list[_Choice] = Field(min_length=1)
    usage: Annotated[_Tokens, _or_nothing(_Tokens)] = _Tokens()


class OpenAIRewriter:
    """Sends tasks to ``{base_url}/chat/completions``, many at once; outcomes are kept in a file.

    A task that the file has is not sent again, so that a run that was interrupted goes on
    where it was. Busy (429), failing (5xx) and silent endpoints are asked again, each time
    after twice as long or after what ``Retry-After`` says.

    Args:
        base_url: As ``https://host/v1``.
        model: The model's name there.
        cache: JSON lines file of outcomes; made if missing.
        key_variable: Environment variable that holds the API key. If it is None, not set or
            empty, no key is sent: a server of one's own needs none.
        concurrency: Requests at once.
        tries: Times that a task is sent before the run stops.
        wait: Seconds before the second try.
        timeout: Seconds for one request.

    Raises:
        RewriteError: ``base_url`` is no address of a web server.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        cache: Path,
        *,
        key_variable: str | None = "OPENAI_API_KEY",
        concurrency: int = 16,
        tries: int = 6,
        wait: float = 1.0,
        timeout: float = 300.0,
    ) -> None:
        if concurrency < 1 or tries < 1:
            raise ValueError(f"concurrency is {concurrency}, tries {tries}: both must be positive")
        self.model = model
        self.usage = Usage()
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        _check_address(base_url)
        key = os.environ.get(key_variable, "").strip() if key_variable else ""
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        unset = key_variable is not None and not key
        self._keyless = f" (no key was sent: {key_variable} is not set)" if unset else ""
        self._cache = cache
        self._concurrency, self._tries, self._wait = concurrency, tries, wait
        self._timeout = aiohttp.ClientTimeout(total=timeout)

    async def rewrite(
        self, tasks: Sequence[RewriteTask], on_done: Callable[[int, int], None]
    ) -> tuple[Rewrite, ...]:
        """One outcome per task, in order.

        Raises:
            RewriteError: The endpoint refused a task, or did not answer it in all tries.
        """
        keys = [self._key(task) for task in tasks]
        known = self._read_cache()
        waiting = {key: task for key, task in zip(keys, tasks, strict=True) if key not in known}
        self.usage = replace(self.usage, cached=self.usage.cached + len(tasks) - len(waiting))
        done, queue = len(tasks) - len(waiting), list(reversed(waiting.items()))
        on_done(done, len(tasks))
        async with aiohttp.ClientSession(headers=self._headers, timeout=self._timeout) as session:

            async def work() -> None:
                nonlocal done
                while queue:
                    key, task = queue.pop()
                    known[key] = await self._ask(session, task)
                    row = {"key": key, "status": known[key].status, "text": known[key].text}
                    append_json_line(self._cache, row)
                    done += 1
                    on_done(done, len(tasks))

            workers = [asyncio.create_task(work()) for _ in range(self._concurrency)]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
        return tuple(known[key] for key in keys)

    def _key(self, task: RewriteTask) -> str:
        text = json.dumps([self.model, task.prompt, task.text])
        return hashlib.sha256(text.encode()).hexdigest()

    def _read_cache(self) -> dict[str, Rewrite]:
        cut_json_lines(self._cache, bool)  # a torn last line goes, every row stays
        rows = read_json_lines(self._cache)
        return {row["key"]: Rewrite(RewriteStatus(row["status"]), row["text"]) for row in rows}

    async def _ask(self, session: aiohttp.ClientSession, task: RewriteTask) -> Rewrite:
        body = {
            "model": self.model,
            "messages": [
                {"role": "system", "content": task.prompt},
                {"role": "user", "content": task.text},
            ],
        }
        trouble = ""
        for number in range(self._tries):
            if number:
                self.usage = replace(self.usage, retries=self.usage.retries + 1)
            wait = min(self._wait * 2**number, _LONGEST_WAIT)
            try:
                async with session.post(self._url, json=body) as answer:
                    text = await answer.text(errors="replace")
                    if answer.status == 200:
                        return self._read(text)
                    trouble = f"HTTP {answer.status}: {text[:300]}"
                    if answer.status != _BUSY and answer.status < 500:
                        raise RewriteError(
                            f"{self._url} refused a request{self._keyless}: {trouble}"
                        )
                    wait = _retry_after(answer.headers, wait)
            except (aiohttp.InvalidURL, UnicodeError) as error:  # the latter of the host's name
                raise RewriteError(f"{self._url} is no address that can be asked") from error
            except (aiohttp.ClientError, TimeoutError) as error:
                trouble = f"{type(error).__name__}: {error}"
            if number + 1 < self._tries:
                await asyncio.sleep(wait)
        raise RewriteError(
            f"{self._url} did not answer in {self._tries} tries, last {trouble}; "
            f"what is done is kept in {self._cache}: run it again"
        )

    def _read(self, body: str) -> Rewrite:
        try:
            answer = _Completion.model_validate(json.loads(body))
        except (ValueError, RecursionError) as error:
            why = f"{_first_fault(error)}: " if isinstance(error, ValidationError) else ""
            raise RewriteError(f"{self._url} gave no chat completion: {why}{body[:300]}") from error
        choice = answer.choices[0]
        self.usage = replace(
            self.usage,
            requests=self.usage.requests + 1,
            prompt_tokens=self.usage.prompt_tokens + answer.usage.prompt_tokens,
            completion_tokens=self.usage.completion_tokens + answer.usage.completion_tokens,
        )
        if choice.finish_reason == "length":
            return Rewrite(RewriteStatus.CUT)
        text = choice.message.content.encode(
            errors="replace"
        ).decode()  # half a surrogate pair cannot be kept
        return Rewrite(RewriteStatus.OK, text) if text.strip() else Rewrite(RewriteStatus.EMPTY)


def _check_address(base_url: str) -> None:
    try:
        parts = urlsplit(base_url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname)
        whole = whole and parts.port != 0 and not any(map(str.isspace, base_url))
    except ValueError:  # of brackets or of the port
        whole = False
    if not whole:
        raise RewriteError(f"{base_url} is no address of an endpoint: give one as https://host/v1")


def _first_fault(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _retry_after(headers: Mapping[str, str], wait: float) -> float:
    """Seconds that the endpoint asks to wait, if it says so; ``wait`` otherwise."""
    try:
        return min(max(wait, float(headers["Retry-After"])), _LONGEST_WAIT)
    except (KeyError, ValueError):
        return wait
