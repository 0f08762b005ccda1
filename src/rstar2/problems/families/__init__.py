"""The laptop's problem families, by name: fifteen that are trained and two that never are."""

from collections.abc import Mapping
from types import MappingProxyType

from rstar2.problems.families.counting import (
    coin_ways,
    digit_sum_count,
    palindromes,
    primes_in_range,
)
from rstar2.problems.families.digits import digits_of_power, zeros_and_bases
from rstar2.problems.families.divisibility import (
    binomial_mod,
    divisors,
    gcd_lcm,
    modular_power,
    two_remainders,
)
from rstar2.problems.families.draft import Draft, Family
from rstar2.problems.families.sums import (
    collatz,
    power_sum_mod,
    recurrence_mod,
    sum_of_multiples,
)
from rstar2.problems.families.unseen import count_of_multiples, ones_in_binary

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "sum_of_multiples": sum_of_multiples,
        "digit_sum_count": digit_sum_count,
        "modular_power": modular_power,
        "gcd_lcm": gcd_lcm,
        "divisors": divisors,
        "digits_of_power": digits_of_power,
        "binomial_mod": binomial_mod,
        "recurrence_mod": recurrence_mod,
        "primes_in_range": primes_in_range,
        "coin_ways": coin_ways,
        "two_remainders": two_remainders,
        "palindromes": palindromes,
        "power_sum_mod": power_sum_mod,
        "zeros_and_bases": zeros_and_bases,
        "collatz": collatz,
    }
)
"""The families that training draws from."""

UNSEEN_FAMILIES: Mapping[str, Family] = MappingProxyType(
    {"count_of_multiples": count_of_multiples, "ones_in_binary": ones_in_binary}
)
"""The families that only evaluation draws from."""

__all__ = ["FAMILIES", "UNSEEN_FAMILIES", "Draft", "Family"]
