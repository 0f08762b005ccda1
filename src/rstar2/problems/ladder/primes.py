"""Primes for the families that need them."""

import functools


@functools.cache
def primes_to(limit: int) -> tuple[int, ...]:
    """The primes up to and including ``limit``, by the sieve of Eratosthenes."""
    is_prime = bytearray([1]) * (limit + 1)
    is_prime[:2] = bytes(min(2, limit + 1))
    for n in range(2, int(limit**0.5) + 1):
        if is_prime[n]:
            is_prime[n * n :: n] = bytes(len(range(n * n, limit + 1, n)))
    return tuple(n for n in range(limit + 1) if is_prime[n])


@functools.cache
def upper_primes(limit: int) -> tuple[int, ...]:
    """The primes from half of ``limit`` to ``limit``."""
    return tuple(p for p in primes_to(limit) if 2 * p >= limit)


def factorised(n: int) -> dict[int, int]:
    """The primes of ``n`` with their exponents, by trial division; for n >= 1."""
    powers: dict[int, int] = {}
    divisor = 2
    while divisor * divisor <= n:
        while n % divisor == 0:
            powers[divisor] = powers.get(divisor, 0) + 1
            n //= divisor
        divisor += 1 if divisor == 2 else 2
    if n > 1:
        powers[n] = powers.get(n, 0) + 1
    return powers
