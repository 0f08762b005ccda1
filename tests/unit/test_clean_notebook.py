"""Clean notebooks: what is taken out, what is let stand, and that no place hides a secret."""

import base64
import copy
import json
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rstar2.experiments.clean_notebook import clean, clean_notebook
from rstar2.experiments.machine_names import Machine
from rstar2.experiments.notebook_files import NotebookError
from rstar2.experiments.secret_forms import (
    SecretParameterError,
    may_be_secret,
    names_secret,
    refuse_secret_parameters,
)

HOME = "/srv/people/anna"
MACHINE = Machine(
    folders=(
        (f"{HOME}/my próject", "."),
        (HOME, "~"),
        (f"{HOME}/my próject/.venv", "<venv>"),
        ("/scratch/job-17", "<tmp>"),
    ),
    hosts=("zeus-3.example.org", "zeus-3"),
    users=("anna",),
    secrets={"HF_TOKEN": 'correct "horse" & co', "WANDB_API_KEY": "s3cr3t+/value"},
)

# Put together here, so that no scanner of repositories takes them for real.
HUGGING_FACE = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
PEM = "-----BEGIN RSA {0}-----\nMIIEow/+=\nabc\n-----END RSA {0}-----".format("PRIVATE KEY")
FORMS = [
    HUGGING_FACE,
    "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345",
    "github_pat_" + "11ABCDEFG0123456789_abcdefghij",
    "sk-" + "proj-abcdefABCDEF0123456789",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "xoxb-" + "123456789012-abcdefghij",
    "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3",
    PEM,
]

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4).decode()


def notebook(*outputs: dict[str, Any], source: str = "", **metadata: Any) -> dict[str, Any]:
    """A notebook of one cell."""
    cell = {
        "id": "one",
        "cell_type": "code",
        "execution_count": 1,
        "metadata": {"tags": ["parameters"]},
        "source": source,
        "outputs": list(outputs),
    }
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": [cell]}


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def display(mime: str, value: Any) -> dict[str, Any]:
    return {"output_type": "display_data", "metadata": {}, "data": {mime: value}}


def cleaned(text: str, mime: str = "text/plain", machine: Machine = MACHINE) -> Any:
    """What an output of this text becomes."""
    once = clean(notebook(display(mime, text)), machine)
    assert clean(once, machine) == once
    return once["cells"][0]["outputs"][0]["data"][mime]


def texts(value: Any) -> Iterator[str]:
    """Every string at any depth, names of entries too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


# --- paths -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HOME, "~"),
        (f"{HOME}/data", "~/data"),
        (f"in {HOME}.", "in ~."),
        (f"{HOME}/my próject/src/a.py:3", "./src/a.py:3"),
        ("~/my próject/src/a.py:3", "./src/a.py:3"),
        (f"{HOME}/my próject/.venv/lib", "<venv>/lib"),
        ("/scratch/job-17/x", "<tmp>/x"),
        (f"file://{HOME}/my%20pr%C3%B3ject/x", "file://./x"),
        (f"?path={'%2F'.join(HOME.split('/'))}%2Fx", "?path=~%2Fx"),
        (json.dumps({"at": f"{HOME}/my próject/x"}), '{"at": "./x"}'),
        (json.dumps(json.dumps(f"a\n{HOME}/my próject/x")), r'"\"a\\n./x\""'),
        (rf"{HOME}/my próject/x".replace("/", r"\/"), r".\/x"),
        (f"-I{HOME}/include -L{HOME}/lib", "-I~/include -L~/lib"),
        (f"PATH=/bin:{HOME}/bin:{HOME}", "PATH=/bin:~/bin:~"),
        (f"\x1b[32m{HOME}/x\x1b[0m", "\x1b[32m~/x\x1b[0m"),
        (f"\x1b[35m{HOME}/my \x1b[0m\x1b[95mpróject\x1b[0m", "\x1b[35m.\x1b[0m\x1b[95m\x1b[0m"),
        ("/data/anna/x and /tmp/pytest-of-anna/y", "/data/<user>/x and /tmp/pytest-of-<user>/y"),
    ],
)
def test_a_path_of_the_machine_is_shortened(text: str, expected: str) -> None:
    assert cleaned(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        f"{HOME}bel/x",
        f"{HOME}-old",
        f"{HOME}.bak",
        "https://example.org/anna/x",
        "anna and hanna",
        "/data/hanna/x",
        "zeus-30, Xzeus-3, zeus",
        "/usr/lib /tmp/x",
    ],
)
def test_what_only_resembles_a_path_or_name_stands(text: str) -> None:
    assert cleaned(text) == text


def test_a_home_in_a_longer_path_or_a_url_is_another_folder() -> None:
    machine = Machine(folders=(("/root", "~"),))
    for text in ("/rootfs", "/var/root/x", "https://root/x", "https://x.org/root/", "../root/x"):
        assert cleaned(text, machine=machine) == text


@pytest.mark.parametrize("folder", ["/", "", "/usr", "/tmp", "/tmp/", "relative"])
def test_a_folder_that_every_machine_has_is_never_replaced(folder: str) -> None:
    text = "/ /usr/bin /tmp/x relative/y"
    assert cleaned(text, machine=Machine(folders=((folder, "~"),))) == text


def test_a_folder_is_known_by_its_resolved_name_too(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    machine = Machine(folders=((str(tmp_path / "link"), "."),))
    text = f"{tmp_path}/link/x {tmp_path}/real/x"
    assert cleaned(text, machine=machine) == "./x ./x"


@pytest.mark.parametrize("host", ["localhost", "laptop", "main", "pc", "42", "localhost-1"])
def test_a_host_that_has_no_name_of_its_own_stands(host: str) -> None:
    text = f"def {host}(): preset={host}"
    assert cleaned(text, machine=Machine(hosts=(host,))) == text


def test_the_host_goes_with_its_domain_and_in_any_case() -> None:
    assert cleaned("on zeus-3.example.org, ZEUS-3:80") == "on <host>, <host>:80"


def test_html_and_svg_stay_well_formed() -> None:
    text = f'<a href="{HOME}/x">{HOME}/<b>my próject</b>/x</a> zeus-3'
    assert cleaned(text, "text/html") == ('<a href="~/x">.<b></b>/x</a> &lt;host&gt;')
    assert cleaned("<svg><text>zeus-3</text></svg>", "image/svg+xml") == (
        "<svg><text>&lt;host&gt;</text></svg>"
    )


# --- secrets -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[:6].strip("-"))
@pytest.mark.parametrize("around", ["{}", "x={}\n", '"{}"', "({})", "\x1b[32m{}\x1b[0m", r"\n{} a"])
def test_what_has_the_form_of_a_secret_is_removed(form: str, around: str) -> None:
    result = cleaned(around.format(form))
    assert form not in result
    assert "<removed " in result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://u:p@ss@h.org/x", "https://<removed credentials>@h.org/x"),
        ("s3://key:sec/ret@bucket", "s3://<removed credentials>@bucket"),
        ("Authorization: Bearer a.b-c", "Authorization: Bearer <removed authorization>"),
        ('{"authorization": "Basic YTpi"}', '{"authorization": "Basic <removed authorization>"}'),
        ("/lab?token=0123456789abcdef&x=1", "/lab?token=<removed token>&x=1"),
        ("OTHER_API_KEY=abcdefgh12 ls", "OTHER_API_KEY=<removed OTHER_API_KEY> ls"),
        ("'OTHER_TOKEN': 'abcdefgh12'", "'OTHER_TOKEN': '<removed OTHER_TOKEN>'"),
        (f"{PEM[:31]}\n{'MIIEabcdefghijklm' * 3}", "<removed private_key>"),
    ],
)
def test_what_is_called_a_secret_is_removed(text: str, expected: str) -> None:
    assert cleaned(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost:8888/a@b",
        "git@example.org:a/b.git",
        "sk-learn-compatible-api and risk-abcdefghijklmnopqrstuv",
        "myself_abcdefghijklmnopqrstuvwxyz",
        'API_KEY = os.environ["API_KEY"]',
        "TOKENIZERS_PARALLELISM=disabled_1 MAX_TOKENS=123456789 EOS_TOKEN='<|im_end|>'",
        "-----BEGIN PRIVATE KEY----- is how a key begins",
        "the bearer understands authorization",
    ],
)
def test_what_only_resembles_a_secret_stands(text: str) -> None:
    assert cleaned(text) == text


def test_a_value_of_the_environment_is_removed_however_it_is_written() -> None:
    value = MACHINE.secrets["HF_TOKEN"]
    for written in (value, json.dumps(value)[1:-1], json.dumps(json.dumps(value))[3:-3]):
        assert cleaned(f"a{written}b") == "a<removed HF_TOKEN>b"
    assert cleaned("q=s3cr3t%2B%2Fvalue") == "q=<removed WANDB_API_KEY>"
    assert cleaned("correct &quot;horse&quot; &amp; co", "text/html") == "&lt;removed HF_TOKEN&gt;"


def test_a_secret_that_colours_or_tags_run_through_is_removed() -> None:
    halves = HUGGING_FACE[:20], HUGGING_FACE[20:]
    assert cleaned("\x1b[1m{}\x1b[32m{}\x1b[0m".format(*halves)) == (
        "\x1b[1m<removed token>\x1b[32m\x1b[0m"
    )
    assert cleaned("<i>{}</i><b>{}</b>".format(*halves), "text/html") == (
        "<i>&lt;removed token&gt;</i><b></b>"
    )


def test_a_secret_across_two_outputs_of_a_stream_is_removed() -> None:
    two = notebook(stream(f"a {HUGGING_FACE[:15]}"), stream(f"{HUGGING_FACE[15:]} b"), stream("c"))
    once = clean(two, MACHINE)
    assert once["cells"][0]["outputs"] == [stream("a <removed token> bc")]
    assert clean(once, MACHINE) == once


def test_a_secret_that_is_a_word_of_the_format_breaks_no_notebook() -> None:
    machine = Machine(
        secrets={"A_TOKEN": "metadata", "B_TOKEN": "traceback", "C_TOKEN": "text/plain"}
    )
    once = clean(notebook(display("text/plain", "metadata"), source="traceback"), machine)
    nbformat.validate(nbformat.from_dict(once))
    (cell,) = once["cells"]
    assert cell["source"] == "<removed B_TOKEN>"
    assert cell["outputs"][0]["data"] == {"text/plain": "<removed A_TOKEN>"}


def test_outputs_without_one_stay_apart() -> None:
    apart = notebook(stream("a"), stream("b"), stream("c", "stderr"), stream("d"))
    assert clean(apart, MACHINE) == apart


def test_entries_that_are_named_like_secrets_lose_their_values() -> None:
    papermill = {
        "parameters": {"api_key": "abcdefgh", "preset": "test", "max_tokens": 12345678},
        "environment_variables": {"OTHER_PASSWORD": "hunter2hunter2", "LANG": "C.UTF-8 & more"},
        "input_path": f"{HOME}/my próject/notebooks/10.ipynb",
    }
    assert clean(notebook(papermill=papermill), MACHINE)["metadata"]["papermill"] == {
        "parameters": {"api_key": "<removed api_key>", "preset": "test", "max_tokens": 12345678},
        "environment_variables": {
            "OTHER_PASSWORD": "<removed OTHER_PASSWORD>",
            "LANG": "C.UTF-8 & more",
        },
        "input_path": "./notebooks/10.ipynb",
    }


def test_names_of_entries_are_cleaned_and_none_is_lost() -> None:
    sizes = {f"{HOME}/a": 1, "~/a": 2}
    result = clean(notebook(display("application/json", sizes)), MACHINE)
    assert result["cells"][0]["outputs"][0]["data"]["application/json"] == {"~/a": 2, "~/a'": 1}


def test_tokens_of_a_tokenizer_are_no_secrets() -> None:
    tokens = {"token": "international", "eos_token": "<|endoftext|>", "token_name": "ä longer one"}
    whole = notebook(display("application/json", tokens))
    assert clean(whole, MACHINE) == whole


def test_pictures_stay_byte_for_byte() -> None:
    img = f'<img src="data:image/png;base64,{PNG}">'
    assert cleaned(PNG, "image/png") == PNG
    assert cleaned(f"{img} {HOME}", "text/html") == f"{img} ~"
    machine = Machine(secrets={"A_TOKEN": PNG[40:60]})
    assert cleaned(PNG, "image/png", machine) == PNG
    assert cleaned(img, "text/html", machine) == img


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("hfToken", True),
        ("token", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("AWS_ACCESS_KEY_ID", True),
        ("DB_PASSWORD", True),
        ("api-key", True),
        ("AUTH", True),
        ("GOOGLE_CREDENTIALS_JSON", True),
        ("max_tokens", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("token_limit", False),
        ("pad_token", False),
        ("HF_TOKEN_PATH", False),
        ("SSH_AUTH_SOCK", False),
        ("author", False),
        ("monkey", False),
        ("PWD", False),
        ("", False),
    ],
)
def test_which_names_say_secret(name: str, secret: bool) -> None:
    assert names_secret(name) is secret


# --- any notebook ------------------------------------------------------------------------

ANY_TEXT = st.text(max_size=30) | st.sampled_from(["/", "\n", "\x1b[1m", f"{HOME}/x", "</b>", "~"])
JSON_VALUES = st.recursive(
    ANY_TEXT | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
METADATA = st.dictionaries(ANY_TEXT, JSON_VALUES, max_size=3)


def any_notebook(text: st.SearchStrategy[str], metadata: st.SearchStrategy[Any]) -> Any:
    """Notebooks of all kinds of cells and outputs."""
    bundles = st.fixed_dictionaries(
        {"image/png": st.just(PNG)},
        optional={
            "text/plain": text,
            "text/html": text,
            "image/svg+xml": text,
            "text/latex": text,
            "application/json": metadata,
        },
    )
    streams = st.builds(stream, text, st.sampled_from(["stdout", "stderr"]))
    displays = st.fixed_dictionaries(
        {"output_type": st.just("display_data"), "data": bundles, "metadata": metadata}
    )
    errors = st.fixed_dictionaries(
        {
            "output_type": st.just("error"),
            "ename": text,
            "evalue": text,
            "traceback": st.lists(text, max_size=3),
        }
    )
    code = {
        "cell_type": st.just("code"),
        "execution_count": st.none(),
        "source": text,
        "metadata": metadata,
        "outputs": st.lists(streams | displays | errors, max_size=3),
    }
    prose = {"cell_type": st.just("markdown"), "source": text, "metadata": metadata}
    cells = st.lists(st.fixed_dictionaries(code) | st.fixed_dictionaries(prose), max_size=3)
    return st.builds(
        lambda cells, metadata: {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": metadata,
            "cells": [{**cell, "id": f"c{i}"} for i, cell in enumerate(cells)],
        },
        cells,
        metadata,
    )


def places(value: Any, key: str = "") -> Iterator[tuple[Any, Any]]:
    """Each container and key of a text into which a program could write anything."""
    kept = {"id", "cell_type", "output_type", "name", "image/png"}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, str) and key not in kept:
            yield value, key
        elif isinstance(item, dict | list):
            yield from places(item)


FORMAT = "metadata cell_type markdown execution_count output_type display_data traceback image/png"
"""Words of the format itself, which stand in every notebook, whatever is secret."""

VALUES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=8, max_size=20).filter(
    lambda value: value.strip() == value and may_be_secret(value)
)


@given(st.data())
def test_a_secret_of_the_environment_survives_at_no_place(data: st.DataObject) -> None:
    whole = data.draw(any_notebook(ANY_TEXT, METADATA))
    spots = list(places(whole))
    assume(spots)
    container, key = data.draw(st.sampled_from(spots))
    secret, before = data.draw(VALUES), data.draw(ANY_TEXT)
    assume(secret not in FORMAT)
    container[key] = before + secret + container[key]
    once = clean(whole, Machine(MACHINE.folders, MACHINE.hosts, MACHINE.users, {"X_KEY": secret}))
    assert not [text for text in texts(once["cells"]) if secret in text]
    assert not [text for text in texts(once["metadata"]) if secret in text]


@given(any_notebook(ANY_TEXT, METADATA), st.data())
def test_a_form_of_a_secret_survives_at_no_place(whole: Any, data: st.DataObject) -> None:
    spots = list(places(whole))
    assume(spots)
    container, key = data.draw(st.sampled_from(spots))
    secret = data.draw(st.sampled_from(FORMS))
    container[key] = f"{container[key]} {secret} "
    assert not [text for text in texts(clean(whole, MACHINE)) if secret in text]


@given(any_notebook(ANY_TEXT, METADATA), st.lists(ANY_TEXT | st.sampled_from(FORMS), max_size=5))
def test_cleaning_again_changes_nothing_and_what_is_valid_stays_valid(
    whole: Any, parts: list[str]
) -> None:
    whole["cells"].append({**notebook()["cells"][0], "source": "".join(parts)})
    before = copy.deepcopy(whole)
    once = clean(whole, MACHINE)
    assert whole == before, "the notebook that was given is not changed"
    assert clean(once, MACHINE) == once
    assert [cell["id"] for cell in once["cells"]] == [cell["id"] for cell in whole["cells"]]
    nbformat.validate(nbformat.from_dict(once))


PLAIN = st.text("abcdefghij XYZ.,()[]{}=+*'\"\n0123456789", max_size=40)


@given(any_notebook(PLAIN, st.dictionaries(PLAIN, PLAIN | st.integers(), max_size=3)))
def test_what_holds_nothing_of_the_machine_stays_equal(whole: Any) -> None:
    assert clean(whole, MACHINE) == whole


# --- this process ------------------------------------------------------------------------


def test_this_machine_is_looked_at_without_a_home_and_without_a_name(tmp_path: Path) -> None:
    machine = Machine.here(tmp_path, {})
    assert (str(tmp_path), ".") in machine.folders
    assert ((sys.prefix, "<venv>") in machine.folders) is (sys.prefix != sys.base_prefix)
    assert socket.gethostname() in machine.hosts
    assert machine.secrets == {}


def test_only_values_that_are_secrets_are_taken_from_the_environment(tmp_path: Path) -> None:
    environment = {
        "HF_TOKEN": " a-long-value\n",
        "SHORT_TOKEN": "1234567",
        "USE_AUTH": "true",
        "MY_AUTH": "disabled",
        "SERVICE_CREDENTIALS": str(tmp_path),
        "SSH_AUTH_SOCK": "/run/agent.sock",
        "LANG": "C.UTF-8",
    }
    assert Machine.here(tmp_path, environment).secrets == {"HF_TOKEN": "a-long-value"}


# --- files -------------------------------------------------------------------------------


@pytest.fixture
def executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes a notebook, with a secret in the environment."""
    monkeypatch.setenv("HOME", HOME)
    monkeypatch.setenv("SOME_SECRET", "open-sesame")

    def write(*outputs: dict[str, Any], **metadata: Any) -> Path:
        path = tmp_path / "executed.ipynb"
        node = nbformat.from_dict(notebook(*outputs, **metadata))
        nbformat.write(node, path)
        return path

    return write


def test_a_file_is_cleaned_once_and_valid(executed: Callable[..., Path], tmp_path: Path) -> None:
    text = f"open-sesame\n{tmp_path}/notebooks\n{HOME}/x\n"
    path = executed(stream(text), display("image/png", PNG), authors=[])
    clean_notebook(path, tmp_path)
    whole = nbformat.read(path, as_version=4)
    nbformat.validate(whole)
    printed, picture = whole.cells[0].outputs
    assert printed.text == "<removed SOME_SECRET>\n./notebooks\n~/x\n"
    assert picture.data["image/png"] == PNG

    first = path.read_bytes()
    clean_notebook(path, tmp_path)
    assert path.read_bytes() == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["executed.ipynb"]


def test_a_clean_file_is_not_written(executed: Callable[..., Path], tmp_path: Path) -> None:
    path = executed(stream("nothing"))
    path.write_bytes(path.read_bytes().replace(b"\n ", b"\n   "))
    before = path.read_bytes(), path.stat().st_ino
    clean_notebook(path, tmp_path)
    assert (path.read_bytes(), path.stat().st_ino) == before


def test_a_lone_surrogate_stays_what_it_is(executed: Callable[..., Path], tmp_path: Path) -> None:
    path = executed(stream("surrogate: MARK open-sesame ä"))
    path.write_bytes(path.read_bytes().replace(b"MARK", rb"\ud800"))
    clean_notebook(path, tmp_path)
    (cell,) = json.loads(path.read_bytes())["cells"]
    assert "".join(cell["outputs"][0]["text"]) == "surrogate: \ud800 <removed SOME_SECRET> ä"


def test_a_file_that_is_no_notebook_is_one_line_and_untouched(
    executed: Callable[..., Path], tmp_path: Path
) -> None:
    path = executed(stream("open-sesame"))
    whole = path.read_bytes()
    for content, told in [
        (whole[: len(whole) // 2], "half-written"),
        (b"", "half-written"),
        (b'{"cells": "\xff"}', "half-written"),
        (b"[" * 100_000, "half-written"),
        (b"[]", "no notebook of format 4"),
        (b'{"nbformat": 3, "worksheets": []}', "no notebook of format 4"),
        (b'{"nbformat": 4, "cells": [1]}', "no notebook of format 4"),
        (b'{"nbformat": 4, "cells": [{"cell_type": "code", "outputs": null}]}', "of format 4"),
        (
            b'{"nbformat": 4, "cells": [], "metadata": {"a": %s}}' % (b"[" * 900 + b"]" * 900),
            "nested too deeply",
        ),
    ]:
        path.write_bytes(content)
        with pytest.raises(NotebookError, match=told) as error:
            clean_notebook(path, tmp_path)
        assert "\n" not in str(error.value)
        assert path.read_bytes() == content
    with pytest.raises(NotebookError, match="No such file"):
        clean_notebook(tmp_path / "missing.ipynb", tmp_path)


@pytest.mark.notebook
def test_what_papermill_wrote_names_neither_machine_nor_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The traceback of a cell that fails holds paths, colours and what the cell had printed."""
    import papermill

    monkeypatch.setenv("SOME_SECRET", "open-sesame")
    source = (
        "import os, json\nfrom IPython.display import HTML, display\n"
        "print(dict(os.environ)['SOME_SECRET'], os.getcwd(), json.__file__)\n"
        "display(HTML(f\"<b>{os.environ['SOME_SECRET']}</b>\"))\n"
        "json.loads(os.environ['SOME_SECRET'] + os.path.expanduser('~'))"
    )
    cell = nbformat.v4.new_code_cell(source)
    (tmp_path / "checkout").mkdir()
    target = tmp_path / "checkout" / "out.ipynb"
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    whole = nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": spec})
    nbformat.write(whole, tmp_path / "checkout" / "in.ipynb")
    with pytest.raises(papermill.PapermillExecutionError):
        papermill.execute_notebook(
            tmp_path / "checkout" / "in.ipynb",
            target,
            {"told": "open-sesame"},
            kernel_name="python3",
            cwd=tmp_path / "checkout",
            progress_bar=False,
        )
    clean_notebook(target, tmp_path / "checkout")
    text = target.read_text()
    assert "<removed SOME_SECRET>" in text
    assert "&lt;removed SOME_SECRET&gt;" in text
    assert "./in.ipynb" in text
    home = Path.home()
    personal = [folder for folder in (tmp_path, home, Path(sys.prefix)) if len(folder.parts) > 1]
    for leak in ("open-sesame", *(f"{folder}/" for folder in personal)):
        assert leak not in text


# --- parameters --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"hf_token": "abc"},
        {"changes": {"engine.api_key": "abc"}},
        {"password": 12345678},
        {"model": HUGGING_FACE},
        {"data": ["https://u:pass@example.org/x"]},
        {HUGGING_FACE: 1},
    ],
)
def test_a_parameter_that_holds_a_secret_is_refused_in_one_line(params: dict[str, Any]) -> None:
    with pytest.raises(SecretParameterError) as told:
        refuse_secret_parameters(params)
    assert str(told.value).endswith("give it as an environment variable")
    assert "\n" not in str(told.value)
    assert "abc" not in str(told.value)
    assert HUGGING_FACE not in str(told.value)


def test_other_parameters_pass() -> None:
    refuse_secret_parameters({})
    refuse_secret_parameters(
        {
            "preset": "test",
            "seed": 1,
            "changes": {"rl.max_tokens": 8192, "rl.epsilon": 0.5, "sft.data": None},
            "out": "runs",
            "hf_token": "",
        }
    )
