"""What is printed for Slurm, Kubernetes and Ray: the texts, and what bash does with them."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rstar2.experiments.resources import ResourcesSpec
from rstar2.experiments.schedulers import (
    Array,
    SchedulerError,
    kubernetes_manifest,
    ray_script,
    slurm_script,
)
from rstar2.experiments.schedulers.slurm import compact

GOLDEN = Path(__file__).with_name("data") / "schedulers"

ONE_GPU = ResourcesSpec(
    nodes=1,
    gpus_per_node=1,
    cpus_per_node=8,
    memory_gib_per_node=48,
    hours=24,
    image="ghcr.io/example/rstar2:0.1.0",
)
MI300X_64 = ResourcesSpec(
    nodes=8, gpus_per_node=8, cpus_per_node=96, memory_gib_per_node=1800, hours=36.5, image=None
)
LAPTOP = ResourcesSpec(
    nodes=1, gpus_per_node=0, cpus_per_node=2, memory_gib_per_node=4, hours=0.05, image=None
)

SMALL = Array("sweeps/small.yaml", ((0, 1, 2, 3, 7), (4, 5, 6)), ONE_GPU, at_once=2)
PAPER = Array("sweeps/paper 64.yaml", ((0,), (1, 2), (), (5,)), MI300X_64, at_once=1)

Printer = Callable[[Array], str]
PRINTERS: list[Printer] = [slurm_script, kubernetes_manifest, ray_script]


def goldens() -> dict[str, str]:
    return {
        "small-slurm.sh": slurm_script(SMALL),
        "small-kubernetes.yaml": kubernetes_manifest(SMALL),
        "small-ray.sh": ray_script(SMALL),
        "paper-64-slurm.sh": slurm_script(PAPER),
        "paper-64-ray.sh": ray_script(PAPER),
    }


# --- the texts ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", goldens())
def test_the_texts_are_the_ones_that_were_read(name: str) -> None:
    assert goldens()[name] == (GOLDEN / name).read_text(encoding="utf-8")


def test_every_golden_file_is_compared() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == goldens().keys()


@pytest.mark.parametrize("name", [name for name in goldens() if name.endswith(".sh")])
def test_shellcheck_has_nothing_to_say(name: str) -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    command = [shellcheck, "--norc", "--enable=quote-safe-variables", GOLDEN / name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("printer", PRINTERS)
@pytest.mark.parametrize("waves", [(), ((),), ((), ())])
def test_nothing_to_do_is_said(printer: Printer, waves: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(SchedulerError, match=r"^sweeps/small\.yaml: nothing to do"):
        printer(replace(SMALL, waves=waves))


@pytest.mark.parametrize(
    ("sweep", "name"),
    [
        ("sweeps/grpo_roc.yaml", "rstar2-grpo-roc"),
        ("GRPO (2).v2.yaml", "rstar2-grpo-2-v2"),
        ("-.yaml", "rstar2-sweep"),
        ("実験.yaml", "rstar2-sweep"),
        (f"{'a' * 35}-{'b' * 300}.yaml", f"rstar2-{'a' * 35}"),
    ],
)
def test_jobs_are_called_after_the_file_of_the_sweep(sweep: str, name: str) -> None:
    assert replace(SMALL, sweep=sweep).name == name


@given(st.text())
@example("İ.yaml")
def test_a_pod_of_the_last_index_of_a_late_wave_has_a_dns_label(sweep: str) -> None:
    pod = f"{replace(SMALL, sweep=sweep.replace(chr(0), '')).name}-wave-99-99999"
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", pod)


def test_a_path_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(SchedulerError, match="not UTF-8"):
        replace(SMALL, sweep=os.fsdecode(b"sweeps/\xff.yaml"))


def test_at_least_one_task_runs_at_a_time() -> None:
    with pytest.raises(ValueError, match="at_once is 0"):
        replace(SMALL, at_once=0)


# --- Slurm: what it is asked for ---------------------------------------------------------


@given(st.lists(st.integers(0, 200), min_size=1))
def test_the_indices_of_an_array_are_the_tasks(numbers: list[int]) -> None:
    read: list[int] = []
    for part in compact(tuple(numbers)).split(","):
        low, _, high = part.partition("-")
        read += range(int(low), int(high or low) + 1)
    assert read == sorted(set(numbers))


def test_the_indices_are_written_short() -> None:
    assert compact((7, 2, 1, 0, 3, 9, 10)) == "0-3,7,9-10"


def options(text: str) -> dict[str, str]:
    """The #SBATCH lines; they end before the first command, after which Slurm reads none."""
    head = text[: text.index("set -euo pipefail")]
    assert "#SBATCH" not in text.removeprefix(head)
    found = re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", head, re.MULTILINE)
    return dict(found)


def test_slurm_is_asked_for_the_resources_of_a_task() -> None:
    assert options(slurm_script(PAPER)) == {
        "job-name": "rstar2-paper-64",
        "nodes": "8",
        "ntasks-per-node": "1",
        "cpus-per-task": "96",
        "mem": "1800G",
        "gpus-per-node": "8",
        "time": "1-12:30:00",
        "requeue": "",
        "signal": "B:TERM@300",
        "open-mode": "append",
        "output": "runs/slurm/%x-%A_%a.log",
    }


def test_a_node_without_gpus_is_asked_for_none() -> None:
    array = replace(SMALL, resources=LAPTOP)
    assert "gpus-per-node" not in options(slurm_script(array))
    assert "gpu" not in ray_script(array)
    with_image = LAPTOP.model_copy(update={"image": "image"})
    assert "amd.com/gpu:" not in kubernetes_manifest(replace(SMALL, resources=with_image))


@given(st.floats(min_value=1e-3, max_value=24 * 365))
def test_the_signal_comes_well_before_the_time_limit(hours: float) -> None:
    resources = ONE_GPU.model_copy(update={"hours": hours})
    asked = options(slurm_script(replace(SMALL, resources=resources)))
    matched = re.fullmatch(r"(\d+)-(\d\d):(\d\d):00", asked["time"])
    assert matched
    days, hour, minute = map(int, matched.groups())
    limit = ((days * 24 + hour) * 60 + minute) * 60
    notice = int(asked["signal"].removeprefix("B:TERM@"))
    assert (hour < 24, minute < 60) == (True, True)
    assert hours * 3600 <= limit < hours * 3600 + 60
    assert notice == min(300, limit // 5)


def test_a_task_above_slurms_default_limit_is_told() -> None:
    assert "MaxArraySize" in slurm_script(replace(SMALL, waves=((1001,),)))
    assert "MaxArraySize" not in slurm_script(replace(SMALL, waves=((1000,),)))


def test_an_image_cannot_leave_its_comment() -> None:
    resources = ONE_GPU.model_copy(update={"image": "image\ntouch owned"})
    assert "\ntouch owned" not in slurm_script(replace(SMALL, resources=resources))


# --- Kubernetes: what it is asked for ----------------------------------------------------


def jobs(array: Array) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(kubernetes_manifest(array)))


def container(job: dict[str, Any]) -> dict[str, Any]:
    (found,) = job["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def test_a_wave_is_an_indexed_job() -> None:
    first, second = jobs(SMALL)
    for job, wave in zip((first, second), SMALL.waves, strict=True):
        assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
        assert job["metadata"]["labels"]["app.kubernetes.io/instance"] == "rstar2-small"
        assert job["spec"]["completionMode"] == "Indexed"
        assert job["spec"]["completions"] == len(wave)
        assert job["spec"]["parallelism"] == SMALL.at_once
    assert first["metadata"]["name"] == "rstar2-small-wave-1"
    assert second["metadata"]["name"] == "rstar2-small-wave-2"


def test_only_the_first_wave_begins_by_itself() -> None:
    first, second = jobs(SMALL)
    assert "suspend" not in first["spec"]
    assert second["spec"]["suspend"] is True
    comments = [line for line in kubernetes_manifest(SMALL).splitlines() if line.startswith("#   ")]
    assert [line.split()[2] for line in comments] == ["delete", "apply", "wait", "patch"]
    assert comments[2].endswith(" job/rstar2-small-wave-1")
    assert " job/rstar2-small-wave-2 " in comments[3]
    (patch,) = re.findall(r"--patch='(.*)'", comments[3])
    assert yaml.safe_load(patch) == {"spec": {"suspend": False}}


def test_no_more_pods_than_tasks_run_at_once() -> None:
    (job,) = jobs(replace(SMALL, waves=((3, 4),), at_once=10))
    assert job["spec"]["parallelism"] == 2


def test_a_stop_and_a_lost_node_are_tried_again_and_a_users_error_is_not() -> None:
    spec = jobs(SMALL)[0]["spec"]
    first, second, third = spec["podFailurePolicy"]["rules"]
    code = {"containerName": container(jobs(SMALL)[0])["name"], "operator": "In"}
    assert first == {"action": "FailIndex", "onExitCodes": {**code, "values": [2]}}
    assert second == {"action": "Ignore", "onExitCodes": {**code, "values": [143]}}
    assert third["action"] == "Ignore"
    assert third["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert spec["backoffLimitPerIndex"] == 2
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 300


def test_a_pod_gets_the_resources_and_the_checkout() -> None:
    job = jobs(SMALL)[0]
    run = container(job)
    asked = {"cpu": 8, "memory": "48Gi", "amd.com/gpu": 1}
    assert run["resources"] == {"requests": asked, "limits": asked}
    assert run["image"] == ONE_GPU.image
    assert run["workingDir"] == "/workspace"
    mounts = {mount["name"]: mount["mountPath"] for mount in run["volumeMounts"]}
    assert mounts == {"workspace": "/workspace", "shared-memory": "/dev/shm"}
    volumes = {volume.pop("name"): volume for volume in job["spec"]["template"]["spec"]["volumes"]}
    assert volumes == {
        "workspace": {"persistentVolumeClaim": {"claimName": "rstar2"}},
        "shared-memory": {"emptyDir": {"medium": "Memory"}},
    }


def test_kubernetes_refuses_a_task_of_several_nodes() -> None:
    with pytest.raises(SchedulerError, match=r"takes 8 nodes.*rstar2 batch ray"):
        kubernetes_manifest(PAPER)


def test_kubernetes_refuses_a_preset_without_an_image() -> None:
    with pytest.raises(SchedulerError, match=r"set resources\.image in the preset"):
        kubernetes_manifest(replace(SMALL, resources=LAPTOP))


# --- what bash does with them ------------------------------------------------------------

RECORD = """\
#!/bin/bash
printf '%s\\0' "$(($# + 1))" "${0##*/}" "$@" >>"$CALLS"
"""

RAY = f"""\
#!{sys.executable} -SE
import os, shlex, subprocess, sys
words = ["ray", *sys.argv[1:]]
with open(os.environ["CALLS"], "a", encoding="utf-8", errors="surrogateescape") as calls:
    calls.write("".join(f"{{word}}\\0" for word in [str(len(words)), *words]))
if words[2] == "list":
    sys.exit(os.path.exists("no-cluster"))
# As `ray job submit` does: what follows the first -- is joined and given to a shell elsewhere.
entrypoint = shlex.join(words[words.index("--") + 1 :])
sys.exit(subprocess.run(entrypoint, shell=True, cwd="/").returncode != 0)
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A folder whose bin/ stands first on the PATH; its commands write down what they were given.

    Attributes:
        folder: Where scripts run.
    """

    folder: Path

    def command(self, name: str, body: str = "", head: str = RECORD) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(head + body)
        path.chmod(0o755)

    def start(self, script: str, task: int | None = None) -> "subprocess.Popen[str]":
        """Runs a script with bash, as a person does, or as Slurm does for a task."""
        path = self.folder / "job.sh"
        path.write_text(script, encoding="utf-8", newline="")
        slurm = (
            {} if task is None else {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_JOB_ID": "9"}
        )
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        kept |= {"PATH": f"{self.folder / 'bin'}:{kept['PATH']}"}
        return subprocess.Popen(
            ["bash", "job.sh"],
            cwd=self.folder,
            env={**kept, **({} if task is None else slurm), "CALLS": str(self.folder / "calls")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str, task: int | None = None) -> "subprocess.CompletedProcess[str]":
        with self.start(script, task) as process:
            out, err = process.communicate(timeout=30)
        return subprocess.CompletedProcess(["bash"], process.returncode, out, err)

    def calls(self, name: str) -> list[list[str]]:
        """The words given to a command, for each time that it was called."""
        path = self.folder / "calls"
        words = path.read_bytes().decode().split("\0")[:-1] if path.exists() else []
        found = []
        while words:
            count = int(words[0])
            if words[1] == name:
                found.append(words[2 : count + 1])
            words = words[count + 1 :]
        return found


SBATCH = """\
[[ -f broken ]] && { echo "sbatch: error: Batch job submission failed" >&2; exit 1; }
number=$(grep -c . submitted 2>/dev/null)
echo "$((100 + number));cluster" | tee -a submitted
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    found = Cluster(tmp_path)
    found.command("sbatch", SBATCH)
    found.command("scontrol")
    found.command("rstar2")
    found.command("ray", head=RAY)
    return found


# --- Slurm: submission -------------------------------------------------------------------


def test_the_script_submits_itself_a_wave_after_the_other(cluster: Cluster) -> None:
    done = cluster.run(slurm_script(PAPER))
    assert (done.returncode, done.stderr) == (0, "")
    assert cluster.calls("sbatch") == [
        ["--parsable", "--array=0%1", "job.sh"],
        [
            "--parsable",
            "--array=1-2%1",
            "--dependency=afterok:100",
            "--kill-on-invalid-dep=yes",
            "job.sh",
        ],
        [
            "--parsable",
            "--array=5%1",
            "--dependency=afterok:101",
            "--kill-on-invalid-dep=yes",
            "job.sh",
        ],
    ]
    assert done.stdout.splitlines() == [
        "wave 1: job 100, tasks 0",
        "wave 2: job 101, tasks 1-2",
        "wave 3: job 102, tasks 5",
    ]
    assert (cluster.folder / "runs" / "slurm").is_dir(), "Slurm does not make the logs' folder"
    assert cluster.calls("rstar2") == []


def test_a_wave_that_cannot_be_submitted_stops_the_script(cluster: Cluster) -> None:
    (cluster.folder / "broken").touch()
    done = cluster.run(slurm_script(SMALL))
    assert done.returncode == 1
    assert "Batch job submission failed" in done.stderr
    assert len(cluster.calls("sbatch")) == 1


def test_a_script_that_is_no_file_says_so(cluster: Cluster) -> None:
    done = subprocess.run(
        ["bash"],
        input=slurm_script(SMALL),
        cwd=cluster.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "save this script in a file, then type: bash FILE\n"


# --- Slurm: a task -----------------------------------------------------------------------


def test_a_task_runs_the_one_command(cluster: Cluster) -> None:
    done = cluster.run(slurm_script(SMALL), task=7)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert cluster.calls("rstar2") == [["batch", "run", "--task", "7", "--", "sweeps/small.yaml"]]
    assert cluster.calls("scontrol") == []
    assert cluster.calls("sbatch") == []


def test_a_stopped_task_goes_back_to_the_queue_once(cluster: Cluster) -> None:
    cluster.command("rstar2", "exit 143\n")
    assert cluster.run(slurm_script(SMALL), task=7).returncode == 143
    assert cluster.calls("scontrol") == [["requeue", "Incomplete", "9_7"]]


@pytest.mark.parametrize("code", [1, 2, 137])
def test_a_failed_task_does_not(cluster: Cluster, code: int) -> None:
    cluster.command("rstar2", f"exit {code}\n")
    assert cluster.run(slurm_script(SMALL), task=7).returncode == code
    assert cluster.calls("scontrol") == []


def test_a_task_that_cannot_be_requeued_fails(cluster: Cluster) -> None:
    cluster.command("rstar2", "exit 143\n")
    cluster.command("scontrol", "echo 'Requested operation is presently disabled' >&2; exit 1\n")
    done = cluster.run(slurm_script(SMALL), task=7)
    assert done.returncode == 1
    assert "presently disabled" in done.stderr


STOPPABLE = """\
checkpoint() {{
    kill $!
    touch stopping
    until [[ -e allowed ]]; do sleep 0.02; done
    touch saved
    exit {code}
}}
trap checkpoint TERM
sleep 20 &
touch ready
wait
"""


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not come"
        time.sleep(0.01)


@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_to_the_script_reaches_the_command_and_is_waited_for(
    cluster: Cluster, signals: int
) -> None:
    cluster.command("rstar2", STOPPABLE.format(code=143))
    with cluster.start(slurm_script(SMALL), task=7) as script:
        wait_for(cluster.folder / "ready")
        for _ in range(signals):
            script.send_signal(signal.SIGTERM)
            wait_for(cluster.folder / "stopping")
            time.sleep(0.1)
            assert script.poll() is None, "it did not wait"
        assert cluster.calls("scontrol") == []
        (cluster.folder / "allowed").touch()
        script.communicate(timeout=30)
    assert script.returncode == 143
    assert (cluster.folder / "saved").exists()
    assert cluster.calls("scontrol") == [["requeue", "Incomplete", "9_7"]]


@pytest.mark.parametrize("code", [0, 2])
def test_a_task_that_ends_by_itself_while_it_is_stopped_is_not_requeued(
    cluster: Cluster, code: int
) -> None:
    cluster.command("rstar2", STOPPABLE.format(code=code))
    (cluster.folder / "allowed").touch()
    with cluster.start(slurm_script(SMALL), task=7) as script:
        wait_for(cluster.folder / "ready")
        script.send_signal(signal.SIGTERM)
        script.communicate(timeout=30)
    assert script.returncode == code
    assert cluster.calls("scontrol") == []


# --- Ray ---------------------------------------------------------------------------------


def option(words: list[str], name: str) -> str | None:
    """The value of an option of ``ray job submit``."""
    own = words[: words.index("--")]
    return own[own.index(name) + 1] if name in own else None


def submitted(cluster: Cluster) -> list[list[str]]:
    return [words for words in cluster.calls("ray") if words[:2] == ["job", "submit"]]


def test_each_task_is_a_job_that_runs_the_one_command_in_the_checkout(cluster: Cluster) -> None:
    cluster.command("rstar2", "pwd; exit 0\n")
    done = cluster.run(ray_script(SMALL))
    assert (done.returncode, done.stderr) == (0, "")
    tasks = [words.pop(3) for words in cluster.calls("rstar2")]
    assert sorted(tasks[:5]) == ["0", "1", "2", "3", "7"]
    assert sorted(tasks[5:]) == ["4", "5", "6"]
    ran = [words[:3] + words[4:] for words in cluster.calls("rstar2")]
    assert ran == [["batch", "run", "--task", "--", "sweeps/small.yaml"]] * 8
    logs = sorted((cluster.folder / "runs" / "ray").iterdir())
    assert {log.read_text() for log in logs} == {f"{cluster.folder}\n"}
    assert [log.stem for log in logs] == sorted(
        str(option(words, "--submission-id")) for words in submitted(cluster)
    )


def test_a_task_of_one_node_reserves_it_and_one_of_several_leaves_that_to_its_actors(
    cluster: Cluster,
) -> None:
    cluster.run(ray_script(replace(SMALL, waves=((0,),))))
    (words,) = submitted(cluster)
    assert option(words, "--entrypoint-num-cpus") == "8"
    assert option(words, "--entrypoint-num-gpus") == "1"
    environment = yaml.safe_load(str(option(words, "--runtime-env-json")))
    assert environment == {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "300"}}
    assert "--entrypoint" not in ray_script(PAPER)


def test_a_second_run_submits_under_new_names(cluster: Cluster) -> None:
    for _ in range(2):
        assert cluster.run(ray_script(SMALL)).returncode == 0
    names = [option(words, "--submission-id") for words in submitted(cluster)]
    assert len(set(names)) == len(names) == 16


TIMED = """\
echo "+$4" >>events
touch "started-$4"
[[ $4 != 0 ]] || until [[ -e started-1 ]]; do sleep 0.02; done
sleep 0.05
echo "-$4" >>events
"""


def test_no_more_tasks_run_at_a_time_than_asked_and_a_wave_waits_for_the_one_before(
    cluster: Cluster,
) -> None:
    cluster.command("rstar2", TIMED)
    assert cluster.run(ray_script(SMALL)).returncode == 0
    events = (cluster.folder / "events").read_text().split()
    running, most = 0, 0
    for event in events:
        running += 1 if event[0] == "+" else -1
        most = max(most, running)
    assert most == SMALL.at_once
    ended = [event for event in events[:10] if event[0] == "-"]
    assert sorted(ended) == ["-0", "-1", "-2", "-3", "-7"]


def test_a_failed_task_lets_its_wave_end_and_stops_the_next(cluster: Cluster) -> None:
    cluster.command("rstar2", "[[ $4 != 1 ]] || exit 2\n")
    done = cluster.run(ray_script(SMALL))
    assert done.returncode == 1
    assert re.fullmatch(r"task 1 failed: runs/ray/rstar2-small-1-\S+\.log\n", done.stderr)
    assert sorted(words[3] for words in cluster.calls("rstar2")) == ["0", "1", "2", "3", "7"]


def test_without_a_cluster_nothing_is_submitted(cluster: Cluster) -> None:
    (cluster.folder / "no-cluster").touch()
    done = cluster.run(ray_script(SMALL))
    assert done.returncode == 2
    assert done.stderr == "no Ray cluster answers here: type this on its head node\n"
    assert submitted(cluster) == []


# --- the sweep is one word, whatever is in it --------------------------------------------


def as_kubernetes_reads(text: str, names: dict[str, str]) -> str:
    """What a pod gets of a command: ``$(NAME)`` expanded where known, ``$$`` one dollar."""

    def expanded(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else names.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^()]*)\)", expanded, text)


HARD = st.sampled_from("a é'\"`\\$(){}[]<>|&;~#*?!%=-\n\t\r\x01\x7f\u2028/.")
SWEEPS = st.text(
    HARD | st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1
)


@pytest.fixture(scope="module")
def quoting(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    found = Cluster(tmp_path_factory.mktemp("quoting"))
    found.command("rstar2")
    found.command("ray", head=RAY)
    return found


@pytest.mark.thorough
@settings(max_examples=25)
@given(SWEEPS)
@example("-x.yaml")
@example("--task")
@example("it's $HOME $(touch owned) `touch owned`.yaml")
@example("$$(HOME) $(JOB_COMPLETION_INDEX) $$$")
@example("two\nlines\ntouch owned\n")
def test_rstar2_gets_the_very_word_that_was_typed(quoting: Cluster, sweep: str) -> None:
    array = replace(SMALL, sweep=sweep, waves=((3, 5),), at_once=1)
    resources = ONE_GPU.model_copy(update={"image": "image"})
    (job,) = jobs(replace(array, resources=resources))
    shell, flag, text = container(job)["command"]
    assert (shell, flag) == ("bash", "-c")
    pod = as_kubernetes_reads(text, {"HOME": "/root", "JOB_COMPLETION_INDEX": "1"})

    (quoting.folder / "calls").unlink(missing_ok=True)
    slurm = quoting.run(slurm_script(array), task=3)
    kubernetes = quoting.run(f"JOB_COMPLETION_INDEX=1\n{pod}")
    ray = quoting.run(ray_script(array))

    assert [slurm.returncode, kubernetes.returncode, ray.returncode] == [0, 0, 0]
    typed = [["batch", "run", "--task", task, "--", sweep] for task in "3535"]
    assert quoting.calls("rstar2") == typed
    assert not (quoting.folder / "owned").exists()
