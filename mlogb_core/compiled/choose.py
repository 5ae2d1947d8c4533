"""The choice of an action: `choice.choose_pruned` with the bounds and scores of `OptimisticPolicy`.

Actions are scored in the order of their upper bounds, until no other action can change the choice, its margin
or the scale of the rule for ties. The first batch has two actions, and each batch is twice as large as the
one before.
"""

from __future__ import annotations

import math

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.compiled.algebra import cholesky, forward
from mlogb_core.compiled.arguments import NO_ACTION, Batch, Bonus, Candidates, Indices, Numbers, Search
from mlogb_core.compiled.dense import inverse_blocks
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.link import estimates
from mlogb_core.compiled.vectors import BLOCK, add_products, add_products_twice, dot


@kernel
def start_search(candidates: Candidates, bonus: Bonus) -> Search:
    """Upper bounds of the scores, from the bonus for A(x) = |x|^2 I / lambda; no action is scored yet."""
    _, squares, value, slopes = candidates
    n, K = slopes.shape
    upper, checksum = np.empty(n), 0.0
    for a in range(n):
        square = squares[a] / bonus.ridge
        largest = math.sqrt(bonus.beta * square * dot(slopes[a], slopes[a]))
        if K > 1:
            largest += bonus.half_sum * bonus.beta * square
        upper[a] = value[a] + largest
        upper[a] += bonus.slack * (abs(value[a]) + abs(upper[a]))
        checksum += upper[a]
    order = np.argsort(-upper, kind="mergesort")
    return Search(upper, order, np.zeros(n), np.zeros(n, dtype=np.bool_), math.isfinite(checksum))


@kernel
def next_batch(candidates: Candidates, search: Search, tie_tolerance: float, limit: int) -> Batch:
    """At most `limit` actions to score next, in increasing order, and the choice if there are none."""
    value = candidates.value
    upper, order, scores, known, _ = search
    n = value.size
    best, scale, count = -np.inf, 0.0, 0
    for a in range(n):
        if known[a]:
            best, scale, count = max(best, scores[a]), max(scale, abs(scores[a])), count + 1
    if scale == 0.0:
        scale = 1.0
    action, margin = NO_ACTION, np.inf
    beside_best = False
    for a in range(n):
        if not known[a]:
            continue
        gap = (best - scores[a]) / scale
        if action == NO_ACTION and gap <= tie_tolerance:
            action = a
        if gap == 0.0 and not beside_best:
            beside_best = True  # The margin compares the best score with the other ones.
        else:
            margin = min(margin, abs(gap - tie_tolerance))
    index, size = np.empty(min(limit, n - count), dtype=np.intp), 0
    reach = best - scale * (tie_tolerance + margin)
    if count < n:
        for a in order:
            if size == index.size:
                break
            if not known[a] and (count == 0 or upper[a] >= reach or -value[a] > scale):
                index[size] = a
                size += 1
    index = index[:size]
    index.sort()
    return Batch(index, action, margin)


@kernel
def score(candidates: Candidates, search: Search, bonus: Bonus, index: Indices, blocks: Array) -> None:
    """Write the scores of some actions, computed from their K x K blocks A(x), into the search."""
    _, _, value, slopes = candidates
    scores, known, K = search.scores, search.known, slopes.shape[1]
    for c in range(index.size):
        a, block, square = index[c], blocks[c], 0.0
        for i in range(K):
            square += slopes[a, i] * dot(block[i], slopes[a])
        scores[a] = value[a] + math.sqrt(bonus.beta * max(square, 0.0))
        if K > 1:
            scores[a] += bonus.half_sum * bonus.beta * largest_eigenvalue(block)
        known[a] = True


@kernel
def largest_eigenvalue(block: Array) -> float:
    """The largest eigenvalue of a small symmetric matrix."""
    return float(np.linalg.eigvalsh(block)[-1])


@kernel
def candidates_of(actions: Array, squares: Array, parameter: Array, rewards: Array) -> Candidates:
    """The scores without the bonus; an empty array of squared lengths lets them be computed here."""
    if squares.size == 0:
        squares = np.empty(actions.shape[0])
        for a in range(squares.size):
            squares[a] = dot(actions[a], actions[a])
    value, slopes = estimates(actions, parameter, rewards)
    return Candidates(actions, squares, value, slopes)


@kernel
def choose_by_sketch(
    actions: Array,
    squares: Array,
    parameter: Array,
    rewards: Array,
    rows: Array,
    core: Array,
    upper: Array,
    numbers: Numbers,
) -> tuple[int, float, int, Array, Array]:
    """The choice among actions over a `Sketch`, with the numbers of a `Bonus`.

    The factor in `upper` may be empty if it is not known yet, and is then computed. Returns the action, or
    `NO_ACTION` if a bound overflows or there is no such factor; its margin; the number of actions scored; the
    image of the chosen action; and the factor.
    """
    bonus, (n, K), r = Bonus(*numbers), (actions.shape[0], parameter.shape[0]), core.shape[0]
    if upper.shape[0] < r:
        upper, definite = cholesky(core, r, -bonus.ridge)
        if not definite:
            return NO_ACTION, np.inf, 0, np.empty((K, 0)), np.empty((0, 0))
    candidates = candidates_of(actions, squares, parameter, rewards)
    search, images = start_search(candidates, bonus), np.zeros((n, K, r))
    limit, action, margin = 2, NO_ACTION, np.inf
    while search.finite:
        index, action, margin = next_batch(candidates, search, bonus.tie_tolerance, limit)
        if index.size == 0:
            break
        blocks = sketch_blocks(actions, candidates.squares, index, rows, upper, bonus.ridge, images)
        score(candidates, search, bonus, index, blocks)
        limit *= 2
    return action, margin, search.known.sum(), images[max(action, 0)].copy(), upper


@kernel
def choose_by_inverse(
    actions: Array, squares: Array, parameter: Array, rewards: Array, inverse: Array, numbers: Numbers
) -> tuple[int, float, int, Array]:
    """`choose_by_sketch` over the full matrix, of whose inverse the lower triangle is given."""
    bonus, (n, K) = Bonus(*numbers), (actions.shape[0], parameter.shape[0])
    candidates = candidates_of(actions, squares, parameter, rewards)
    search, images = start_search(candidates, bonus), np.empty((n, K, inverse.shape[0]))
    limit, action, margin = 2, NO_ACTION, np.inf
    while search.finite:
        index, action, margin = next_batch(candidates, search, bonus.tie_tolerance, limit)
        if index.size == 0:
            break
        blocks = inverse_blocks(actions, index, inverse, images)
        score(candidates, search, bonus, index, blocks)
        limit *= 2
    return action, margin, search.known.sum(), images[max(action, 0)].copy()


@kernel
def sketch_blocks(
    actions: Array,
    squares: Array,
    index: Indices,
    rows: Array,
    upper: Array,
    ridge: float,
    images: Array,
) -> Array:
    """A(x) of some actions, whose images are written into `images`: see `LowRankCurvature.inverse_blocks`.

    Each block of the basis is read from memory once, and then used for two actions at a time.
    """
    n, K, r, d = index.size, images.shape[1], upper.shape[0], actions.shape[1]
    basis = rows[:r]
    for i in range(K):
        for start in range(0, d, BLOCK):
            stop = min(start + BLOCK, d)
            first, last = i * d + start, i * d + stop
            for c in range(0, n - 1, 2):
                a, b = index[c], index[c + 1]
                x, y = actions[a, start:stop], actions[b, start:stop]
                add_products_twice(basis, first, last, x, y, images[a, i], images[b, i])
            if n % 2:
                a = index[n - 1]
                add_products(basis, first, last, actions[a, start:stop], images[a, i])
    blocks, whitened = np.empty((n, K, K)), np.empty((K, r))
    for c in range(n):
        image, block = images[index[c]], blocks[c]
        square = squares[index[c]]
        for i in range(K):
            whitened[i] = image[i]
            forward(upper, whitened[i])
            for j in range(i + 1):
                outside = -dot(image[i], image[j])
                if i == j:
                    outside += square
                block[i, j] = block[j, i] = outside / ridge + dot(whitened[i], whitened[j])
    return blocks
