"""The programs that are timed, each with the answer that it must give.

A program is written anew for every call: equal programs would let a cache stand in for work.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from rstar2.protocol.types import RunStatus
from rstar2.sandbox import Sandbox

TIMEOUT = 30.0
"""Seconds of a call whose time limit is not what is measured: nothing here comes near it."""


class WrongAnswer(RuntimeError):
    """A program did not print what it must: no figure of this run can be trusted."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    Attributes:
        code: Its text.
        output: What it prints, without the line's end.
    """

    code: str
    output: str

    async def run_in(self, sandbox: Sandbox) -> float:
        """Run it, check its answer, and give the seconds as the caller saw them.

        Raises:
            WrongAnswer: It failed or printed something else.
        """
        start = time.perf_counter()
        result = await sandbox.run(self.code, timeout=TIMEOUT)
        seconds = time.perf_counter() - start
        if result.status is not RunStatus.OK:
            raise WrongAnswer(f"{self.code!r} ended as {result.status}: {result.stderr}")
        self.check(result.stdout)
        return seconds

    def run_cold(self) -> float:
        """Run it as ``python -c`` with this interpreter, check it, and give the seconds.

        Raises:
            WrongAnswer: It failed or printed something else.
        """
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", self.code], capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - start
        self.check(done.stdout)
        return seconds

    def check(self, stdout: str) -> None:
        """Compare what was printed.

        Raises:
            WrongAnswer: It is not the answer.
        """
        if stdout.rstrip("\n") != self.output:
            raise WrongAnswer(f"{self.code!r} printed {stdout!r}, not {self.output!r}")


Maker = Callable[[int], Program]
"""Writes the program of call ``n``."""


async def warm_up(sandbox: Sandbox, *makers: Maker) -> None:
    """Run each program in all slots at once: a zygote is started when it is first needed."""
    for maker in makers:
        await asyncio.gather(*(maker(n).run_in(sandbox) for n in range(4 * sandbox.slots)))


def print_line(n: int) -> Program:
    """Print one number: the least that a call can do."""
    return Program(f"print({n})", str(n))


def eigenvalues(n: int) -> Program:
    """Find the eigenvalues of a small matrix with numpy."""
    code = f"import numpy as np\na = np.array([[{n}.0, 1.0], [1.0, {n}.0]])\n"
    code += "print(np.linalg.eigvalsh(a).round(6).tolist())"
    return Program(code, f"[{n - 1}.0, {n + 1}.0]")


def solve(n: int) -> Program:
    """Solve a cubic with sympy; its roots are three whole numbers."""
    a, b, c = n % 7 + 1, n % 7 + n % 3 + 2, n % 7 + n % 3 + n % 5 + 3
    polynomial = f"x**3 - {a + b + c}*x**2 + {a * b + b * c + c * a}*x - {a * b * c}"
    code = "from sympy import solve, symbols\nx = symbols('x')\n"
    return Program(f"{code}print(sorted(solve({polynomial}, x)))", f"[{a}, {b}, {c}]")


def solve_again(n: int) -> Program:
    """Solve the cubic that a zygote has rehearsed: the like of asking the same thing twice."""
    code = "from sympy import solve, symbols\nx = symbols('x')\n"
    code += f"print(sorted(solve(x**3 - 6*x**2 + 11*x - 6, x)), {n})"
    return Program(code, f"[1, 2, 3] {n}")
