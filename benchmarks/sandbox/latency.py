"""How long one call takes: its distribution, over the bare fork, with and without the jail."""

from statistics import mean, median

from benchmarks.sandbox.programs import Maker, Program, eigenvalues, print_line, solve, warm_up
from rstar2.sandbox import Rung, Sandbox, Tier

BLOCK = 10
"""Bare forks in a row, and then prints in a row."""

PAIRS = 4
"""Calls in turn with and without the jail, of each program, in each round."""

PROGRAMS: dict[Tier, dict[str, Maker]] = {
    Tier.BARE: {"print": print_line},
    Tier.SYMPY: {"print": print_line, "eigenvalues": eigenvalues, "solve": solve},
    Tier.FULL: {"print": print_line, "eigenvalues": eigenvalues, "solve": solve},
}
"""What each tier runs in the comparison with no jail."""

BY_DEFAULT = ("bare_print", "sympy_eigenvalues", "sympy_solve")
"""The three programs, each on the tier that the sandbox itself chooses for it."""


async def distributions(sandbox: Sandbox, full: Sandbox, samples: int) -> dict[str, list[float]]:
    """Time single calls, the arms taking turns.

    Args:
        sandbox: One with all tiers.
        full: One with the full tier alone.
        samples: Calls of each arm.

    Returns:
        Milliseconds of each call, in order, by ``latency_ms_<arm>``.
    """
    times: dict[str, list[float]] = {
        arm: [] for arm in ("cold_print", "bare_print", "sympy_solve", "full_print")
    }
    await warm_up(sandbox, print_line, solve)
    await warm_up(full, print_line)
    for n in range(samples):
        times["cold_print"].append(print_line(n).run_cold())
        times["bare_print"].append(await print_line(n).run_in(sandbox))
        times["sympy_solve"].append(await solve(n).run_in(sandbox))
        times["full_print"].append(await print_line(n).run_in(full))
    return {
        f"latency_ms_{arm}": [round(1000 * seconds, 3) for seconds in values]
        for arm, values in times.items()
    }


async def tier_by_tier(rounds: int) -> dict[str, float]:
    """Compare every tier with its own fork and with no jail.

    Args:
        rounds: Turns of each tier: a block of bare forks, a block of prints, and a few calls
            of each program with and without the jail.

    Returns:
        The bars' figures and what they are made of: milliseconds, and ratios of medians.
    """
    figures: dict[str, float] = {}
    for tier in Tier:
        async with (
            Sandbox(tiers=(tier,)) as jailed,
            Sandbox(tiers=(tier,), isolation=Rung.NONE) as free,
        ):
            for sandbox in (jailed, free):
                await warm_up(sandbox, *PROGRAMS[tier].values())
            figures |= await _one_tier(tier, jailed, free, rounds)
    figures["print_over_fork_floor"] = figures["full_print_over_floor"]
    figures["jail_over_nojail"] = max(figures[f"jail_over_nojail_{name}"] for name in BY_DEFAULT)
    return figures


async def _one_tier(tier: Tier, jailed: Sandbox, free: Sandbox, rounds: int) -> dict[str, float]:
    floors, prints = [], []
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS[tier]}
    for n in range(rounds):
        floors.append(await jailed.fork_floor(tier, BLOCK))
        prints.append(mean([await print_line(n).run_in(jailed) for _ in range(BLOCK)]))
        for name, maker in PROGRAMS[tier].items():
            for i in range(PAIRS):
                pairs[name].append(await _pair(maker(n + i), jailed, free, free_first=i % 2 == 0))
    figures = {
        f"{tier}_fork_floor_ms": 1000 * median(floors),
        f"{tier}_print_ms": 1000 * median(prints),
        f"{tier}_print_over_floor": median(prints) / median(floors),
        f"{tier}_print_over_floor_of_minima": min(prints) / min(floors),
    }
    for name, times in pairs.items():
        jailed_ms, free_ms = (1000 * median(arm) for arm in zip(*times, strict=True))
        figures |= {
            f"{tier}_{name}_jailed_ms": jailed_ms,
            f"{tier}_{name}_unjailed_ms": free_ms,
            f"jail_over_nojail_{tier}_{name}": jailed_ms / free_ms,
        }
    return figures


async def _pair(
    program: Program, jailed: Sandbox, free: Sandbox, free_first: bool
) -> tuple[float, float]:
    """Seconds of one program in the jail and without."""
    if free_first:
        without = await program.run_in(free)
        return await program.run_in(jailed), without
    return await program.run_in(jailed), await program.run_in(free)
