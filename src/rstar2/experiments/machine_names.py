"""What names this machine or is secret on it, and the rules that take it out of a text."""

import html
import json
import os
import pwd
import re
import socket
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from rstar2.experiments.secret_forms import (
    FORMS,
    MARKERS,
    Rule,
    marker,
    may_be_secret,
    names_secret,
)

_COMMON_USERS = frozenset({"root", "user", "nobody", "jovyan", "ubuntu", "runner", "admin", "me"})
_COMMON_HOSTS = re.compile(
    "localhost|localdomain|ubuntu|debian|fedora|linux|laptop|desktop|server|worker|node|main|master"
    "|login|head|host|test|runner|machine|computer|notebook|jupyter|docker|container|default"
    "|python|code|stdout|stderr|cluster|frontend|removed",
    re.IGNORECASE,
)
_SYSTEM_FOLDERS = frozenset(
    {"", "/usr", "/usr/local", "/opt", "/tmp", "/var/tmp", "/usr/tmp", "/dev/shm"}
)

_PATH_ENDS = r"(?![\w+@~-]|\.\w|%(?:20|[89A-Fa-f][0-9A-Fa-f]))"
_INSIDE_PATH = re.compile(
    r"(?:file:|\\[bfnrt]|(?<![\w.~/%+@-])(?!(?<=:)//))(?:[/~.][\w.~/%+@-]*)?\Z"
)
"""What may stand before a folder, on its line, so that it is one of a path and not of a URL."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What must not stand in a notebook.

    Attributes:
        folders: Absolute folders, and what each becomes; the root and system folders are let
            stand.
        hosts: Names of the host; one that many machines have is let stand.
        users: Names of the user; one that many machines have is let stand.
        secrets: Values that are secret, by the name of their variable.
    """

    folders: tuple[tuple[str, str], ...] = ()
    hosts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def here(cls, root: Path, environment: Mapping[str, str] = os.environ) -> "Machine":
        """Looks at this process.

        Args:
            root: The checkout.
            environment: Variables of the environment.
        """
        home = environment.get("HOME") or os.path.expanduser("~")
        folders = [(str(root.absolute()), "."), (home, "~"), (tempfile.gettempdir(), "<tmp>")]
        if sys.prefix != sys.base_prefix or "CONDA_PREFIX" in environment:
            folders.append((sys.prefix, "<venv>"))
        users = {environment.get("USER", ""), environment.get("LOGNAME", "")}
        with suppress(KeyError):  # a container may run under a number without a name
            users.add(pwd.getpwuid(os.getuid()).pw_name)
        host = socket.gethostname()
        return cls(
            folders=tuple(folders),
            hosts=(host, host.split(".")[0]),
            users=tuple(sorted(users)),
            secrets={
                name: value.strip()
                for name, value in sorted(environment.items())
                if names_secret(name) and may_be_secret(value) and not _is_file(value.strip())
            },
        )


def rules(machine: Machine) -> tuple[Rule, ...]:
    """All replacements, in their order: secrets, then folders, the longest first, then names."""
    return (*_secret_rules(machine), *FORMS, *_name_rules(machine))


def _secret_rules(machine: Machine) -> Iterator[Rule]:
    values: dict[str, str] = {}
    for name, value in machine.secrets.items():
        for form in _forms(value):
            values.setdefault(form, marker(name))
    if values:
        longest_first = sorted(values, key=lambda form: (-len(form), form))
        pattern = f"{MARKERS}|(?:{'|'.join(map(re.escape, longest_first))})"
        yield Rule(
            tuple(longest_first), re.compile(pattern), lambda match: values.get(match[0], match[0])
        )


def _name_rules(machine: Machine) -> Iterator[Rule]:
    for form, replacement in _folder_forms(machine.folders):
        yield _folder_rule(form, replacement)
    for user in dict.fromkeys(machine.users):
        if len(user) > 1 and user not in _COMMON_USERS:
            yield _user_rule(user)
    for host in sorted(set(machine.hosts), key=len, reverse=True):
        if _is_telling(host):
            word = rf"{MARKERS}|(?:(?<![\w-])|(?<=\\[bfnrt])){re.escape(host)}(?![\w-])"
            needles = (host, host.lower(), host.upper(), host.capitalize())
            yield Rule(needles, re.compile(word, re.IGNORECASE), _host_marker)


def _host_marker(match: re.Match[str]) -> str:
    return match[0] if re.fullmatch(MARKERS, match[0]) else "<host>"


def _folder_rule(form: str, replacement: str) -> Rule:
    """A folder at the boundaries of a path: not the end of a longer one, nor a part of a name."""
    path = re.escape(form)
    begins = (
        rf"(?:(?<![\w.~/%+@-]{path})|(?<=\\[bfnrt]{path})|(?<=[\d\[;]m{path})|(?<=file://{path})"
        rf"|(?<=^-[A-Z]{path})|(?<=^/{path})|(?<=[^:\w.~/%+@-]/{path})|(?<=\s-[A-Z]{path}))"
    )
    if form.startswith("%"):
        begins = ""
    return Rule((form,), re.compile(path + begins + _PATH_ENDS), lambda _: replacement)


def _user_rule(user: str) -> Rule:
    """The user's name as a folder of a path, or at the end of one: ``pytest-of-anna``."""
    name = re.escape(user)

    def replace(match: re.Match[str]) -> str:
        before = match.string[max(0, match.start() - 301) : match.start() - 1]
        return "<user>" if _INSIDE_PATH.search(before) else match[0]

    return Rule((user,), re.compile(rf"{name}(?<=[/_-]{name}){_PATH_ENDS}"), replace)


def _folder_forms(folders: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """All ways to write the folders, the longest first."""
    found: dict[str, str] = {}
    homes = [folder.rstrip("/") for folder, replacement in folders if replacement == "~"]
    for folder, replacement in folders:
        for place in (folder.rstrip("/"), os.path.realpath(folder).rstrip("/")):
            if not place.startswith("/") or place in _SYSTEM_FOLDERS:
                continue
            short = [f"~{place[len(home) :]}" for home in homes if place.startswith(f"{home}/")]
            for form in (form for name in (place, *short) for form in _forms(name)):
                found.setdefault(form, replacement)
    return sorted(found.items(), key=lambda item: (-len(item[0]), item[0]))


def _forms(text: str) -> list[str]:
    """A text as it is, and as JSON, HTML, URLs and the shell write it."""
    forms = []
    for plain in (text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)):
        escaped = [json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]]
        whole = quote(plain, safe="", errors="surrogatepass")
        forms += [plain, *escaped, *(json.dumps(form)[1:-1] for form in escaped)]
        forms += [html.escape(plain), plain.replace("/", r"\/"), plain.replace(" ", r"\ ")]
        forms += [quote(plain, errors="surrogatepass"), whole, whole.replace("%2F", "%2f")]
    return list(dict.fromkeys(forms))


def _is_file(value: str) -> bool:
    return os.path.isabs(value) and os.path.exists(value)


def _is_telling(host: str) -> bool:
    """Whether a host's name says which machine it is."""
    plain = host.isalpha() and (len(host) < 4 or _COMMON_HOSTS.fullmatch(host) is not None)
    return any(map(str.isalpha, host)) and len(host) > 2 and not plain and "localhost" not in host
