r"""Why an action was chosen: what its score consists of, and which outcomes the policy expects of it.

A score is a sum of three terms, the expected reward and the two parts of the bonus. The probabilities of the
outcomes have an interval that holds for every parameter of the region
:math:`\|W - W_t\|_{Z_t} \le \sqrt{\beta_t}`. It is a confidence interval if this is a confidence region,
which it is with the radius of a theorem and not with a radius that was tuned for little regret.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logsumexp

from mlogb_core._validation import Array


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    r"""What an optimistic policy makes of every action of a set; printed, it is a table.

    Attributes
    ----------
    chosen : int
        Index of the action that `select` returns.
    reward : (n,) array
        Expected reward :math:`r^\top\sigma(W_t x)`.
    estimate : (n,) array
        The score without the bonus: the expected reward for K >= 2, the logit for K = 1.
    first_bonus, second_bonus : (n,) array
        The part of the bonus that is of the order of :math:`\sqrt{\beta_t}`, and the one of the order of
        :math:`\beta_t`, in the unit of the score. The second is 0 for K = 1.
    score : (n,) array
        The sum of estimate and bonus.
    probabilities : (n, K+1) array
        Probabilities of the outcomes 0..K under :math:`W_t`.
    lower, upper : (n, K+1) array
        Bounds of these probabilities, as `probability_bounds` has them.

    Notes
    -----
    The printed table has the probabilities and their bounds in per cent.
    """

    chosen: int
    reward: Array
    estimate: Array
    first_bonus: Array
    second_bonus: Array
    score: Array
    probabilities: Array
    lower: Array
    upper: Array

    def __repr__(self) -> str:
        n_outcomes = self.probabilities.shape[1]
        names = ["action", "reward", "bonus 1", "bonus 2", "score", *(f"P({k})" for k in range(n_outcomes))]
        table = [names]
        numbers = zip(self.reward, self.first_bonus, self.second_bonus, self.score, strict=True)
        for action, row in enumerate(numbers):
            mark = "* " if action == self.chosen else ""
            bounds = zip(self.probabilities[action], self.lower[action], self.upper[action], strict=True)
            intervals = [f"{p:.0%} [{100 * low:.0f}, {100 * high:.0f}]" for p, low, high in bounds]
            table.append([f"{mark}{action}", *(f"{value:.4g}" for value in row), *intervals])
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join(
            "  ".join(entry.rjust(width) for entry, width in zip(line, widths, strict=True)) for line in table
        )


@np.errstate(over="ignore", under="ignore")
def probability_bounds(logits: Array, blocks: Array, beta: float) -> tuple[Array, Array]:
    r"""Bounds of the outcome probabilities over all parameters of the ellipsoid of squared radius beta.

    .. math:: \Bigl(1 + \sum_{j \ne k} e^{z_j - z_k \pm s_{jk}}\Bigr)^{-1}, \qquad
              s_{jk}^2 = \beta\,(e_j - e_k)^\top A(x)\,(e_j - e_k), \qquad z_0 = 0,\ e_0 = 0

    Parameters
    ----------
    logits : (n, K) array
        :math:`z = W_t x`.
    blocks : (n, K, K) array
        :math:`A(x)`.
    beta : float
        The squared radius.

    Returns
    -------
    lower, upper : (n, K+1) array

    Notes
    -----
    Over the ellipsoid the difference of two logits moves by at most :math:`s_{jk}`, and there are points
    where it does. A probability depends on K differences, which for K >= 2 need not all move that far at the
    same point: the bounds are then valid, and wider than the smallest ones. For K = 1 they are the smallest.
    """
    z = np.pad(logits, ((0, 0), (1, 0)))
    a = np.pad(blocks, ((0, 0), (1, 0), (1, 0)))
    own = np.diagonal(a, axis1=1, axis2=2)
    spread = np.sqrt(beta * np.maximum(own[:, :, None] + own[:, None, :] - a - a.swapaxes(1, 2), 0.0))
    difference = z[:, :, None] - z[:, None, :]
    others = ~np.eye(z.shape[1], dtype=bool)[None]
    low, high = (
        expit(-logsumexp(difference + sign * spread, axis=1, b=others.astype(float))) for sign in (1.0, -1.0)
    )
    return low, high
