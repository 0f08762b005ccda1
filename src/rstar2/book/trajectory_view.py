"""Shows one trajectory: turn by turn, or token by token.

Who wrote what is told three ways at once: colour, border style and a letter with a
word. Everything is escaped and drawn from the records, so that no text of a model
or a program can pass for markup or for another writer. The colours are readable on
light and dark pages, since text keeps the page's own colour.
"""

import html
import math
from collections.abc import Callable, Sequence

from rstar2.book.rendered import Rendered
from rstar2.protocol.types import CallStatus, StopReason, ToolCall, Trajectory, Turn

Decode = Callable[[Sequence[int]], str]
"""Turns token ids into text, special tokens shown."""

_STYLE = """<style>
.rs{--m:#0072b2;--e:#6b6b6b;--x:#c0392b;margin:1em 0;line-height:1.45;color:inherit}
.rs ol{list-style:none;margin:0;padding:0}
.rs li{margin:0;padding:0}
.rs .model{--c:var(--m)}.rs .env{--c:var(--e)}.rs .error,.rs .primed{--c:var(--x)}
.rs .turn{margin:.6em 0;padding:.4em .7em .55em;border:2px solid var(--c);border-left-width:8px;
border-radius:4px;background:color-mix(in srgb,var(--c) 9%,transparent)}
.rs .turn.model{border-style:solid}
.rs .turn.env{border-style:dashed}
.rs .turn.error{border-style:double;border-width:4px;border-left-width:10px}
.rs .head{display:flex;flex-wrap:wrap;gap:.1em .6em;align-items:center;font-size:.9em;
font-weight:600;margin:0 0 .3em}
.rs .badge{flex:none;display:grid;place-items:center;width:1.6em;height:1.6em;line-height:1;
font-size:.9em;color:#fff;background:var(--c)}
.rs .model .badge{border-radius:50%}.rs .env .badge{border-radius:2px}
.rs .error .badge{clip-path:polygon(30% 0,70% 0,100% 30%,100% 70%,70% 100%,30% 100%,0 70%,0 30%)}
.rs .note{font-weight:400}
.rs pre{margin:.2em 0;padding:0;border:0;background:none;color:inherit;font-size:.85em;
box-shadow:none;white-space:pre-wrap;overflow-wrap:anywhere}
.rs pre.code{margin:.3em 0;padding-left:.7em;border-left:3px solid var(--c)}
.rs .tag{font-weight:700}
.rs .strip{display:flex;flex-wrap:wrap;gap:.3em .2em}
.rs .tok{display:flex;flex-direction:column;align-items:center;padding:0 .15em;
border-bottom:3px solid var(--c);background:color-mix(in srgb,var(--c) 10%,transparent)}
.rs .tok code{background:none;border:0;padding:0;color:inherit;white-space:pre;font-size:.85em}
.rs .tok small{font-size:.72em;line-height:1.3}
.rs .tok.env{border-bottom-style:dashed}
.rs .tok.primed{border-bottom-style:dotted}
.rs .key{display:flex;flex-wrap:wrap;gap:.3em 1.2em;font-size:.9em;margin:0 0 .6em}
.rs .key .tok{display:inline-block;padding:0 .4em}
.rs .sr{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
</style>"""

_ENDINGS = {
    StopReason.ANSWERED: "the last turn closed with an answer",
    StopReason.NO_CALL: "the last turn closed with neither a call nor an answer",
    StopReason.MAX_TURNS: "the turn limit was used up",
    StopReason.MAX_TOKENS: "the token budget was used up; an answer would not count",
    StopReason.PROMPT_TOO_LONG: "the prompt left no room for a response",
    StopReason.INFRASTRUCTURE: "the sandbox or the engine failed; the rollout is replaced",
}

_TAGS = ("<reason>", "</reason>", "<tool_call>", "</tool_call>", "<answer>", "</answer>")


def show_trajectory(trajectory: Trajectory, *, decode: Decode) -> Rendered:
    """One trajectory turn by turn: model, environment and error told apart.

    Args:
        trajectory: The rollout, with its records.
        decode: Turns ids into text; used for the prompt.
    """
    prompt = decode(trajectory.prompt_ids)
    blocks = [_block("env", "E", "Environment", "the prompt", _pre(prompt))]
    lines = [f"[environment] the prompt\n{prompt}"]
    for number, turn in enumerate(trajectory.turns, start=1):
        note = f"turn {number}, {turn.num_tokens} tokens"
        blocks.append(_block("model", "M", "Model", note, _turn_html(turn)))
        lines.append(f"[model] {note}\n{turn.text}")
        for call in turn.calls:
            kind, badge, name = ("error", "!", "Error") if call.status.is_error else _ENVIRONMENT
            blocks.append(_block(kind, badge, name, _call_note(call), _pre(call.response)))
            lines.append(f"[{name.lower()}] {_call_note(call)}\n{call.response}")
    ending = f"End ({trajectory.stop}): {_ENDINGS[trajectory.stop]}."
    counts = (
        f"{len(trajectory.response_ids)} tokens after the prompt, "
        f"{trajectory.num_model_tokens} of them the model's; "
        f"{len(trajectory.calls)} tool calls, {trajectory.num_errors} of them failed."
    )
    return Rendered(
        html=f'{_STYLE}<div class="rs"><ol>{"".join(blocks)}</ol>'
        f"<p>{html.escape(ending)}<br>{counts}</p></div>",
        text="\n\n".join([*lines, f"{ending} {counts}"]),
    )


def show_tokens(
    ids: Sequence[int],
    mask: Sequence[int],
    log_probs: Sequence[float],
    decode: Decode,
    *,
    primed: Sequence[int] = (),
) -> Rendered:
    """A strip of tokens: who wrote each, and how likely the model's were.

    Args:
        ids: Token ids, shape [tokens].
        mask: 1 where the model wrote the token.
        log_probs: Log-probability of each when sampled; ignored at mask 0.
        decode: Turns ids into text.
        primed: Ids that the environment puts at the start of the model's turn
            (``<reason>``); shown apart, since they look like the model's and are not.

    Raises:
        ValueError: The three sequences differ in length.
    """
    if not len(ids) == len(mask) == len(log_probs):
        raise ValueError(
            f"ids, mask and log_probs differ in length: {len(ids)}, {len(mask)}, {len(log_probs)}"
        )
    kinds = _token_kinds(ids, mask, tuple(primed))
    cells, words = [], []
    for token, kind, log_prob in zip(ids, kinds, log_probs, strict=True):
        shown = _visible(decode([token]))
        chance = f"{math.exp(log_prob):.2f}" if kind == "model" else _LEGEND[kind][0]
        cells.append(
            f'<li class="tok {kind}"><code>{html.escape(shown)}</code>'
            f'<small><span class="sr">{_LEGEND[kind][1]}</span> {chance}</small></li>'
        )
        words.append(f"{shown}({chance})")
    key = "".join(
        f'<span><span class="tok {kind}">{_LEGEND[kind][0]}</span> {_LEGEND[kind][2]}</span>'
        for kind in ("model", "env", "primed")
        if kind in kinds
    )
    return Rendered(
        html=f'{_STYLE}<div class="rs"><div class="key">{key}</div>'
        f'<ol class="strip">{"".join(cells)}</ol></div>',
        text=" ".join(words),
    )


_ENVIRONMENT = ("env", "E", "Environment")

_LEGEND = {
    "model": ("0.93", "model, probability", "the model's, with its probability: in the loss"),
    "env": ("E", "environment", "the environment's: out of the loss"),
    "primed": ("P", "primed", "primed by the template: out of the loss"),
}


def _token_kinds(
    ids: Sequence[int], mask: Sequence[int], primed: tuple[int, ...]
) -> tuple[str, ...]:
    """Kind of each token; the end of an environment run that equals ``primed`` is primed."""
    kinds = ["model" if written else "env" for written in mask]
    for end in range(1, len(ids) + 1):
        start = end - len(primed)
        last = end == len(ids) or mask[end]
        closes_a_run = start >= 0 and last and not any(mask[start:end])
        if primed and closes_a_run and tuple(ids[start:end]) == primed:
            kinds[start:end] = ["primed"] * len(primed)
    return tuple(kinds)


def _visible(text: str) -> str:
    """White space that can be seen."""
    return text.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣")


def _block(kind: str, badge: str, name: str, note: str, body: str) -> str:
    return (
        f'<li class="turn {kind}"><div class="head"><span class="badge" aria-hidden="true">'
        f'{badge}</span><span>{name}</span><span class="note">{html.escape(note)}</span></div>'
        f"{body}</li>"
    )


def _call_note(call: ToolCall) -> str:
    if call.status is CallStatus.ERROR and call.error_type:
        return call.error_type
    return f"{call.status}, {call.error_type}" if call.error_type else str(call.status)


def _turn_html(turn: Turn) -> str:
    """The turn's text, each program shown as a program instead of its JSON."""
    rest, pieces = turn.text, []
    for call in turn.calls:
        before, found, after = rest.partition(call.raw) if call.code else (rest, "", "")
        if not found:
            continue
        pieces.append(_pre(before))
        pieces.append(f'<pre class="code">{html.escape(call.code)}</pre>')
        if call.stdin:
            pieces.append(f'<pre class="code">input: {html.escape(call.stdin)}</pre>')
        rest = after
    return "".join([*pieces, _pre(rest)])


def _pre(text: str) -> str:
    shown = html.escape(text.strip("\n"))
    for tag in _TAGS:
        name = html.escape(tag)
        shown = shown.replace(name, f'<span class="tag">{name}</span>')
    return f"<pre>{shown}</pre>" if shown else ""
