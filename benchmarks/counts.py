r"""Floating-point operations and bytes of one round, counted from (K, d, m, n).

The counts follow the library's round, operation by operation: what it multiplies, and how often it
goes over the only large array, B for EOFD and one triangle of the inverse for OFUL. A multiplication
and an addition are two operations; a number is eight bytes. Passes over vectors of length Kd, the
link, and whatever is of order K alone are left out: they are small beside the rest. So are copies
that an implementation could do without; the limit that follows is one of the algorithm.

EOFD goes over the m x Kd basis

- once for the images of the actions that pruning leaves (`select`),
- once for the fresh directions, once for their overlap with B, once for the step (`update`),
- no more if the step leaves the ball, as the coordinates of the parameter can be kept track of (which the
  compiled form does not do, nor the other one while that takes longer than two passes),
- once to meet the reflector, and once to read and once to write it as the shrink changes it,

and factors matrices of order m and m + K: a Cholesky factor of :math:`\lambda I + C` a round, another
one for a projection, with a few solutions, and the K smallest eigenpairs of the core by a
tridiagonalisation.

OFUL goes over the triangle of :math:`(Kd)^2/2` numbers once for the images, once for each step of
Lanczos' method in a projection, and reads and writes it in the rank-K update of the inverse. Of an
action's K columns :math:`I \otimes x` all but d entries each are zero, so its image takes
:math:`(Kd)^2` multiplications.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

NUMBER = 8
#: Cholesky factors of a projection onto the ball by Newton's method, and solutions with them, each of two
#: triangular systems. Means over the projected rounds of the tuned regime, behind the first 2m/K + 50:
#: 1.0 and 5.2 at K = 4, d = 100, m = 40; 1.0 and 4.8 at K = 1, d = 400, m = 40; 1.0 and 5.1 at K = 4,
#: d = 500, m = 200.
FACTORS = 1
SOLVES = 5
#: Products of a projection by Lanczos' method: the mean at the sizes of the table, rounded.
LANCZOS_STEPS = 6


class Work(NamedTuple):
    """One operation of a round.

    Attributes
    ----------
    name : str
        What it does.
    flops : float
        Floating-point operations.
    bytes : float
        Bytes read and written.
    """

    name: str
    flops: float
    bytes: float


def total(operations: Iterable[Work]) -> Work:
    """The sum of operations."""
    everything = list(operations)
    return Work("total", sum(w.flops for w in everything), sum(w.bytes for w in everything))


def eofd_select(K: int, d: int, m: int, n: float, evaluated: float) -> list[Work]:
    """Operations of `select` with n actions of which `evaluated` are scored exactly.

    Parameters
    ----------
    K, d, m : int
        Outcomes, features and sketch size.
    n, evaluated : float
        Means over rounds are welcome.

    Returns
    -------
    list of Work
    """
    basis = NUMBER * K * d * m
    return [
        *_bounds(K, d, n),
        Work("images", 2 * evaluated * K * d * m, basis if evaluated > 0 else 0),
        Work("Cholesky factor", m**3 / 3, NUMBER * m**2),
        Work("blocks", evaluated * (K * m**2 + 4 * K**2 * m), NUMBER * m**2),
    ]


def eofd_update(K: int, d: int, m: int, projected: float) -> list[Work]:
    """Operations of `update` with a full sketch, of which a share `projected` leaves the ball.

    Parameters
    ----------
    K, d, m : int
        Outcomes, features and sketch size.
    projected : float
        Share of rounds that project, in [0, 1].

    Returns
    -------
    list of Work
    """
    length, grown = K * d, m + K
    basis = NUMBER * length * m
    order = grown + 1  # with the length outside the frame
    newton = FACTORS * order**3 / 3 + SOLVES * 2 * order**2 + m**2 + 2 * (K + 1) * order**2
    return [
        Work("solved image", 2 * K * m**2, NUMBER * m**2),
        Work("fresh directions", 2 * K * length * m, basis),
        Work("overlap", 2 * K * length * m, basis),
        Work("step", 2 * length * m, basis),
        Work("projection", projected * (newton + 2 * (K + 1) * length), 0),
        Work("grown core", 2 * K * grown**2, NUMBER * grown**2),
        Work("smallest eigenpairs", 4 / 3 * grown**3 + 4 * K * grown**2, NUMBER * grown**2),
        Work("reflected core", 8 * K * grown**2, NUMBER * grown**2),
        Work("reflected basis", 2 * K * length * (grown + m), 3 * basis),
    ]


def oful_select(K: int, d: int, n: float, evaluated: float) -> list[Work]:
    """Operations of OFUL's `select`; arguments as in `eofd_select`."""
    triangle = NUMBER * (K * d) ** 2 / 2
    return [
        *_bounds(K, d, n),
        Work("images", 2 * evaluated * (K * d) ** 2, triangle if evaluated > 0 else 0),
        Work("blocks", 2 * evaluated * K**2 * d, NUMBER * evaluated * K**2 * d),
    ]


def oful_update(K: int, d: int, projected: float) -> list[Work]:
    """Operations of OFUL's `update`; arguments as in `eofd_update`."""
    length = K * d
    triangle = NUMBER * length**2 / 2
    return [
        Work("step", 2 * K * length, NUMBER * K * length),
        Work("projection", projected * LANCZOS_STEPS * 2 * length**2, projected * LANCZOS_STEPS * triangle),
        Work("update of the inverse", K * length**2, 2 * triangle),
    ]


def eofd_memory(K: int, d: int, m: int) -> int:
    """Bytes of the paper's count Kd(m+K): the sketch and one block of new directions."""
    return NUMBER * K * d * (m + K)


def oful_memory(K: int, d: int) -> int:
    """Bytes of the full matrix."""
    return NUMBER * (K * d) ** 2


def _bounds(K: int, d: int, n: float) -> list[Work]:
    """Logits and lengths of all actions, from which pruning's bounds follow."""
    return [
        Work("logits", 2 * n * d * K, NUMBER * (n * d + K * d)),
        Work("lengths", 2 * n * d, NUMBER * n * d),
    ]
