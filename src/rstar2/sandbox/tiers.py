"""What a zygote loads before it serves, and which zygote a program needs.

Using the libraries, not only importing them, is the largest gain of all: the first ``solve``
of a process costs twenty times the second. More than once through is no gain: what else sympy
would keep in its cache lies on further pages that every child has to copy.
"""

import gc
import importlib
import io
import re
import sys
from collections.abc import Collection

from rstar2.sandbox.limits import Tier

STANDARD = (
    *("bisect", "cmath", "collections", "copy", "datetime", "decimal", "enum", "fractions"),
    *("functools", "heapq", "itertools", "json", "math", "numbers", "operator", "random"),
    *("re", "statistics", "string", "textwrap", "time", "typing", "dataclasses", "threading"),
    *("tempfile", "secrets", "abc", "contextlib", "types", "traceback", "warnings"),
)
LIBRARIES = {
    Tier.BARE: (),
    Tier.SYMPY: ("numpy", "sympy"),
    Tier.FULL: ("numpy", "sympy", "scipy.optimize", "scipy.stats", "scipy.special"),
}
REHEARSALS = {
    "numpy": """
import numpy as np
A = np.arange(400.0).reshape(20, 20) + np.eye(20)
np.linalg.eigvals(A); np.linalg.solve(A, A); np.linalg.det(A); str(A); repr(A[0])
np.random.rand(3); np.random.default_rng().integers(9); np.polyfit([1, 2, 3], [1, 2, 3], 1)
""",
    "sympy": """
from sympy import *
x, y, n = symbols("x y n")
str(solve(x**3 - 6*x**2 + 11*x - 6, x)); str(solve([x + y - 3, x - y - 1], [x, y]))
str(simplify((x**2 - 1)/(x - 1))); str(expand((x + y)**5)); str(factor(x**4 - 1))
str(integrate(x*sin(x), x)); str(diff(exp(x)*x, x)); str(limit(sin(x)/x, x, 0))
str(summation(x, (x, 1, 10))); str(Rational(1, 3) + sqrt(2)); str(N(pi, 30)); latex(x**2)
factorint(360); isprime(97); nsolve(cos(x) - x, 1); str(Matrix([[1, 2], [3, 4]]).inv())
str(solve(x**2 - 2, x)); str(Eq(x, 1)); gcd(12, 18); divisors(12); binomial(5, 2); totient(9)
""",
    "scipy.optimize": """
from scipy.optimize import brentq, fsolve, minimize
minimize(lambda v: (v[0] - 1)**2, [0]); fsolve(lambda v: v**2 - 2, 1.0)
brentq(lambda t: t*t - 2, 0, 2)
""",
    "scipy.stats": "from scipy.stats import binom, norm\nnorm.cdf(0.3); binom.pmf(2, 5, 0.5)",
    "scipy.special": "from scipy.special import comb, gamma\ncomb(5, 2, exact=True); gamma(3.5)",
}
_NAME = re.compile(r"\b(?:numpy|sympy|scipy)\b")
_NEEDS = {"numpy": Tier.SYMPY, "sympy": Tier.SYMPY, "scipy": Tier.FULL}


def tier_for(code: str, allowed: Collection[Tier]) -> Tier:
    """The smallest allowed tier that has loaded what ``code`` imports, or the largest.

    Judged from its lines alone: a wrong guess costs time. It changes no answer, except of
    unseeded randomness, from which a late import draws.
    """
    order = list(Tier)
    needed = {
        _NEEDS[name]
        for line in code.splitlines()
        if "import" in line
        for name in _NAME.findall(line)
    }
    least = max(map(order.index, needed), default=0)
    fitting = [tier for tier in order[least:] if tier in allowed]
    return fitting[0] if fitting else max(allowed, key=order.index)


def load(tier: Tier) -> None:
    """Import what ``tier`` has and use it once."""
    for name in (*STANDARD, *LIBRARIES[tier]):
        importlib.import_module(name)
    stdout, sys.stdout = sys.stdout, io.StringIO()
    for name in LIBRARIES[tier]:
        for _ in range(2):
            exec(REHEARSALS[name], {"__name__": "__main__"})
    sys.stdout = stdout


def settle() -> None:
    """Drop what belongs to us, and keep the collector away from all that is loaded."""
    for name in [name for name in sys.modules if name.split(".")[0] == "rstar2"]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()
    gc.disable()
