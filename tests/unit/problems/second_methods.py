"""Second methods: every family of the ladder read from its words and solved another way.

Nothing of the ladder is imported here. A wording is the text of a question with ``<name>`` where
a value stands and ``~`` for words that hold no digit, so that the words are what is checked. The
methods beside this file search plainly where that is quick enough, or take an algorithm that the
family does not use.
"""

from collections.abc import Callable

import second_counting as counting
import second_numbers as numbers
import second_structures as structures
from second_reading import Reading, SecondMethod

Size = Callable[[Reading], int]


def size_of(name: str) -> Size:
    return lambda r: r.int(name)


def length_of(name: str) -> Size:
    return lambda r: len(r.text(name))


def terms_of(name: str) -> Size:
    return lambda r: len(r.ints(name))


def rows_of(name: str) -> Size:
    return lambda r: len(r.tuples(name))


def days_of(r: Reading) -> int:
    """Days of a period, within a few: months are taken as 30 days."""
    first, last = (tuple(map(int, r.text(x).split("-"))) for x in ("start", "end"))
    return sum((b - a) * days for a, b, days in zip(first, last, (365, 30, 1), strict=True))


SECOND_METHODS: dict[str, SecondMethod] = {
    "modular_powers": SecondMethod(
        (
            "What is the remainder when <a>^<n> + <b>^<k> is divided by <m>?",
            "Add <a>^<n> and <b>^<k>. Which remainder does the sum leave on division by <m>?",
            "Compute <a>^<n> + <b>^<k> modulo <m>.",
        ),
        lambda r: min(r.ints("n", "k")),
        numbers.modular_powers,
    ),
    "remainders": SecondMethod(
        (
            "Each pair (r, m) says that n leaves remainder r when it is divided by m: <pairs>. "
            "What is the smallest positive integer n ~?",
            "Find the least integer n > 0 such that n mod m = r for every pair (r, m) ~: <pairs>.",
        ),
        rows_of("pairs"),
        numbers.remainders,
    ),
    "discrete_logarithm": SecondMethod(
        (
            "What is the smallest positive integer k for which <a>^k leaves remainder <r> when "
            "it is divided by <p>?",
            "Find the least k >= 1 with <a>^k = <r> modulo <p>.",
        ),
        size_of("p"),
        numbers.discrete_logarithm,
    ),
    "linear_congruence": SecondMethod(
        (
            "What is the smallest positive integer x for which <a>x + <b> leaves remainder <c> "
            "when it is divided by <m>?",
            "Find the least integer x > 0 with <a>x + <b> = <c> modulo <m>.",
        ),
        size_of("m"),
        numbers.linear_congruence,
    ),
    "quadratic_residues": SecondMethod(
        (
            "Call r a square modulo <p> if some integer x makes x^2 - r a multiple of <p>. Find "
            "the sum of all integers r from <low> to <high> inclusive that are squares modulo <p>.",
            "Squares of integers are divided by <p> and their remainders are collected, each value "
            "once. ~ that are at least <low> and at most <high>?",
        ),
        size_of("p"),
        numbers.quadratic_residues,
    ),
    "polynomial_value": SecondMethod(
        (
            "A polynomial P has these coefficients, from its highest power of x down to the "
            "constant term: <coefficients>. What is the remainder when P(<x>) is divided by <m>?",
            "Let P(x) be the polynomial with coefficients <coefficients>, highest power first, "
            "constant term last. Compute P(<x>) modulo <m>.",
        ),
        terms_of("coefficients"),
        numbers.polynomial_value,
    ),
    "matrix_power": SecondMethod(
        (
            "The rows of a 2 by 2 matrix M are <rows>. Add the four entries of M^<n>. What is the "
            "remainder of this sum on division by <m>?",
            "~ the matrix with rows <rows>. Find the sum of all entries of M^<n>, modulo <m>.",
        ),
        size_of("n"),
        numbers.matrix_power,
    ),
    "totient_sum": SecondMethod(
        (
            "For each n in the list <values>, count the integers from 1 to n that have no common "
            "factor with n except 1. What is the sum of these counts?",
            "Euler's totient of n is the number of integers from 1 to n that are coprime to n. "
            "Find the sum of the totients of <values>.",
        ),
        lambda r: min(r.ints("values")),
        numbers.totient_sum,
    ),
    "divisors_between": SecondMethod(
        (
            "Find the sum of all divisors d of <n> with <low> <= d <= <high>.",
            "Which positive integers divide <n> and lie between <low> and <high>, both ends "
            "included? Give their sum.",
        ),
        size_of("n"),
        numbers.divisors_between,
    ),
    "kth_prime": SecondMethod(
        (
            "List the primes greater than <n> in increasing order. Which prime is number <k> in "
            "the list, counting from 1?",
            "Starting with the first prime above <n> as number 1, what is prime number <k>?",
        ),
        size_of("k"),
        numbers.kth_prime,
    ),
    "coprime_products": SecondMethod(
        (
            "Take every pair (x, y) of integers with <a> <= x <= <b> and <c> <= y <= <d> whose "
            "greatest common divisor is 1. What is the sum of the products xy?",
            "x runs through the integers from <a> to <b> and y through those from <c> to <d>, ends "
            "included. Add up xy over all pairs (x, y) that are coprime.",
        ),
        lambda r: r.int("b") - r.int("a"),
        numbers.coprime_products,
    ),
    "divisible_by_any": SecondMethod(
        (
            "How many integers from <a> to <b> inclusive are divisible by at least one of "
            "<divisors>?",
            "Count the integers n with <a> <= n <= <b> that are a multiple of one or more of the "
            "numbers <divisors>.",
        ),
        size_of("b"),
        numbers.divisible_by_any,
    ),
    "pell": SecondMethod(
        (
            "The solutions of x^2 - <d>y^2 = 1 in positive integers are listed with x increasing. "
            "For solution number <k>, counting from 1, what is <a>x + <b>y modulo <m>?",
            "Sort all pairs of positive integers (x, y) with x^2 = <d>y^2 + 1 by x. Take pair "
            "number <k>, where the smallest is number 1, and find the remainder of <a>x + <b>y on "
            "division by <m>.",
        ),
        size_of("k"),
        numbers.pell,
    ),
    "continued_fraction": SecondMethod(
        (
            "The continued fraction t1 + 1/(t2 + 1/(t3 + ...)) with the terms <terms> equals p/q "
            "in lowest terms. Find p + q.",
            "Write the finite continued fraction whose partial quotients are, in order, <terms> "
            "as a reduced fraction p/q. What is p + q?",
        ),
        terms_of("terms"),
        numbers.continued_fraction,
    ),
    "farey_neighbour": SecondMethod(
        (
            "Among all fractions greater than <a>/<b> whose denominator is at most <n>, the "
            "smallest is p/q in lowest terms. Find p + q.",
            "In the Farey sequence of order <n>, which fraction p/q comes right after <a>/<b>? "
            "Give p + q.",
        ),
        size_of("n"),
        numbers.farey_neighbour,
    ),
    "base_product": SecondMethod(
        (
            "Multiply the base <base> numbers <x> and <y>. Write the product in base <base>.",
            "The numerals <x> and <y> are written in base <base>. What is the base <base> numeral "
            "of their product?",
        ),
        length_of("x"),
        numbers.base_product,
    ),
    "weighted_binary_ones": SecondMethod(
        (
            "Multiply each integer n from <a> to <b> inclusive by the number of ones in its binary "
            "form. What is the sum of these products?",
            "Let w(n) be the number of ones of n in base 2. Find the sum of n * w(n) over all "
            "integers n with <a> <= n <= <b>.",
        ),
        size_of("b"),
        numbers.weighted_binary_ones,
    ),
    "zeckendorf": SecondMethod(
        (
            "In the sequence 1, 2, 3, 5, 8, 13, ... ~ where the first term has place 1. Find s for "
            "<m> times s for <n>.",
            "Write <m> and <n> each as a sum of different, pairwise non-neighbouring terms of the "
            "Fibonacci sequence F(1) = 1, F(2) = 2, F(3) = 3, F(4) = 5, .... Add up the indices "
            "used for <m>, add up the indices used for <n>, and multiply the two sums.",
        ),
        lambda r: min(r.ints("m", "n")),
        numbers.zeckendorf,
    ),
    "digit_sums": SecondMethod(
        (
            "How many integers from <a> to <b> inclusive have a digit sum divisible by <k>?",
            "Count the integers n with <a> <= n <= <b> whose decimal digits add up to a multiple "
            "of <k>.",
        ),
        size_of("b"),
        numbers.digit_sums,
    ),
    "cellular_automaton": SecondMethod(
        (
            "The cells of the row <row> stand in a ring, so the first and the last are "
            "neighbours. In one step all cells change at once: a new cell is 1 exactly when either "
            "its old left neighbour is 1 and both it and its old right neighbour were 0, or its "
            "old left neighbour is 0 and it or its old right neighbour was 1. Read the row after "
            "<steps> steps as a binary number. ~",
            "Rule 30 replaces every cell c of a row, all at the same time, by l XOR (c OR r), "
            "~; the row wraps around. Apply it <steps> times to <row>. ~",
        ),
        size_of("steps"),
        numbers.cellular_automaton,
    ),
    "weekday_dates": SecondMethod(
        (
            "~ For every <weekday> from <start> to <end>, both included, take the day of the "
            "month. What is the sum of these numbers?",
            "Add up the day-of-month numbers of all dates that fall on a <weekday> in the period "
            "from <start> to <end> (year-month-day, Gregorian calendar, both ends included).",
        ),
        days_of,
        numbers.weekday_dates,
    ),
    "ellipse_points": SecondMethod(
        (
            "How many pairs (x, y) of integers, negative ones and zero included, satisfy "
            "<low> <= <a>x^2 + <b>y^2 <= <high>?",
            "Count the points (x, y) with integer coordinates, of either sign or zero, for which "
            "<a>x^2 + <b>y^2 is at least <low> and at most <high>.",
        ),
        size_of("high"),
        counting.ellipse_points,
    ),
    "triangle_points": SecondMethod(
        (
            "How many points with integer coordinates lie strictly inside the triangle with "
            "corners <corners>? Points on its sides do not count.",
            "A triangle has the corners <corners>. Count the integer points in its interior, "
            "without those on its boundary.",
        ),
        lambda r: max(max(corner) for corner in r.tuples("corners")),
        counting.triangle_points,
    ),
    "blocked_walks": SecondMethod(
        (
            "A walk goes from (0, 0) to (<w>, <h>) in steps of one unit to the right, which add 1 "
            "to x, or up, which add 1 to y. It must not touch any of the points <closed>. ~",
            "Count the shortest lattice paths from (0, 0) to (<w>, <h>) along unit steps right and "
            "up that avoid all of the points <closed>.",
        ),
        lambda r: min(r.ints("w", "h")),
        counting.blocked_walks,
    ),
    "strip_tilings": SecondMethod(
        (
            "A strip of length <n> is covered from left to right, ~ by tiles. Each pair (l, c) "
            "says that tiles of length l come in c colours: <tiles>. How many coloured coverings "
            "are there, modulo <m>?",
            "Tiles are given as pairs (length, number of colours): <tiles>. In how many ways can a "
            "row of <n> cells be filled with such tiles, where order and colours matter? Give the "
            "remainder on division by <m>.",
        ),
        size_of("n"),
        counting.strip_tilings,
    ),
    "subset_sums": SecondMethod(
        (
            "How many subsets of {<values>} have a sum of at least <low> and at most <high>?",
            "Some of the different numbers <values> are chosen, each at most once and in no "
            "particular order. How many choices have a sum between <low> and <high> inclusive?",
        ),
        terms_of("values"),
        counting.subset_sums,
    ),
    "bounded_solutions": SecondMethod(
        (
            "Each pair (lo, hi) allows one integer variable the values from lo to hi inclusive: "
            "<bounds>. In how many ways can values be given to the variables, in this order, so "
            "that their sum is <n>?",
            "One integer is chosen from each of the ranges <bounds>, where (lo, hi) contains both "
            "lo and hi. How many choices, told apart by what comes from which range, have the sum "
            "<n>?",
        ),
        rows_of("bounds"),
        counting.bounded_solutions,
    ),
    "word_rank": SecondMethod(
        (
            "All different arrangements of the letters of <word> are listed in alphabetical order. "
            "At which place does <word> itself stand, if the first place is 1?",
            "Write down every distinct string that uses exactly the letters of <word>, sorted "
            "alphabetically and numbered from 1. What is the number of <word>?",
        ),
        length_of("word"),
        counting.word_rank,
    ),
    "heaviest_increasing": SecondMethod(
        (
            "From the sequence <values>, delete terms so that those left, in their order, increase "
            "strictly. What is the largest sum that the terms left can have?",
            "Among all strictly increasing subsequences of <values>, not necessarily of "
            "neighbouring terms, find the largest sum.",
        ),
        terms_of("values"),
        structures.heaviest_increasing,
    ),
    "edit_cost": SecondMethod(
        (
            "The word <old> is changed into <new> by single-letter steps. Inserting a letter costs "
            "<insert>, deleting one costs <delete>, replacing one by another costs <replace>. ~",
            "With <insert> per insertion, <delete> per deletion and <replace> per replacement of "
            "one letter, what is the cheapest way to turn <old> into <new>? Give its cost.",
        ),
        length_of("old"),
        structures.edit_cost,
    ),
    "inversion_weight": SecondMethod(
        (
            "In the sequence <values>, take every pair of terms, neighbours or not, of which the "
            "earlier one is larger, and subtract the later from the earlier. ~",
            "Let a_1, a_2, ... be <values>. Find the sum of a_i - a_j over all i < j with "
            "a_i > a_j.",
        ),
        terms_of("values"),
        structures.inversion_weight,
    ),
    "knapsack": SecondMethod(
        (
            "Items are given as pairs (weight, value), each once: <items>. What is the largest "
            "total value of items whose total weight is at most <limit>?",
            "A bag holds a weight of <limit>. Choose from these items, written (weight, value) and "
            "available once each, so that the value is as large as possible: <items>. ~",
        ),
        rows_of("items"),
        structures.knapsack,
    ),
    "josephus": SecondMethod(
        (
            "People numbered 1 to <n> stand in a circle in this order. Counting starts with person "
            "<s>, who is counted as 1, and every time the count reaches <k> that person leaves and "
            "the next one still there is counted as 1. When two people are left, what is the "
            "product of their numbers?",
            "A ring of <n> people with the numbers 1 to <n> in order is counted out: again and "
            "again one counts from 1 to <k>, one person per count, and removes the person who gets "
            "<k>. The first count begins with person <s>, each later one with the next person "
            "after the one removed. Multiply the numbers of the last two people.",
        ),
        size_of("n"),
        structures.josephus,
    ),
    "take_away_game": SecondMethod(
        (
            "~ A move takes away exactly one of these numbers of stones: <moves>. Who cannot move "
            "loses. Add up all pile sizes from <low> to <high> inclusive at which the player to "
            "move loses ~",
            "In a game with one pile, a player removes a number of stones from the list <moves> "
            "and a player without a legal move has lost. What is the sum of the sizes n with "
            "<low> <= n <= <high> that are lost for the player who moves first, with best play?",
        ),
        size_of("high"),
        structures.take_away_game,
    ),
    "linear_generator": SecondMethod(
        (
            "A sequence starts with x_1 = <start>, and x_(i+1) is the remainder of <a>x_i + <c> on "
            "division by <m>. What is the sum of the first <n> terms, x_1 included?",
            "Start with <start>. Again and again multiply by <a>, add <c> and keep the remainder "
            "modulo <m>. Add up the first <n> numbers of this sequence, the start among them.",
        ),
        size_of("n"),
        structures.linear_generator,
    ),
    "shortest_route": SecondMethod(
        (
            "Each triple (u, v, w) is a one-way road of length w from town u to town v: <roads>. "
            "How long is the shortest route from town 1 to town <n>?",
            "In a directed graph the edges are <roads>, where (u, v, w) leads from u to v and has "
            "weight w. What is the smallest total weight of a path from 1 to <n>?",
        ),
        size_of("n"),
        structures.shortest_route,
    ),
    "spanning_trees": SecondMethod(
        (
            "Towns 1 to <n> are joined by two-way roads. Each triple (u, v, c) says that c "
            "different roads join towns u and v: <roads>. ~ exactly one route that repeats no road "
            "leads from any town to any other?",
            "A graph has the vertices 1 to <n>, and (u, v, c) in this list means c parallel, "
            "distinguishable edges between u and v: <roads>. How many spanning trees does it have?",
        ),
        size_of("n"),
        structures.spanning_trees,
    ),
    "determinant": SecondMethod(
        (
            "The rows of a square matrix are <rows>. What is its determinant? ~",
            "Compute the determinant, with its sign, of the matrix whose rows from top to bottom "
            "are <rows>.",
        ),
        rows_of("rows"),
        structures.determinant,
    ),
    "assignment": SecondMethod(
        (
            "Row i of this table lists what worker i asks for each of the jobs, in order: <rows>. "
            "Every worker does exactly one job and every job is done once. ~",
            "Pick one number from each of the rows <rows> so that no two are in the same column. ~",
        ),
        rows_of("rows"),
        structures.assignment,
    ),
}
"""By the name of the family."""
