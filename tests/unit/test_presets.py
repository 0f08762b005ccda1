"""Presets: every value says whose it is, a mistake is one line, the paper's are the paper's."""

import json
import math
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from rstar2.cli.preset import app
from rstar2.experiments import presets
from rstar2.experiments.preset_files import leaves, read_preset_file
from rstar2.experiments.presets import (
    FamilyPreset,
    LaboratoryPreset,
    Origin,
    Preset,
    PresetError,
    VerlPreset,
    load_preset,
    preset_names,
)
from rstar2.problems.data.registry import SOURCES, Role
from rstar2.protocol import PAPER, TokenTemplate
from rstar2.training.sft_mix import PAPER_MIX

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).parent / "data" / "presets"
NAMES = ("laboratory", "laptop", "mi300x-64", "mi300x-64-32b", "one-gpu", "test")
PRESETS = {name: load_preset(name) for name in NAMES}
PAPER_PRESETS = ("mi300x-64", "mi300x-64-32b")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of its own, in which the test stands."""
    return stand_in_copy(tmp_path / "checkout", monkeypatch)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One checkout for all examples of a property; each mends what it broke."""
    with pytest.MonkeyPatch.context() as patch:
        yield stand_in_copy(tmp_path_factory.mktemp("scratch") / "checkout", patch)


def stand_in_copy(root: Path, patch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "presets", root / "presets")
    shutil.copy(ROOT / "pyproject.toml", root)
    patch.setattr(presets, "project_root", lambda: root)
    return root


def fault(name: str, changes: Any = None) -> str:
    """The one line that a preset is refused with."""
    with pytest.raises(PresetError) as refused:
        load_preset(name, changes or {})
    line = str(refused.value)
    assert "\n" not in line
    return line


def written(root: Path, text: str) -> str:
    """The one line that this text is refused with as a preset."""
    (root / "presets" / "test.yaml").write_text(text, encoding="utf-8")
    return fault("test")


# --- all presets --------------------------------------------------------------------------


def test_these_are_the_presets() -> None:
    assert tuple(preset_names()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_value_has_an_origin(name: str) -> None:
    preset = PRESETS[name]
    told = dict(leaves(preset.model_dump(mode="json", exclude_unset=True), ""))
    assert preset.origins.keys() == told.keys()
    assert {place: setting.value for place, setting in preset.settings.items()} == told
    assert set(preset.origins.values()) <= set(Origin)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_the_papers_says_where_it_stands(name: str) -> None:
    for place, setting in PRESETS[name].settings.items():
        if setting.origin is Origin.PAPER:
            assert re.match(r"section \d|Figure \d|derived: ", setting.note), place


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_tells_what_to_expect_in_two_sentences_at_most(name: str) -> None:
    description = PRESETS[name].description
    assert "\n" not in description
    assert 1 <= len(re.findall(r"[.;](?: |$)", description)) <= 3
    assert len(description) < 220


def test_description_resources_and_cost_decide_no_number() -> None:
    aside = {"description": "Another.", "resources.hours": 3, "cost.sft": 1, "resources.nodes": 2}
    for name in NAMES:
        assert load_preset(name, aside).deciding_values() == PRESETS[name].deciding_values()
        changed = load_preset(name, {"rl.epsilon": 0.7})
        assert changed.deciding_values() != PRESETS[name].deciding_values()


def test_trainer_and_habit_say_which_sections_there_are() -> None:
    kinds = {"laboratory": LaboratoryPreset, "laptop": FamilyPreset, "test": FamilyPreset}
    for name, preset in PRESETS.items():
        assert type(preset) is kinds.get(name, VerlPreset)
        assert preset.trainer == ("torch" if name in kinds else "verl")


def test_pools_and_benchmarks_are_sets_that_the_data_commands_know() -> None:
    for preset in PRESETS.values():
        if isinstance(preset, VerlPreset):
            assert {SOURCES[name].role for name in preset.data.sources} == {Role.POOL}
            assert {SOURCES[name].role for name in preset.data.against} == {Role.BENCHMARK}
            measured = {b for size in preset.evaluation.values() for b in size.benchmarks}
            assert measured <= {*preset.data.against, "gpqa-diamond"}, "trained on what is measured"


def test_the_mix_of_the_cold_start_is_cut_where_the_paper_mix_is() -> None:
    preset = PRESETS["mi300x-64"]
    assert isinstance(preset, VerlPreset)
    assert preset.sft is not None
    assert preset.sft.max_tokens == PAPER_MIX.max_tokens


def test_a_preset_can_be_handed_to_another_process() -> None:
    for preset in PRESETS.values():
        again = pickle.loads(pickle.dumps(preset))
        assert (again, again.origins) == (preset, preset.origins)


# --- the paper's values -------------------------------------------------------------------

STAGE_1 = {"steps": 300, "max_response_tokens": 8192, "max_turns": 10, "data": "all"}
STAGE_2 = {"steps": 85, "max_response_tokens": 12288, "max_turns": 10, "data": "all"}
STAGE_3 = {"steps": 125, "max_response_tokens": 12288, "max_turns": 15, "data": "mined"}
OF_THE_PAPER: dict[str, Any] = dict(
    leaves(
        {
            "manifest": "paper",
            "model": {"path": "Qwen/Qwen3-14B-Base"},
            "data": {
                "problems": 42_000,
                "sources": ["dapo-17k", "aops", "euler"],
                "against": ["math500", "aime24", "aime25", "hmmt25"],
            },
            "sft": {
                "epochs": 3,
                "learning_rate": 5e-6,
                "warmup_share": 0.04,
                "schedule": "cosine",
                "batch_size": 128,
            },
            "stages": [STAGE_1, STAGE_2, {**STAGE_3, "reset_optimizer": True}],
            "rl": {
                "problems_per_step": 512,
                "group_size": 16,
                "oversample": 32,
                "temperature": 1.0,
                "refill": False,
                "normaliser": "group",
                "clip_low": 0.2,
                "clip_high": 0.28,
                "tool_penalty": 0.0,
                "overlong_filtering": False,
                "learning_rate": 1e-6,
                "warmup_steps": 20,
                "mining_samples": 8,
            },
            "evaluation": {
                "paper": {
                    "benchmarks": ["math500", "aime24", "aime25", "hmmt25", "gpqa-diamond"],
                    "samples": 16,
                    "temperature": 0.6,
                    "max_response_tokens": 30_720,
                    "max_turns": 30,
                }
            },
            "resources": {"nodes": 8, "gpus_per_node": 8},
            "cost": {"rl_step": 19.8},
        },
        "",
    )
)
OF_THE_RELEASE = {
    "limits.max_prompt_tokens": 2048,
    "limits.tool_timeout": 4.0,
    "rl.minibatches": 1,
    "rl.weight_decay": 0.01,
    "rl.grad_clip": 1.0,
    "engine.top_p": 1.0,
}
NOT_OF_32B = re.compile(r"sft\.|stages\.\d\.steps|stages\.2\.|resources\.|cost\.")


def values_of(preset: Preset, origin: Origin) -> dict[str, Any]:
    return {place: one.value for place, one in preset.settings.items() if one.origin is origin}


def test_the_values_of_the_paper_are_these() -> None:
    assert values_of(PRESETS["mi300x-64"], Origin.PAPER) == OF_THE_PAPER
    own = {"model.path": "Qwen/Qwen2.5-32B-Instruct", "sft": None}
    shared = {place: value for place, value in OF_THE_PAPER.items() if not NOT_OF_32B.match(place)}
    assert values_of(PRESETS["mi300x-64-32b"], Origin.PAPER) == shared | own


@pytest.mark.parametrize("name", PAPER_PRESETS)
def test_where_the_paper_is_silent_the_release_speaks(name: str) -> None:
    assert values_of(PRESETS[name], Origin.RELEASE) == OF_THE_RELEASE


def test_the_steps_and_gpus_of_the_paper_add_up() -> None:
    paper, larger = (PRESETS[name] for name in PAPER_PRESETS)
    assert sum(stage.steps for stage in paper.stages) == 510
    assert paper.resources.gpus == 64
    week = 7 * 24 * 60
    assert paper.cost.rl_step == pytest.approx(week / 510, abs=0.05)
    assert [stage.data for stage in larger.stages] == ["all", "all"]
    assert sum(stage.steps for stage in larger.stages) == 700


def test_one_gpu_takes_the_papers_values_where_it_says_so() -> None:
    for place, value in values_of(PRESETS["one-gpu"], Origin.PAPER).items():
        known = OF_THE_PAPER.get(place.replace("evaluation.results", "evaluation.paper"))
        assert value == known, place


# --- Figure 3 -----------------------------------------------------------------------------

QUESTION = "How many positive divisors does 360 have?"


def test_the_paper_presets_render_figure_3(tokenizer: PreTrainedTokenizerFast) -> None:
    golden = (DATA / "prompt.txt").read_text(encoding="utf-8")
    for name in PAPER_PRESETS:
        template = TokenTemplate(tokenizer, load_preset(name).texts)
        assert template.decode(template.prompt_ids(QUESTION)) + "\n" == golden
        assert template.manifest is PAPER


def test_the_prompt_differs_from_the_figure_in_two_places_only() -> None:
    figure = (DATA / "figure-3.txt").read_text(encoding="utf-8").replace("{Question}", QUESTION)
    golden = (DATA / "prompt.txt").read_text(encoding="utf-8")
    closed, primed = '"}}}</tools>', "assistant\n<reason>\n"
    mended = figure.replace(" </tools>\nFor", f"{closed}\nFor").replace(
        "assistant <think>\n", primed
    )
    assert figure.count(" </tools>\nFor") == figure.count("assistant <think>\n") == 1
    assert mended == golden


# --- reading ------------------------------------------------------------------------------

WHOLE = """\
--- !ours
text: !paper plain  # section 1
quoted: !paper "300"
count: !paper 300
rate: !paper 1e-6  # 1.0e-6 is the same
old: !release 1.0e-6
flag: !paper false
nothing: !ours null
list: !paper [0.9, 0.95]  # section 2
section: !release
  a: 1  # here
  b: !paper 2
  c: {d: 3}
rows:
  - x: !paper 1
    y: 2
folded: >-
  two
  lines
  # and this is text
empty: []
"""


def test_a_tag_holds_for_all_below_it_until_another(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(WHOLE)
    file = read_preset_file(path, "a.yaml")
    assert file.values == {
        "text": "plain",
        "quoted": "300",
        "count": 300,
        "rate": 1e-6,
        "old": 1e-6,
        "flag": False,
        "nothing": None,
        "list": [0.9, 0.95],
        "section": {"a": 1, "b": 2, "c": {"d": 3}},
        "rows": [{"x": 1, "y": 2}],
        "folded": "two lines # and this is text",
        "empty": [],
    }
    assert isinstance(file.values["count"], int)
    assert isinstance(file.values["rate"], float)
    paper = ["text", "quoted", "count", "rate", "flag", "list.0", "list.1", "section.b", "rows.0.x"]
    for place, setting in file.settings.items():
        released = place in ("old", "section.a", "section.c.d")
        expected = "paper" if place in paper else "release" if released else "ours"
        assert setting.origin == expected, place
    notes = {place: setting.note for place, setting in file.settings.items() if setting.note}
    assert notes == {
        "text": "section 1",
        "rate": "1.0e-6 is the same",
        "list.0": "section 2",
        "list.1": "section 2",
        "section.a": "here",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\n", ":1: a: whose value is it? Put one of !paper, !release, !ours before it"),
        ("a: !paper 1\nb:\n  c: []\n", ":3: b.c: whose value is it?"),
        ("a: !papr 1\n", ":1: a: unknown tag !papr; the tags are: !paper, !release, !ours"),
        ("a: !!set {x}\n", ":1: a: unknown tag !!set; the tags are: "),
        ("a: !!python/name:os.system x\n", ":1: a: unknown tag !!python/name:os.system; "),
        ("--- !ours\na: 1\nb: 2\na: 3\n", ":4: a: is set twice, first in line 2"),
        ("--- !ours\na: {x: 1, x: 1}\n", ":2: a.x: is set twice, first in line 2"),
        ("--- !ours\na: &b 1\nc: *b\n", ":3: not YAML: an alias; write the value out"),
        ("--- !ours\na: &b [*b]\n", ":2: not YAML: an alias"),
        ("--- !ours\na: 2020-01-01\n", ":2: a: '2020-01-01' is no text, number or boolean: quote"),
        ("--- !ours\n1: 2\n", ":2: '1' is no name of a setting"),
        ("--- !ours\na:\n  yes: 2\n", ":3: a: 'yes' is no name of a setting"),
        ('--- !ours\n"rl.epsilon": 2\n', ":2: 'rl.epsilon' is no name of a setting"),
        ("--- !ours\n? [a]\n: 2\n", ":2: a list or mapping is no name of a setting"),
        ("--- !ours\n<<: {a: 1}\n", ":2: '<<' is no name of a setting"),
        ("--- !ours\na: 1\n--- !ours\nb: 1\n", ":3: not YAML: expected a single document"),
        ("--- !ours\na: [1\nb: 2\n", ":3: not YAML: while parsing a flow sequence, expected ','"),
        ("--- !ours\n\ta: 1\n", ":2: not YAML: "),
        ("--- !ours\na: \x07\n", ": not YAML: "),
        (f"--- !ours\na: {'[' * 500}\n", ": lists or sections are nested too deep"),
        (f"--- !ours\na: {'9' * 5000}\n", ":2: a: '9999999999"),
        ("", ": the file is empty"),
        ("# only a comment\n", ": the file is empty"),
        ("--- !ours\n", ":1: the file is no mapping of settings"),
        ("--- !ours\n- a: 1\n", ":1: the file is no mapping of settings"),
    ],
)
def test_a_file_that_is_no_preset_is_one_line(text: str, message: str, checkout: Path) -> None:
    assert written(checkout, text).startswith(f"presets/test.yaml{message}")


def test_a_file_that_is_not_utf_8_is_one_line_with_the_place(checkout: Path) -> None:
    (checkout / "presets" / "test.yaml").write_bytes(b"--- !ours\nname: t\xe9st\n")
    assert fault("test") == "presets/test.yaml:2: not UTF-8: invalid continuation byte"


def test_a_file_that_cannot_be_read_is_one_line(checkout: Path) -> None:
    (checkout / "presets" / "folder.yaml").mkdir()
    assert fault("folder") == "presets/folder.yaml cannot be read: Is a directory"


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(checkout: Path) -> None:
    path = checkout / "presets" / "laptop.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_preset("laptop").settings == PRESETS["laptop"].settings


@pytest.mark.parametrize("name", ["nope", "", "../presets/test", "test.yaml", "TEST", None])
def test_an_unknown_preset_names_those_that_exist(name: Any) -> None:
    known = ", ".join(NAMES)
    assert fault(name) == f"there is no preset {name!r}; presets/ has: {known}"


# --- mistakes -----------------------------------------------------------------------------


def rewritten(root: Path, name: str, change: Callable[[dict[str, Any]], object]) -> str:
    """The one line that a preset is refused with after a change of its values."""
    path = root / "presets" / f"{name}.yaml"
    values = read_preset_file(path, name).values
    change(values)
    path.write_text("--- !ours\n" + yaml.safe_dump(values))
    return fault(name)


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "missing": (lambda p: p["rl"].pop("epsilon"), "rl.epsilon: is missing; rl has: problems_per"),
    "missing section": (lambda p: p.pop("limits"), "limits: is missing; a preset has: name, "),
    "no trainer": (lambda p: p.pop("trainer"), "trainer: is missing: give torch or verl"),
    "negative": (lambda p: p["stages"][1].update(steps=-1), "stages.1.steps: is -1: .* equal to 0"),
    "no number": (lambda p: p["rl"].update(epsilon="small"), "rl.epsilon: is 'small': give a num"),
    "a number as text": (lambda p: p["rl"].update(epsilon="0.5"), "rl.epsilon: is '0.5': give a n"),
    "half a problem": (
        lambda p: p["rl"].update(group_size=1.5),
        "rl.group_size: is 1.5: give a whole number",
    ),
    "text for a boolean": (
        lambda p: p["rl"].update(refill="true"),
        "rl.refill: is 'true': give true or false",
    ),
    "infinite": (lambda p: p["rl"].update(learning_rate=math.inf), "rl.learning_rate: .* finite"),
    "not a number": (lambda p: p["rl"].update(epsilon=math.nan), "rl.epsilon: is nan: .* finite"),
    "share above 1": (lambda p: p["noise"].update(slip=1.5), "noise.slip: is 1.5: .* equal to 1"),
    "unknown word": (
        lambda p: p["stages"][0].update(data="mind"),
        "stages.0.data: is 'mind': it should be 'all' or 'mined'",
    ),
    "unknown member": (
        lambda p: p["rl"].update(normaliser="grup"),
        "rl.normaliser: is 'grup': it should be 'batch' or 'group'",
    ),
    "unknown evaluation": (
        lambda p: p["evaluation"].update(bok=p["evaluation"].pop("book")),
        r"evaluation.bok: there is no such setting; did you mean book\? It has: book, results",
    ),
    "one evaluation": (lambda p: p["evaluation"].pop("book"), "evaluation: .* at least 2"),
    "a number for a section": (lambda p: p.update(rl=5), "rl: is 5: give a section with problems"),
    "one beta": (lambda p: p["rl"].update(adam_betas=[0.9]), "rl.adam_betas.1: is missing"),
    "no stage": (lambda p: p.update(stages=[]), r"stages: is \[\]: give at least 1"),
    "no step": (lambda p: [s.update(steps=0) for s in p["stages"]], "the stages have no step"),
    "2G below G": (lambda p: p["rl"].update(oversample=1, group_size=2), "rl.oversample: "),
    "keep more than sampled": (
        lambda p: p["rl"].update(group_size=9, oversample=4),
        "rl: oversample is 4, less than group_size 9",
    ),
    "nothing to mine": (
        lambda p: p["stages"][2].update(mine_problems=0),
        "stages.2: mine_problems is 0 with data: mined",
    ),
    "no batch": (lambda p: p["sft"].update(examples=3), "sft: examples is 3, less than batch_size"),
    "heads": (lambda p: p["model"].update(num_kv_heads=3), "model: num_heads is 2, no multiple"),
    "too long": (
        lambda p: p["model"].update(max_positions=300),
        r"a rollout may have 310 tokens, the model has 300 positions \(model.max_positions\)",
    ),
    "other name": (lambda p: p.update(name="laptop"), "name: is 'laptop', not that of the file"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_impossible_preset_is_one_line_with_the_place(name: str, checkout: Path) -> None:
    change, message = FAULTS[name]
    assert re.match(rf"presets/test.yaml(:\d+)?: {message}", rewritten(checkout, "test", change))


CLUSTER_FAULTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "other trainer": (lambda p: p.update(trainer="trl"), "trainer: is 'trl': give torch or verl"),
    "sections of torch": (
        lambda p: p.update(trainer="torch"),
        "(data|engine): there is no such setting",
    ),
    "too long": (
        lambda p: p["engine"].update(max_model_len=32_767),
        r"a rollout may have 32768 tokens, the model has 32767 .*\(engine.max_model_len\)",
    ),
    "a row that is split": (
        lambda p: p["rl"].update(micro_batch_tokens=14_335),
        "rl.micro_batch_tokens is 14335: a rollout of training may have 14336 tokens",
    ),
    "a conversation that is split": (
        lambda p: p["sft"].update(micro_batch_tokens=8191),
        "sft.micro_batch_tokens is 8191: a conversation may have 8192 tokens",
    ),
    "no GPU": (lambda p: p["resources"].update(gpus_per_node=0), "resources.gpus_per_node is 0"),
    "servers across nodes": (
        lambda p: p["engine"].update(tensor_parallel=16),
        "resources.gpus_per_node is 8, no multiple of engine.tensor_parallel 16",
    ),
    "a schedule": (
        lambda p: p["sft"].update(schedule="cosin"),
        "sft.schedule: is 'cosin': it should be 'cosine', 'linear' or 'constant'",
    ),
    "below what is null": (
        lambda p: p["sft"].update(epochs=None),
        "sft.epochs: is None: give a whole number",
    ),
}


@pytest.mark.parametrize("name", CLUSTER_FAULTS)
def test_an_impossible_preset_of_verl_is_one_line(name: str, checkout: Path) -> None:
    change, message = CLUSTER_FAULTS[name]
    line = rewritten(checkout, "mi300x-64", change)
    assert re.match(rf"presets/mi300x-64.yaml(:\d+)?: {message}", line)


def typing_slips(name: str) -> st.SearchStrategy[str]:
    """A name with a letter doubled, dropped or changed."""
    places = st.integers(1, len(name) - 1)
    doubled = places.map(lambda n: name[:n] + name[n - 1] + name[n:])
    dropped = places.map(lambda n: name[:n] + name[n + 1 :])
    changed = st.tuples(places, st.sampled_from("aeiounrst_")).map(
        lambda pair: name[: pair[0]] + pair[1] + name[pair[0] + 1 :]
    )
    return (doubled | dropped | changed).filter(lambda slip: slip != name)


@given(data=st.data())
def test_any_misspelt_name_is_one_line_with_the_place_and_the_valid_names(
    data: st.DataObject, scratch: Path
) -> None:
    name = data.draw(st.sampled_from(NAMES))
    path = scratch / "presets" / f"{name}.yaml"
    text = path.read_text()
    lines = read_preset_file(path, name).lines
    place = data.draw(st.sampled_from([one for one in lines if not one[-1].isdigit()]))
    above, _, key = place.rpartition(".")
    slip = data.draw(typing_slips(key))
    rows = text.splitlines(keepends=True)
    row = rows[lines[place] - 1]
    rows[lines[place] - 1] = re.sub(rf"\b{key}:", f"{slip}:", row, count=1)
    try:
        path.write_text("".join(rows))
        line = fault(name)
    finally:
        path.write_text(text)
    misspelt = f"{above}.{slip}" if above else slip
    expected = f"presets/{name}.yaml:{lines[place]}: {misspelt}: there is no such setting"
    assert line.startswith(expected)
    assert re.search(rf"\b{key}\b", line.removeprefix(expected))


WRONG: dict[type, list[Any]] = {
    int: ["300", 1.5, True, None, [], {}, math.nan, math.inf],
    float: ["0.5", True, None, [], {}, math.nan, -math.inf],
    bool: ["true", 1, 0.0, None, [], {}],
    str: [5, True, [], {}, 1.5],
    type(None): [True, -1, [[]]],
}


@given(data=st.data())
def test_any_value_of_a_wrong_type_is_one_line_with_the_place(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    typed = dict(leaves(PRESETS[name].model_dump(mode="json", exclude_unset=True), ""))
    place = data.draw(st.sampled_from(sorted(typed)))
    wrong = data.draw(st.sampled_from(WRONG[type(typed[place])]))
    line = fault(name, {place: wrong})
    given_ = "nan" if wrong != wrong else repr(wrong)
    assert line.startswith(f"presets/{name}.yaml with changes: {place}: is {given_}: "), line


def test_what_was_given_is_shown_in_one_line_however_it_looks() -> None:
    line = fault("laptop", {"rl.normaliser": "two\nlines\x1b[31m" + "x" * 1000})
    assert len(line) < 200
    assert r"is 'two\nlines\x1b[31mxxx" in line


# --- changes ------------------------------------------------------------------------------


@given(data=st.data())
def test_a_change_to_the_same_value_changes_its_origin_alone(data: st.DataObject) -> None:
    preset = PRESETS[data.draw(st.sampled_from(NAMES))]
    places = data.draw(st.sets(st.sampled_from(sorted(preset.settings)), max_size=5))
    changed = load_preset(preset.name, {one: preset.settings[one].value for one in places})
    assert changed.model_dump() == preset.model_dump()
    expected = {
        one: Origin.OURS if one in places else preset.origins[one] for one in preset.origins
    }
    assert changed.origins == expected
    assert list(changed.settings) == list(preset.settings), "the order is the file's"


@given(
    epsilon=st.floats(1e-9, 1e9),
    steps=st.lists(st.integers(1, 10**12), min_size=3, max_size=3),
    refill=st.booleans(),
)
def test_changed_values_are_those_that_were_given(
    epsilon: float, steps: list[int], refill: bool
) -> None:
    changes: dict[str, Any] = {f"stages.{number}.steps": one for number, one in enumerate(steps)}
    preset = load_preset("mi300x-64", changes | {"rl.epsilon": epsilon, "rl.refill": refill})
    assert preset.rl.epsilon == epsilon
    assert preset.rl.refill is refill
    assert [stage.steps for stage in preset.stages] == steps
    assert preset.origins["stages.0.steps"] is Origin.OURS
    assert preset.origins["stages.0.max_turns"] is Origin.PAPER


def test_a_section_or_a_list_is_changed_whole() -> None:
    stage = PRESETS["laptop"].model_dump(mode="json")["stages"][0]
    preset = load_preset("laptop", {"stages": (stage,), "rl.adam_betas": [0.8, 0.9]})
    assert len(preset.stages) == 1
    assert preset.rl.adam_betas == (0.8, 0.9)
    assert "stages.1.steps" not in preset.origins
    assert preset.origins["stages.0.steps"] is Origin.OURS
    assert fault("laptop", {"rl": {"epsilon": 1}}).startswith(
        "presets/laptop.yaml with changes: rl.problems_per_step: is missing; rl has: "
    )


def test_changes_leave_the_preset_as_it_was() -> None:
    load_preset("laptop", {"rl.epsilon": 0.5, "stages.0.steps": 7})
    assert load_preset("laptop").settings == PRESETS["laptop"].settings


def test_an_integer_is_a_number_and_a_larger_base_is_a_change() -> None:
    assert load_preset("laptop", {"rl.temperature": 2}).rl.temperature == 2.0
    preset = load_preset("one-gpu", {"model.path": "Qwen/Qwen3-4B-Base"})
    assert isinstance(preset, VerlPreset)
    assert preset.model.path == "Qwen/Qwen3-4B-Base"


AT_LAPTOP = "presets/laptop.yaml with changes: "


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rl.epsilonn": 1},
            AT_LAPTOP + "rl.epsilonn: there is no such setting; did you mean epsilon? It has: prob",
        ),
        (
            {"rlx.epsilon": 1},
            AT_LAPTOP + "rlx: there is no such setting; did you mean rl? It has: ",
        ),
        ({"stages.3.steps": 1}, AT_LAPTOP + "stages.3: there is no such setting. It has: 0, 1, 2"),
        ({"stages.-1.steps": 1}, AT_LAPTOP + "stages.-1: there is no such setting"),
        ({"stages.00.steps": 1}, AT_LAPTOP + "stages.00: there is no such setting"),
        (
            {"rl.epsilon.x": 1},
            AT_LAPTOP + "rl.epsilon.x: there is no such setting. It has no names",
        ),
        ({"": 1}, AT_LAPTOP + ": there is no such setting. It has: "),
        ({"rl.": 1}, AT_LAPTOP + "rl.: there is no such setting. It has: "),
        ({5: 1}, AT_LAPTOP + "5 is no dotted place, as rl.epsilon"),
        ([("rl.epsilon", 1)], AT_LAPTOP + "give places and values, not [('rl.epsilon', 1)]"),
        ("rl.epsilon=1", AT_LAPTOP + "give places and values, not 'rl.epsilon=1'"),
        ({"rl.epsilon": {1, 2}}, AT_LAPTOP + "rl.epsilon: {1, 2} is no text, number, list or sect"),
        ({"rl.epsilon": {1: 2}}, AT_LAPTOP + "rl.epsilon: 1 is no name of a setting"),
        (
            {"rl": {}, "rl.epsilon": 1},
            AT_LAPTOP + "rl.epsilon: rl is changed too, and holds it",
        ),
        ({"sft.examples": 1}, AT_LAPTOP + "sft: examples is 1, less than batch_size 8"),
        ({"model.max_positions": 9}, AT_LAPTOP + "a rollout may have 480 tokens, the model has 9"),
        ({"name": "mine"}, AT_LAPTOP + "name: is 'mine', not that of the file"),
        (
            {"trainer": "verl"},
            "presets/laptop.yaml:18: pretrain: there is no such setting. It has: n",
        ),
    ],
)
def test_an_impossible_change_is_one_line(changes: Any, message: str) -> None:
    assert fault("laptop", changes).startswith(message)


def test_nothing_lies_below_an_sft_that_there_is_not() -> None:
    assert fault("mi300x-64-32b", {"sft.epochs": 1}).endswith(
        "sft.epochs: there is no such setting. It has no names below it"
    )


# --- the commands -------------------------------------------------------------------------


def typed(*words: str) -> str:
    """What a command prints into a pipe of 80 columns."""
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.output


def test_the_list_names_every_preset_and_what_to_expect() -> None:
    text = typed("list")
    for name, preset in PRESETS.items():
        assert re.search(rf"^{name} +{preset.trainer} +\S", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 80


def test_a_preset_is_shown_with_the_origin_of_every_value(tmp_path: Path) -> None:
    file = tmp_path / "new" / "preset.json"
    text = typed("show", "mi300x-64", "--json", str(file))
    assert re.search(r"^rl.temperature +1.0 +paper +section 5.1 *$", text, re.MULTILINE)
    assert re.search(r"^rl.epsilon +0.05 +ours", text, re.MULTILINE)
    assert re.search(r"^resources.image +null +ours", text, re.MULTILINE)
    told = json.loads(file.read_text(encoding="utf-8"))
    preset = PRESETS["mi300x-64"]
    assert {place: one["origin"] for place, one in told["settings"].items()} == preset.origins
    assert {place: one["value"] for place, one in told["settings"].items()} == {
        place: one.value for place, one in preset.settings.items()
    }
    for place in preset.settings:
        assert place == "description" or re.search(rf"^{re.escape(place)} ", text, re.MULTILINE)
