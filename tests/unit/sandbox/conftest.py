"""What the tests of the sandbox share."""

import asyncio
import sys
from collections.abc import Iterator

import pytest
from bench import LIMITS, Bench

from rstar2.sandbox import Sandbox

if sys.platform != "linux":
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="module")
def run() -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        sandbox = Sandbox(LIMITS, slots=4)
        runner.run(sandbox.__aenter__())
        yield Bench(runner, sandbox)
        runner.run(sandbox.__aexit__(None, None, None))
