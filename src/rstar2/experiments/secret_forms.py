"""What a secret looks like: names of variables, forms of values; parameters that hold one."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rstar2.errors import UserError

_NAME = re.compile(
    r"(?:^|_)(?:(?<!EOS_)(?<!BOS_)(?<!PAD_)(?<!UNK_)(?<!CLS_)(?<!SEP_)(?<!MASK_)(?<!STOP_)"
    r"(?<!END_)(?<!START_)(?<!SPECIAL_)TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|AUTH|COOKIE"
    r"|CREDENTIALS?|AUTHORIZATION|(?:API|ACCESS|PRIVATE|SECRET|SIGNING|ENCRYPTION|AUTH|ACCOUNT"
    r"|STORAGE|MASTER|SERVICE|LICENSE|SUBSCRIPTION)_?KEY)(?:$|_)"
)
_ABOUT = re.compile(  # TOKEN_ID is a number of the vocabulary; ACCESS_KEY_ID goes with its key
    r"(?<!KEY)_IDS?$|_(?:PATH|FILE|DIR|FOLDER|NAME|TYPES?|MODE|METHOD|BACKEND|PROVIDER|SCHEME|USER"
    r"|USERNAME|HOST|PORT|DOMAIN|UR[LI]|ENDPOINT|VERSION|REGION|SOCK|LIMIT|COUNT|LENGTH|SIZE"
    r"|BUDGET|INDEX|TTL|TIMEOUT|EXPIRY|ENABLED|LEVEL|LOSS|ACCURACY)$"
)
_NO_SECRETS = frozenset({"disabled", "required", "optional", "password", "anonymous", "undefined"})
_SHORTEST = 8

Edit = tuple[int, int, str]
"""Start and end of what is replaced, and its replacement."""

MARKERS = "|".join(
    rf"{left}(?:removed \w{{1,80}}|host|user|venv|tmp){right}"
    for left, right in [("<", ">"), ("&lt;", "&gt;")]
)
"""Pattern of what stands where something was taken out, also as HTML."""


class SecretParameterError(UserError):
    """A parameter would put a secret into the record of a run."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One replacement.

    Attributes:
        needles: It is tried only on a text that holds one of these.
        pattern: What it looks for.
        replace: What takes the place of a match.
    """

    needles: tuple[str, ...]
    pattern: re.Pattern[str]
    replace: Callable[[re.Match[str]], str]

    def edits(self, text: str, markup: bool) -> list[Edit]:
        """What it would change, in order; in HTML and its kin a marker is written with entities."""
        if not any(needle in text for needle in self.needles):
            return []
        found = []
        for match in self.pattern.finditer(text):
            new = self.replace(match)
            new = _RAW_MARKER.sub(_escape, new) if markup else new
            if new != match[0]:
                found.append((match.start(), match.end(), new))
        return found

    def apply(self, text: str, markup: bool) -> str:
        """The text with its edits."""
        parts, done = [], 0
        for start, stop, new in self.edits(text, markup):
            parts += [text[done:start], new]
            done = stop
        return "".join([*parts, text[done:]]) if done else text


def names_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret: ``HF_TOKEN`` does, ``max_tokens`` not."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    upper = re.sub(r"\W+", "_", words).upper()
    return bool(_NAME.search(upper)) and not _ABOUT.search(upper)


def may_be_secret(value: str) -> bool:
    """Whether a value is long enough, and no plain setting, to be taken out everywhere."""
    return len(value.strip()) >= _SHORTEST and value.strip().lower() not in _NO_SECRETS


def has_secret_form(text: str) -> bool:
    """Whether a text holds what has the form of a secret."""
    return any(rule.apply(text, markup=False) != text for rule in FORMS)


def refuse_secret_parameters(params: Mapping[str, Any]) -> None:
    """Stops before a secret is recorded with the parameters of a run.

    Raises:
        SecretParameterError: A parameter, at any depth, is named like a secret and set, or its
            value or name has the form of one. The message holds neither.
    """
    for name, value in _leaves("", params):
        if has_secret_form(name):
            raise SecretParameterError(
                "the name of a parameter holds what looks like a secret, and parameters are "
                "recorded: give it as an environment variable"
            )
        named = value not in (None, "") and not isinstance(value, bool | float)
        named = named and any(names_secret(part) for part in name.split("."))
        if named or (isinstance(value, str) and has_secret_form(value)):
            why = "is named like a secret" if named else "holds what looks like a secret"
            raise SecretParameterError(
                f"parameter {name} {why}, and parameters are recorded: "
                "give it as an environment variable"
            )


def marker(name: str) -> str:
    """What stands where the value of ``name`` was."""
    word = re.sub(r"\W+", "_", name)[:80]
    return f"<removed {word or 'secret'}>"


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Each value at any depth, with its dotted name."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(name, item)
    else:
        yield name, value


def _escape(match: re.Match[str]) -> str:
    return f"&lt;{match[0][1:-1]}&gt;"


def _token(prefix: str, rest: str) -> Rule:
    """A token that begins with ``prefix``, not in the middle of a word.

    A word may follow an escaped line end or colour, as JSON writes them.
    """
    begins = rf"(?:(?<![\w-]{prefix})|(?<=\\[bfnrt]{prefix})|(?<=[\d\[]m{prefix}))"
    return Rule((prefix,), re.compile(prefix + begins + rest), lambda _: marker("token"))


def _assigned(match: re.Match[str]) -> str:
    name, sign = match["name"], match["quoted"] or match["bare"]
    value = match[0][len(name) + len(sign) :]
    return (
        f"{name}{sign}{marker(name)}" if names_secret(name) and may_be_secret(value) else match[0]
    )


_RAW_MARKER = re.compile(MARKERS.split("|&lt;")[0])
_QUOTE = r"(?:\\?[\"']|&\#?\w{1,5};)"
_KEY_TYPE = r"[A-Z0-9 ]{0,30}PRIVATE\ KEY(?:\ BLOCK)?-----"

FORMS: tuple[Rule, ...] = (
    Rule(
        ("PRIVATE KEY",),
        re.compile(
            rf"""-----BEGIN\ {_KEY_TYPE}
            (?:(?:(?!-----)[\s\S])*-----END\ {_KEY_TYPE}      # a whole one
            |(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{{16,}})+)        # one that was cut off""",
            re.VERBOSE,
        ),
        lambda _: marker("private_key"),
    ),
    _token("hf_", r"[A-Za-z0-9]{16,}"),
    _token("gh", r"[pousr]_[A-Za-z0-9]{16,}"),
    _token("github_pat_", r"\w{16,}"),
    _token("glpat-", r"[\w-]{16,}"),
    _token("sk-", r"[\w-]{0,200}?[A-Za-z0-9]{16}[\w-]*"),
    _token("sk_", r"(?:live|test)_\w{10,}"),
    _token("AKIA", r"[0-9A-Z]{16}(?!\w)"),
    _token("ASIA", r"[0-9A-Z]{16}(?!\w)"),
    _token("xox", r"[a-z]-[\w-]{10,}"),
    _token("AIza", r"[\w-]{35}"),
    _token("npm_", r"[A-Za-z0-9]{30,}"),
    _token("pypi-", r"[\w-]{50,}"),
    _token("gsk_", r"[A-Za-z0-9]{30,}"),
    _token("nvapi-", r"[\w-]{30,}"),
    _token("wandb_v1_", r"\w{20,}"),
    _token("eyJ", r"[\w-]{6,}\.[\w-]{6,}\.[\w-]{4,}"),
    Rule(
        ("://",),
        re.compile(
            r"(?P<scheme>://)(?:[^\s/@:\"'<>]*:(?!\d{1,5}(?:[/?\#]|$))[^\s\"'<>]{1,400}"
            r"|(?<=http://)[^\s/@:?\#\"'<>]{1,400}|(?<=https://)[^\s/@:?\#\"'<>]{1,400})@"
        ),
        lambda match: f"{match['scheme']}{marker('credentials')}@",
    ),
    Rule(
        ("uthorization", "UTHORIZATION"),
        re.compile(
            rf"(?P<name>authorization(?:{_QUOTE}|\s){{0,4}}[:=](?:{_QUOTE}|\s){{0,4}}"
            r"(?:bearer|basic|token|digest)\s+)[^\s\"'<>\\,&]{4,}",
            re.IGNORECASE,
        ),
        lambda match: match["name"] + marker("authorization"),
    ),
    Rule(
        ("earer ", "EARER "),
        re.compile(r"(?P<name>bearer\s+)(?=[^\s]*\d)[A-Za-z0-9._~+/=-]{16,}", re.IGNORECASE),
        lambda match: match["name"] + marker("authorization"),
    ),
    Rule(
        ("?", "&"),
        re.compile(
            r"(?P<name>[?&](?:amp;)?(?:api_?key|(?:access_|auth_?)?token|auth|password|secret|sig"
            r"|signature|x-amz-(?:signature|credential|security-token))=)[^&\s\"'<>\\\#]{8,}",
            re.IGNORECASE,
        ),
        lambda match: match["name"] + marker("token"),
    ),
    Rule(
        ("TOKEN", "SECRET", "PASS", "KEY", "AUTH", "CREDENTIAL", "COOKIE"),
        re.compile(
            rf"(?:(?<![\w$])|(?<=\\[bfnrt]))(?P<name>[A-Z][A-Z0-9_]{{3,60}}+)"
            rf"(?:(?P<quoted>{_QUOTE}?\s?[:=]\s?{_QUOTE})[^\"'\\\s<>&]{{8,400}}(?={_QUOTE})"
            r"|(?P<bare>=)(?!&lt;)[^\s\"'\\<>(\[{]{8,400}(?=[\s\"'\\<]|\Z))"
        ),
        _assigned,
    ),
)
"""Rules for values that give themselves away, or that an assignment in a text calls secret."""
