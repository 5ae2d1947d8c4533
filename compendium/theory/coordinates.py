"""What roundoff does to the coordinates in which sparse actions are played."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import Array, as_finite, as_integer

__all__ = ["overlap_error_bound"]

_UNIT = float(np.finfo(np.float64).eps) / 2.0


def overlap_error_bound(combinations: ArrayLike, terms: int) -> Array:
    r"""Bound of the error of the inner products of the directions of a policy for sparse actions.

    It holds to first order in the unit of roundoff.

    .. math:: \bigl|\langle\upsilon_i, \upsilon_j\rangle - \delta_{ij}\bigr|
              \le (N + 4u + 8)\,\mathrm{u}\,\|\Pi_i\|_1\,\|\Pi_j\|_1

    Here :math:`\upsilon_i = \sum_k \Pi_{ik} Y_k` with rows :math:`\|Y_k\| \le 1`, N is the largest number of
    terms in an inner product of two of these rows, and :math:`\mathrm u = 2^{-53}`.

    Parameters
    ----------
    combinations : (u, u) array
        :math:`\Pi`, the coefficients of the directions in the rows.
    terms : int
        N >= 1.

    Returns
    -------
    (u, u) array

    Raises
    ------
    ValueError
        If the coefficients are not finite, or N < 1.

    Notes
    -----
    The project's own; derived in the notebook on sparse rounds. A new column is made orthogonal by measured
    inner products, so that what is left of them is the error of the measurement and of one combination.
    """
    combinations, terms = as_finite("combinations", combinations), as_integer("terms", terms, minimum=1)
    sums = np.abs(combinations).sum(axis=1)
    return np.asarray((terms + 4 * len(sums) + 8) * _UNIT * np.multiply.outer(sums, sums))
