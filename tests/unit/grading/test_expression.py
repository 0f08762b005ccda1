"""Answers that are not integers: what equals what, and what a hostile one cannot do."""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sympy
from hypothesis import example, given
from hypothesis import strategies as st

import rstar2.grading.expression_pool as pool_module
import rstar2.grading.expression_process as process_module
import rstar2.grading.expression_worker as worker_module
from rstar2.grading import BadGold
from rstar2.grading.expression import MAX_BOX, ExpressionGrader, ExpressionVerdict, Outcome
from rstar2.grading.expression_pool import ProcessPool
from rstar2.grading.expression_process import PoolUnavailable
from rstar2.grading.expression_worker import read_number

DATA = os.environ.get("RSTAR2_DATA")
HALF = r"\frac{1}{2}"
TOWER = "9^{9^{9^{9}}}"
SHORT = 0.5
"""Seconds: a deadline that easy comparisons keep on a busy machine."""

GOLDS = [
    *[HALF, r"-\frac{24}{25}", "0.25", "3.50", "1,234.5", r"12\%", r"30^\circ", r"\$18.90"],
    *[r"\sqrt{53}", r"9\sqrt{15}", r"\sqrt[3]{4}", r"8 \pi", r"1-\frac{2}{\pi}", r"\ln 2"],
    *["e^{-2}", r"\frac{\sqrt{3}+1}{2}", r"2^{25} \cdot 26!", "6 - 5i", r"\frac{1+i\sqrt3}{2}"],
    *["6r^2-4r-24", "15x - 80", "y = 2x + 3", "x^2+y^2=25", r"\frac{x+2}{7}", "(x-3)(x+7)"],
    *["(-2,1)", "(6,31,-1)", r"\left( 3, \frac{\pi}{2} \right)", "1,-2", r"\{1, 2, 3\}"],
    *["1 \\pm \\sqrt{19}", "(2,\\infty)", "[-2,7]", "[0,1)", r"(-\infty, 2) \cup (3, \infty)"],
    *["x > 5", r"-2 \le x \le 2", r"\begin{pmatrix} -1/3 \\ 2/3 \\ 5/3 \end{pmatrix}"],
    *[r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\text{Evelyn}", r"\text{(C)}"],
    *[r"\text{even}", "east", r"5.4 \text{ cents}", r"6 \text{ cm}^2", "2516_8", r"\sqrt{6}"],
    *[r"\frac{-1\pm\sqrt{17}}{2}, \frac{-1\pm\sqrt{13}}{2}", r"1-\frac{1}{\sqrt{2}}"],
]
"""Of the kinds that MATH-500 and HMMT have, written by hand."""
SAME = {
    HALF: [
        "0.5",
        r"\dfrac{2}{4}",
        r"\tfrac12",
        "1/2",
        r"50\%",
        r"x = \frac12",
        r" \frac12 ",
        "2^{-1}",
    ],
    r"\frac{1}{\sqrt{2}}": [r"\frac{\sqrt{2}}{2}", r"\sqrt{\frac12}", r"\sqrt{0.5}"],
    "3x+4": ["4+3x", "4 + x \\cdot 3"],
    "[-2,7]": [r"\left[-2,7\right]", "[-2, 7]"],
    "1,2": ["2,1", r"1 \text{ and } 2", r"\{1,2\}"],
    r"1 \pm \sqrt{19}": [r"1-\sqrt{19}, 1+\sqrt{19}"],
    r"\text{(C)}": ["(C)", r"\textbf{(C)}"],
    "x > 5": ["x>5", "5 < x", r"x \gt 5"],
    "2516_8": ["2516_{8}", "2516", "x = 2516_8", "1358_{10} = 2516_8"],
    "11_2, 5_8": ["5_8, 11_2"],
}
OTHER = {
    HALF: ["0.51", r"\frac{2}{1}", r"-\frac12", r"\frac12 \text{ or } \frac13", "2", "x"],
    "x^2+2x+1": ["x^2+2x", "(x-1)^2"],
    "[-2,7]": ["(-2,7)", "[-2,7)", "[2,7]"],
    "(-2,1)": ["(1,-2)", "(-2,1,0)"],
    r"1 \pm \sqrt{19}": [r"1+\sqrt{19}", r"2 \pm \sqrt{19}"],
    r"\text{even}": [r"\text{odd}", r"\text{eve}"],
    "2516_8": ["2516_9", "2516_{9}", "x = 2516_{10}", "2516_8 = 2516_9", "2517", "2517_8"],
    "11_2, 5_8": ["11_2, 5_9"],
    "x > 5": ["x < 5", r"x \ge 5"],
}


Grade = Callable[..., list[ExpressionVerdict]]
"""Grades (box, gold) pairs, in order."""


async def batch(grader: ExpressionGrader, answers: Iterable[tuple[str, str]]) -> Any:
    return [verdict async for verdict in grader.grade_each(answers)]


Body = Callable[[ExpressionGrader], Any]
"""A coroutine function of a grader."""
Shared = Callable[[Body], Any]


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    """Runs with one grader for all tests that do not ask for another; it is in no hurry."""
    with asyncio.Runner() as runner:
        grader = ExpressionGrader(2, deadline=10.0)
        runner.run(grader.__aenter__())
        yield lambda body: runner.run(body(grader))
        runner.run(grader.__aexit__(None, None, None))


@pytest.fixture
def grades(shared: Shared) -> Grade:
    return lambda *answers: shared(lambda grader: batch(grader, answers))


@pytest.fixture
def outcomes(grades: Grade) -> Callable[..., list[Outcome]]:
    return lambda *answers: [verdict.outcome for verdict in grades(*answers)]


Outcomes = Callable[..., list[Outcome]]


def fresh(body: Body, workers: int = 1, **options: Any) -> Any:
    """Run a coroutine function with a grader of its own."""

    async def run() -> Any:
        async with ExpressionGrader(workers, **options) as grader:
            return await body(grader)

    return asyncio.run(run())


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# --- what equals what ----------------------------------------------------------------------


def test_a_gold_answer_equals_itself_and_no_other(outcomes: Outcomes) -> None:
    same = outcomes(*((gold, gold) for gold in GOLDS))
    assert [gold for gold, outcome in zip(GOLDS, same, strict=True) if outcome != "correct"] == []
    shifted = GOLDS[1:] + GOLDS[:1]
    other = outcomes(*zip(shifted, GOLDS, strict=True))
    assert Outcome.CORRECT not in other


@pytest.mark.parametrize(("table", "outcome"), [(SAME, "correct"), (OTHER, "wrong")])
def test_what_is_written_otherwise_is_compared_by_value(
    outcomes: Outcomes, table: dict[str, list[str]], outcome: str
) -> None:
    pairs = [(box, gold) for gold, boxes in table.items() for box in boxes]
    found = outcomes(*pairs)
    assert [pair for pair, was in zip(pairs, found, strict=True) if was != outcome] == []


def test_what_a_box_says_about_a_final_answer_is_no_second_answer(outcomes: Outcomes) -> None:
    boxes = [
        r"\frac13$. The final answer is $\frac12",
        r"\frac13$. The final answer is $\frac12$. I hope it is correct",
        r"\frac13 \text{ answer: } \boxed{\frac12}",
        r"\boxed{\frac13}, \text{ so } \boxed{\frac12}",
        r"\frac13 and $\boxed{\frac12}$",
    ]
    assert outcomes(*((box, HALF) for box in boxes)) == [Outcome.WRONG] * len(boxes)


@pytest.mark.skipif(not DATA, reason="RSTAR2_DATA names no folder with math500 and hmmt25")
@pytest.mark.parametrize(("name", "count"), [("math500", 500), ("hmmt25", 30)])
def test_every_gold_answer_of_a_benchmark_equals_itself(
    outcomes: Outcomes, name: str, count: int
) -> None:
    lines = (Path(DATA or "") / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    golds = [str(json.loads(line)["answer"]) for line in lines]
    assert len(golds) == count
    same = outcomes(*((gold, gold) for gold in golds))
    assert [gold for gold, outcome in zip(golds, same, strict=True) if outcome != "correct"] == []


def test_a_box_without_an_answer_is_not_compared(grades: Grade) -> None:
    blank = grades(("", HALF), (" \n", HALF), ("1" * (MAX_BOX + 1), HALF))
    assert blank == [ExpressionVerdict(Outcome.NO_ANSWER, 0.0)] * 3
    unreadable = grades((r"\displaystyle", HALF), ("$", HALF))
    assert [verdict.outcome for verdict in unreadable] == [Outcome.UNREADABLE] * 2


@pytest.mark.parametrize("gold", ["", " ", "1" * (MAX_BOX + 1), r"\displaystyle"])
def test_a_gold_answer_that_says_nothing_is_an_error(grades: Grade, gold: str) -> None:
    with pytest.raises(BadGold, match="correct the label or drop the row"):
        grades(("1", gold))


def test_any_text_gets_an_outcome(outcomes: Outcomes) -> None:
    odd = ["\ud800", "\x00", "\n", "}{", "\\", "$$", "\\boxed{", "é" * 50, "[" * 80, '"', "nan"]
    found = outcomes(*((text + " 1", HALF) for text in odd))
    assert set(found) <= {Outcome.WRONG, Outcome.UNREADABLE}


# --- time and memory -----------------------------------------------------------------------

HOSTILE = [
    *[TOWER, "(10^9)!", "2^{10^9}", r"\log(" * 200 + "2" + ")" * 200],
    *[r"\sum_{k=1}^{10^8} \frac{1}{k^2}"],
]


@pytest.mark.thorough
def test_a_hostile_box_is_undecided_at_the_deadline_and_its_slot_goes_on() -> None:
    answers = [pair for box in HOSTILE for pair in ((box, HALF), ("0.5", HALF))]
    verdicts = fresh(lambda grader: batch(grader, answers), workers=2, deadline=SHORT)
    for verdict in verdicts[::2]:
        assert verdict.outcome in (Outcome.TIMEOUT, Outcome.CRASHED)
        assert not verdict.decided
        assert verdict.seconds < SHORT + 0.5
    assert all(verdict.correct for verdict in verdicts[1::2])


def test_a_flood_of_brackets_is_no_search(grades: Grade) -> None:
    (verdict,) = grades((r"\[ a " * 999, HALF))
    assert verdict.outcome is Outcome.WRONG
    assert verdict.seconds < 1


def test_a_hostile_box_does_not_slow_its_neighbours() -> None:
    async def body(grader: ExpressionGrader) -> tuple[bool, list[ExpressionVerdict]]:
        hostile = asyncio.create_task(grader.grade(TOWER, HALF))
        easy = [await grader.grade(f"{n}.5", HALF) for n in range(50)]
        return hostile.done(), easy

    hostile_done, easy = fresh(body, workers=2, deadline=10.0)
    assert not hostile_done
    assert all(verdict.decided and verdict.seconds < 1 for verdict in easy)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not limit memory")
def test_a_box_that_takes_all_memory_is_undecided_and_its_slot_goes_on() -> None:
    answers = [("2^{10^9}", HALF), ("0.5", HALF)]
    found = fresh(lambda grader: batch(grader, answers), deadline=20.0, memory=8 * 2**20)
    assert [verdict.outcome for verdict in found] == [Outcome.CRASHED, Outcome.CORRECT]


def test_an_answer_in_time_counts_though_the_loop_was_busy() -> None:
    async def body(grader: ExpressionGrader) -> ExpressionVerdict:
        grading = asyncio.create_task(grader.grade("0.5", HALF))
        for _ in range(3):
            await asyncio.sleep(0)  # the question is on its way
        time.sleep(SHORT + 0.2)
        return await grading

    assert fresh(body, deadline=SHORT).correct


# --- batches -------------------------------------------------------------------------------


def test_a_batch_keeps_its_order_and_takes_no_more_than_it_needs() -> None:
    taken = 0

    def answers() -> Iterator[tuple[str, str]]:
        nonlocal taken
        for n in range(100):
            taken += 1
            yield (TOWER if n == 3 else "0.5" if n % 2 else "0.7", HALF)

    async def body(grader: ExpressionGrader) -> tuple[list[Outcome], list[int]]:
        found, ahead = [], []
        async for verdict in grader.grade_each(answers()):
            found.append(verdict.outcome)
            ahead.append(taken - len(found))
        return found, ahead

    found, ahead = fresh(body, workers=2, deadline=SHORT)
    right, wrong = Outcome.CORRECT, Outcome.WRONG
    assert found == [wrong, right, wrong, Outcome.TIMEOUT, *[wrong, right] * 48]
    assert max(ahead) < 20


def test_an_empty_batch_is_no_answers(grades: Grade) -> None:
    assert grades() == []


# --- processes -----------------------------------------------------------------------------


async def kill(pids: Sequence[int]) -> None:
    """Kill processes and wait until they are dead: a signal may take its time."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    while any(map(alive, pids)):
        await asyncio.sleep(0.01)


def test_a_process_that_is_killed_at_work_is_a_crash(shared: Shared) -> None:
    async def body(grader: ExpressionGrader) -> list[Outcome]:
        grading = asyncio.create_task(grader.grade(TOWER, HALF))
        await asyncio.sleep(0.1)
        await kill(grader.pids)
        return [(await grading).outcome, (await grader.grade("0.5", HALF)).outcome]

    assert shared(body) == [Outcome.CRASHED, Outcome.CORRECT]


def test_a_process_that_died_idle_costs_no_answer(shared: Shared) -> None:
    async def body(grader: ExpressionGrader) -> Outcome:
        await kill(grader.pids)
        return (await grader.grade("0.5", HALF)).outcome

    assert shared(body) == Outcome.CORRECT


def test_an_answer_is_never_taken_for_that_of_a_cancelled_question(
    shared: Shared,
) -> None:
    async def body(grader: ExpressionGrader) -> list[Outcome]:
        grading = asyncio.create_task(grader.grade("(a+b)^{30}", HALF))
        await asyncio.sleep(0.001)
        grading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await grading
        return [(await grader.grade(box, HALF)).outcome for box in ("0.5", "0.7", "0.5", "0.7")]

    assert shared(body) == [Outcome.CORRECT, Outcome.WRONG] * 2


def test_leaving_ends_every_process_also_one_at_work() -> None:
    async def body(grader: ExpressionGrader) -> tuple[tuple[int, ...], "asyncio.Task[Any]"]:
        grading = asyncio.create_task(grader.grade(TOWER, HALF))
        waiting = asyncio.create_task(grader.grade(TOWER, HALF))
        await asyncio.sleep(0.1)
        grading.add_done_callback(lambda _: waiting.cancel())
        return grader.pids, grading

    async def run() -> None:
        async with ExpressionGrader(1) as grader:
            pids, grading = await body(grader)
        with pytest.raises(PoolUnavailable, match="closed before"):
            await grading
        assert not any(map(alive, pids))
        with pytest.raises(RuntimeError, match="use `async with`"):
            await grader.grade("0.5", HALF)

    asyncio.run(run())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it takes until the deadline")
def test_no_process_outlives_a_parent_that_is_killed() -> None:
    program = f"""
import asyncio
from rstar2.grading.expression import ExpressionGrader
async def main():
    async with ExpressionGrader(2, deadline=60) as grader:
        grading = asyncio.create_task(grader.grade({TOWER!r}, "1/2"))
        await asyncio.sleep(0.2)
        print(*grader.pids, flush=True)
        await grading
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(alive, pids))
        parent.kill()
    end = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(alive, pids))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_process_holds_nothing_of_its_parent() -> None:
    async def body(grader: ExpressionGrader) -> tuple[list[str], bytes]:
        folder = Path(f"/proc/{grader.pids[0]}")
        await grader.grade("0.5", HALF)
        held = [os.readlink(link) for link in (folder / "fd").iterdir()]
        return held, (folder / "environ").read_bytes()

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.set_inheritable(True)
        os.environ["RSTAR2_TEST_SECRET"] = "secret"
        try:
            held, environment = fresh(body)
        finally:
            del os.environ["RSTAR2_TEST_SECRET"]
        ours = os.readlink(f"/proc/self/fd/{server.fileno()}")
    assert ours not in held
    assert len({name for name in held if name.startswith("socket")}) == 1
    assert b"secret" not in environment


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise SystemExit(3)", "ended with exit code 3 before it was warm"),
        ("import os; os.abort()", "ended with exit code -6 before it was warm"),
        ("print('hello', flush=True)", r"said b'hello\\n' before it was warm"),
        ("import time; time.sleep(60)", "is not warm in 1 s"),
    ],
)
def test_a_script_that_does_not_come_up_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, message: str
) -> None:
    script = tmp_path / "broken.py"
    script.write_text(program + "\n")
    monkeypatch.setattr(process_module, "_WARM_SECONDS", 1.0)

    async def run() -> None:
        async with ProcessPool(script, workers=2, deadline=1, memory=2**30):
            pass

    with pytest.raises(PoolUnavailable, match=f"{message}.*import math_verify"):
        asyncio.run(run())


ECHO = f"""
import os, sys, time
sys.path.insert(0, {str(Path(worker_module.__file__).parent)!r})
from expression_worker import serve
if os.path.exists(__file__ + ".broken"):
    raise SystemExit(3)
def answer(question):
    if question[0] == "die":
        os._exit(1)
    time.sleep(float(question[1]) if question[0] == "sleep" else 0)
    return question[0]
serve(lambda: answer)
"""
"""A script that says what it is asked, dies if asked, and does not start where a file says so."""


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The script, and the file that keeps it from starting; a start is retried at once."""
    monkeypatch.setattr(pool_module, "_RETRY_SECONDS", 0.05)
    script = tmp_path / "echo.py"
    script.write_text(ECHO)
    return script, tmp_path / "echo.py.broken"


def echoing(script: Path, workers: int) -> ProcessPool:
    return ProcessPool(script, workers=workers, deadline=5.0, memory=2**30)


def test_while_one_process_lives_a_failed_start_costs_no_answer(echo: tuple[Path, Path]) -> None:
    script, broken = echo

    async def run() -> tuple[list[str], int, list[str], int]:
        async with echoing(script, workers=2) as pool:
            broken.touch()
            words = [(await pool.ask(("die",))).word]
            for n in range(8):
                words.append((await pool.ask((str(n),))).word)
                await asyncio.sleep(0.05)
            down_to = len(pool.pids)
            broken.unlink()
            while len(pool.pids) < 2:  # ends, or the test's own time limit does
                await asyncio.sleep(0.02)
            both = await asyncio.gather(*(pool.ask(("sleep", "0.2")) for _ in range(2)))
            return words, down_to, [reply.word for reply in both], len(pool.pids)

    words, down_to, both, up_to = asyncio.run(asyncio.wait_for(run(), 20))
    assert words == ["crashed", *map(str, range(8))]
    assert (down_to, up_to) == (1, 2)
    assert both == ["sleep", "sleep"]


@pytest.mark.parametrize("workers", [1, 2])
def test_when_none_lives_all_that_wait_are_told_and_the_pool_recovers(
    echo: tuple[Path, Path], workers: int
) -> None:
    script, broken = echo

    async def run() -> tuple[list[Any], list[Any]]:
        async with echoing(script, workers) as pool:
            broken.touch()
            asked = [("die",)] * workers + [("waits",)] * 5
            told = await asyncio.gather(*map(pool.ask, asked), return_exceptions=True)
            broken.unlink()
            while len(pool.pids) < workers:  # ends, or the test's own time limit does
                await asyncio.sleep(0.02)
            return told, [(await pool.ask((str(n),))).word for n in range(8)]

    told, words = asyncio.run(asyncio.wait_for(run(), 20))
    assert [reply.word for reply in told[:workers]] == ["crashed"] * workers
    assert all(isinstance(error, PoolUnavailable) for error in told[workers:])
    assert "exit code 3" in str(told[-1])
    assert words == [str(n) for n in range(8)]


@pytest.mark.skipif(sys.platform != "linux", reason="counts on how Linux limits descriptors")
def test_a_system_without_descriptors_is_a_failed_start(echo: tuple[Path, Path]) -> None:
    script, _ = echo
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def run() -> list[Any]:
        async with echoing(script, 1) as pool:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                told = await asyncio.gather(
                    pool.ask(("die",)), pool.ask(("waits",)), return_exceptions=True
                )
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            while not pool.pids:  # ends, or the test's own time limit does
                await asyncio.sleep(0.02)
            return [*told, await pool.ask(("again",))]

    died, waited, again = asyncio.run(asyncio.wait_for(run(), 20))
    assert (died.word, again.word) == ("crashed", "again")
    assert isinstance(waited, PoolUnavailable)
    assert "Too many open files" in str(waited)


def test_leaving_while_a_start_is_tried_again_ends_at_once(echo: tuple[Path, Path]) -> None:
    script, broken = echo

    async def run() -> None:
        before = asyncio.all_tasks()
        async with echoing(script, 2) as pool:
            broken.touch()
            await pool.ask(("die",))
            await asyncio.sleep(0.2)
        assert pool.pids == ()
        assert asyncio.all_tasks() == before

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize(
    "options", [{"workers": 0}, {"deadline": 0}, {"deadline": float("nan")}, {"memory": 0}]
)
def test_a_pool_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        ExpressionGrader(**options)


# --- no text becomes code ------------------------------------------------------------------


def in_worker(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a program that has the worker's module as ``worker``."""
    start = f"import sys; sys.path.insert(0, {str(Path(worker_module.__file__).parent)!r})\n"
    command = [sys.executable, "-c", start + "import expression_worker as worker\n" + program]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


COMPILES = """
compiled = []
def watch(event, arguments):
    if event == "compile":
        compiled.append(repr(arguments[0]))
for gold in ("x+1", r"\\gcd(4, 6)", r"\\int_0^1 x dx", "(1,2)"):
    worker.compare((gold, "1/2"))
sys.addaudithook(watch)
boxes = ["8675309", "8675309.5", r"\\frac{8675309}{2}", r"8{,}675{,}309", r"8675309\\%",
         r"\\operatorname{exit}(8675309)", r"\\text{exit(8675309)}", "exit(8675309)",
         r"\\boxed{sum(range(8675309))+\\pi}", r"\\mathit{__import__}('os8675309')",
         r"\\gcd(8675309, 1.5)", r"\\sin(8675309)", r"\\sum_{k=1}^{3} 8675309", "x_{8675309}",
         r"\\begin{pmatrix} 8675309 & 1 \\\\ 1 & 2 \\end{pmatrix}", "{8675309, 1}", "x=8675309"]
for box in boxes:
    worker.compare((r"\\frac{1}{2}", box))
    worker.compare(("x > 8675309", box))
print(sum("8675309" in text or "exit" in text or "os" == text for text in compiled))
"""


@pytest.mark.thorough
def test_no_text_of_a_box_is_compiled() -> None:
    sealed = in_worker("worker.seal()\n" + COMPILES)
    assert sealed.stdout == "0\n"
    unsealed = in_worker(COMPILES)
    assert int(unsealed.stdout) > 10


@given(st.from_regex(r"[0-9]{1,30}(\.[0-9]{1,30})?", fullmatch=True))
@example("0")
@example("0.0")
@example("1.50")
def test_a_number_is_read_as_sympy_reads_it(text: str) -> None:
    # As math-verify hands it over: without leading zeros.
    digits = text.lstrip("0") or "0"
    digits = "0" + digits if digits.startswith(".") else digits
    assert sympy.srepr(read_number(digits)) == sympy.srepr(sympy.Number(digits))


@pytest.mark.parametrize(
    "text", ["", ".", "e5", "1+1", "x", "1 2", "0x10", "1_0", "1j", "exit()", "٤"]
)
def test_all_else_is_no_number(text: str) -> None:
    with pytest.raises(SyntaxError):
        read_number(text)


@pytest.mark.parametrize(
    "attempt",
    [
        "import socket; socket.socket()",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import os; os.fork()",
        "import os; os.execv('/bin/true', ['true'])",
    ],
)
def test_a_process_that_reaches_out_ends(attempt: str) -> None:
    assert (
        in_worker(f"worker.seal()\n{attempt}\nprint('done')").returncode == worker_module.FORBIDDEN
    )


def test_a_process_can_write_no_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    done = in_worker(
        "worker.seal()\nopen(sys.argv[1], 'w', buffering=1).write('x\\n')", str(target)
    )
    assert "File too large" in done.stderr
    assert target.read_text() == ""
