"""The round over the full matrix, whose inverse is given by its lower triangle, column-major."""

from __future__ import annotations

import math

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.compiled.algebra import cholesky, forward
from mlogb_core.compiled.arguments import Indices
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.link import loss_at
from mlogb_core.compiled.step import step_weights
from mlogb_core.compiled.vectors import add_rows, axpy, dot


@kernel
def inverse_blocks(actions: Array, index: Indices, inverse: Array, images: Array) -> Array:
    """A(x) of some actions, whose images are written into `images`; the inverse is read once for all.

    Take the part of a column in block row i. Its dot product with x is an entry of row i of the image. By
    symmetry the part is also a row of the inverse, a multiple of which is added to the image's row for the
    block of the column. Two columns and two actions are processed together, so that each number that is
    loaded serves up to eight multiplications.
    """
    n, K, d = index.size, images.shape[1], actions.shape[1]
    for c in range(n):
        images[index[c]] = 0.0
    for j in range(K):
        for b in range(0, d, 2):
            pair = 1 if b + 1 < d else 0  # A last column without a neighbour is paired with itself, weight 0.
            column, other = j * d + b, j * d + b + pair
            for i in range(j, K):
                # In the diagonal block the rows below the 2 x 2 corner of the two columns; the corner
                # follows.
                first = b + 1 + pair if i == j else 0
                start, stop = i * d + first, (i + 1) * d
                p, q = inverse[start:stop, column], inverse[start:stop, other]
                for c in range(0, n - 1, 2):
                    s, t = index[c], index[c + 1]
                    x, y = actions[s], actions[t]
                    one, two, three, four = _dots_and_add_twice(
                        p,
                        q,
                        x[first:],
                        y[first:],
                        images[s, j, start:stop],
                        images[t, j, start:stop],
                        x[b],
                        pair * x[b + pair],
                        y[b],
                        pair * y[b + pair],
                    )
                    images[s, i, column] += one
                    images[s, i, other] += pair * two
                    images[t, i, column] += three
                    images[t, i, other] += pair * four
                if n % 2:
                    s = index[n - 1]
                    x = actions[s]
                    one, two = _dots_and_add(
                        p, q, x[first:], images[s, j, start:stop], x[b], pair * x[b + pair]
                    )
                    images[s, i, column] += one
                    images[s, i, other] += pair * two
            for c in range(n):
                x, image = actions[index[c]], images[index[c], j]
                image[column] += inverse[column, column] * x[b]
                if pair:
                    image[column] += inverse[other, column] * x[b + 1]
                    image[other] += inverse[other, column] * x[b] + inverse[other, other] * x[b + 1]
    blocks = np.empty((n, K, K))
    for c in range(n):
        blocks[c] = _block(images[index[c]], actions[index[c]])
    return blocks


@kernel
def _dots_and_add(p: Array, q: Array, x: Array, out: Array, a: float, b: float) -> tuple[float, float]:
    """Dot products of x with p and q; `out += a p + b q`."""
    one = two = 0.0
    for i in range(p.size):
        one += p[i] * x[i]
        two += q[i] * x[i]
        out[i] += a * p[i] + b * q[i]
    return one, two


@kernel
def _dots_and_add_twice(
    p: Array, q: Array, x: Array, y: Array, to_x: Array, to_y: Array, a: float, b: float, c: float, d: float
) -> tuple[float, float, float, float]:
    """`_dots_and_add` for two vectors at once."""
    one = two = three = four = 0.0
    for i in range(p.size):
        u, v = p[i], q[i]
        one += u * x[i]
        two += v * x[i]
        three += u * y[i]
        four += v * y[i]
        to_x[i] += a * u + b * v
        to_y[i] += c * u + d * v
    return one, two, three, four


@kernel
def _block(image: Array, action: Array) -> Array:
    """A(x), symmetric to the bit, from the image under the inverse."""
    K, d = image.shape[0], action.size
    block = np.empty((K, K))
    for i in range(K):
        for j in range(i + 1):
            one = dot(image[i, j * d : (j + 1) * d], action)
            other = dot(image[j, i * d : (i + 1) * d], action)
            block[i, j] = block[j, i] = (one + other) / 2.0
    return block


@kernel
def step_by_inverse(
    parameter: Array, action: Array, image: Array, outcome: int, step_size: float, norm_bound: float
) -> tuple[Array, float, Array, bool]:
    """The step before its projection: see `DenseCurvature.newton_step`.

    Returns the point; a lower bound of the largest eigenvalue of the Hessian that the step adds; and, as
    `change_of_inverse`, the change of the inverse by that Hessian, without rows if the point is in the ball.
    """
    loss, block = loss_at(parameter, action, outcome), _block(image, action)
    weights = step_weights(block, loss, step_size)
    point, rows, definite = parameter.reshape(-1).copy(), np.empty((0, parameter.size)), True
    for i in range(weights.size):
        axpy(-step_size * weights[i], image[i], point)
    if not math.sqrt(dot(point, point)) <= norm_bound:
        rows, definite = _change(math.sqrt(step_size) * loss.factor, block, image)
    return point.reshape(parameter.shape), _largest(loss.factor, action), rows, definite


@kernel
def change_of_inverse(parameter: Array, action: Array, image: Array) -> tuple[float, Array, bool]:
    r"""The change of the inverse by the Hessian of a round.

    Returns a lower bound of that Hessian's largest eigenvalue; rows R with
    :math:`(H + XFF^\top X^\top)^{-1} = H^{-1} - R^\top R`; and whether the K x K matrix from whose Cholesky
    factor R is computed is positive definite in double precision.
    """
    factor = loss_at(parameter, action, 0).factor
    rows, definite = _change(factor, _block(image, action), image)
    return _largest(factor, action), rows, definite


@kernel
def _change(factor: Array, block: Array, image: Array) -> tuple[Array, bool]:
    """The last two results of `change_of_inverse`; see `base.inverse_change`."""
    K, columns = factor.shape[0], factor.T.copy()
    inner, product, rows = np.empty((K, K)), np.zeros((K, K)), np.zeros_like(image)
    for k in range(K):
        add_rows(columns[k], block, 0, K, product[k])
        for j in range(k + 1):
            inner[j, k] = dot(columns[j], product[k])
        inner[k, k] += 1.0
    upper, definite = cholesky(inner, K, 0.0)
    if definite:
        for k in range(K):  # With the lower factor L, `product` now receives the columns of L^-1 F'.
            product[k] = factor[k]
            forward(upper, product[k])
        for i in range(K):
            add_rows(product[:, i].copy(), image, 0, rows.shape[1], rows[i])
    return rows, definite


@kernel
def _largest(factor: Array, action: Array) -> float:
    """A lower bound of the largest eigenvalue of FF' (x) xx'."""
    largest = 0.0
    for k in range(factor.shape[0]):
        largest = max(largest, float(np.sum(factor[:, k] ** 2)))
    return largest * dot(action, action)
