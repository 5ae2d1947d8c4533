r"""Sketches whose size follows their error: certificates, the size that they need, and the price of a cap.

A shrink that would spend more than a budget :math:`\bar\rho` makes the sketch larger instead. If the size is
doubled then, and every size has a budget of its own, the final size is within twice the least size that the
spectrum of the stream admits, and the sketching error is at most :math:`\bar\rho` for each size. Derivation:
notebook ``22_controlled_error``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from compendium.theory.self_normalised import Stream, smallest_sum
from compendium.theory.sketch import sorted_eigenvalues, tail_bound
from mlogb_core._validation import as_integer, as_non_negative, as_positive


def smallest_size(eigenvalues: ArrayLike, budget: float) -> int:
    r"""The least fixed size whose bound of the sketching error is within the budget.

    .. math:: m_* = \min\Bigl\{m \ge 1 :\ \min_{0 \le k \le m}\frac{\operatorname{tail}_k}{m + 1 - k}
              \le \bar\rho\Bigr\}

    Parameters
    ----------
    eigenvalues : (n,) array
        Eigenvalues >= 0 of the sum of all Hessians, in any order.
    budget : float
        :math:`\bar\rho > 0`.

    Returns
    -------
    int
        In 1..n.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper. It is at most the least m with :math:`\operatorname{tail}_m \le \bar\rho`.

    Examples
    --------
    >>> smallest_size([9.0, 1.0, 1.0, 1.0], 1.5), smallest_size([9.0, 1.0, 1.0, 1.0], 1.0)
    (2, 3)
    """
    values, most = sorted_eigenvalues(eigenvalues), as_positive("budget", budget)
    return next(m for m in range(1, values.size + 1) if tail_bound(values, m, sharp=True) <= most)


def least_rank(eigenvalues: ArrayLike, budget: float) -> int:
    r"""The least rank of any matrix :math:`\hat M \preceq M` with :math:`M \preceq \hat M + \bar\rho I`.

    .. math:: \#\{i : \theta_i(M) > \bar\rho\}

    Parameters
    ----------
    eigenvalues, budget
        As in `smallest_size`.

    Returns
    -------
    int
        In 0..n.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper. It is attained by the leading eigenvectors, whom no sketch of a stream knows beforehand.

    Examples
    --------
    >>> least_rank([9.0, 1.0, 1.0, 1.0], 1.0)
    1
    """
    values, most = sorted_eigenvalues(eigenvalues), as_positive("budget", budget)
    return int(np.count_nonzero(values > most))


def doubled_size_bound(eigenvalues: ArrayLike, budget: float, first_size: int = 1) -> int:
    r"""Bound of the final size if the size doubles when its own budget does not suffice.

    .. math:: \min\bigl\{n,\ \max\{m_0,\ 2(m_* - 1)\}\bigr\}

    Parameters
    ----------
    eigenvalues, budget
        As in `smallest_size`; the budget is that of one size.
    first_size : int, optional
        :math:`m_0 \ge 1`.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper.

    Examples
    --------
    >>> doubled_size_bound([9.0, 1.0, 1.0, 1.0], 1.5), doubled_size_bound([9.0, 1.0, 1.0, 1.0], 0.5)
    (2, 4)
    """
    values = sorted_eigenvalues(eigenvalues)
    first = as_integer("first_size", first_size, minimum=1)
    return min(values.size, max(first, 2 * (smallest_size(values, budget) - 1)))


def spending_sizes(n_parameters: int, first_size: int = 1, final_size: int | None = None) -> int:
    r"""How many of the sizes :math:`m_0, 2m_0, 4m_0, \dots` can shrink: those below Kd, up to the final one.

    Parameters
    ----------
    n_parameters : int
        n = Kd >= 1.
    first_size : int, optional
        :math:`m_0 \ge 1`.
    final_size : int, optional
        The size at the end of the run; n by default, which counts all of them.

    Returns
    -------
    int
        :math:`\lceil\log_2(n/m_0)\rceil` for a final size n, and :math:`1 + \log_2(m_T/m_0)` for a final size
        :math:`m_T < n`.

    Raises
    ------
    ValueError
        If a size is below 1.

    Notes
    -----
    Not in the paper. The sketching error is at most this number times the budget of a size.

    Examples
    --------
    >>> spending_sizes(100), spending_sizes(100, 5), spending_sizes(100, 5, final_size=10)
    (7, 5, 2)
    """
    n, size = (
        as_integer("n_parameters", n_parameters, minimum=1),
        as_integer("first_size", first_size, minimum=1),
    )
    last = n if final_size is None else as_integer("final_size", final_size, minimum=1)
    count = 0
    while size < n and size <= last:
        count, size = count + 1, 2 * size
    return count


def capped_shrinkage_bound(eigenvalues: ArrayLike, sketch_size: int, spent: float) -> float:
    r"""Bound of the sketching error if a sketch may not grow beyond a size.

    .. math:: \rho_{1:T} \le \text{spent} + \min_{0 \le k \le m}\frac{\operatorname{tail}_k}{m + 1 - k}

    Parameters
    ----------
    eigenvalues : (n,) array
        As in `smallest_size`.
    sketch_size : int
        m >= 1, the cap.
    spent : float
        What was subtracted before the sketch had reached the cap.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper.

    Examples
    --------
    >>> capped_shrinkage_bound([9.0, 1.0, 1.0, 1.0], 2, 0.5)
    2.0
    """
    return as_non_negative("spent", spent) + tail_bound(eigenvalues, sketch_size, sharp=True)


def growing_sum_bound(stream: Stream, first_size: int, returned: float = 0.0) -> float:
    r"""Bound of :math:`\sum_s\operatorname{tr}(\nabla^2\ell_s(W_{s+1})\,Z_s^{-1})` for a size that grows.

    As `adaptive_sum_bound`, with the smallest size of the run in what the shrinks take from the trace, and
    with the cost per direction

    .. math:: \frac{\rho - \text{returned}}\lambda + \ln\Bigl(1 + \frac{\text{returned}}\lambda\Bigr) .

    Parameters
    ----------
    stream : Stream
        The stream; its sketch size is the final one, the largest.
    first_size : int
        :math:`m_0 \ge 1`.
    returned : float, optional
        The part of :math:`\rho` that was given back to the ridge, the whole of it in some rounds and none or
        a share in others.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If more was returned than subtracted, or an argument is out of range.

    Notes
    -----
    Not in the paper.
    """
    first, back = as_integer("first_size", first_size, minimum=1), as_non_negative("returned", returned)
    kept = stream.shrinkage - back
    if kept < -1e-9 * stream.shrinkage:
        raise ValueError(f"returned must be at most the shrinkage {stream.shrinkage}, got {returned}")
    kept = max(kept, 0.0)
    return smallest_sum(stream, back, lambda ridge: kept / ridge + math.log1p(back / ridge), first)
