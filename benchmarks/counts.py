r"""Floating-point operations and bytes of one round, counted from (K, d, m, n).

The counts follow the library's round, operation by operation: the multiplications, and the passes over the
only large array, which is B for EOFD and one triangle of the inverse for OFUL. A multiplication and an
addition are two operations; a number has eight bytes. Small terms are left out: passes over vectors of length
Kd, the link, and everything of order K alone. Copies that an implementation could avoid are left out too, so
that the counts give a limit of the algorithm.

EOFD passes over the m x Kd basis

- once for the images of the actions that pruning leaves (`select`),
- once each for the fresh directions, their overlap with B and the step (`update`),
- once for the product with the reflector, once to read and once to write it as the shrink changes it.

A projection needs no further pass if the coordinates of the parameter are tracked. (The compiled form does
not track them, and the NumPy form does so only in large problems.) EOFD also factors matrices of order m and
m + K: one Cholesky factor of :math:`\lambda I + C` per round, another one with a few solutions for a
projection, and the K smallest eigenpairs of the core by a tridiagonalisation.

OFUL passes over the triangle of :math:`(Kd)^2/2` numbers once for the images and once for each step of
Lanczos' method in a projection; the rank-K update of the inverse reads and writes it. Each of the K columns
:math:`I \otimes x` of an action has d entries that are not zero, so that an image takes :math:`(Kd)^2`
multiplications.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

NUMBER = 8
#: Cholesky factors of a projection onto the ball by Newton's method, and solutions with them, each of two
#: triangular systems. Means over the projected rounds of the tuned regime, after the first 2m/K + 50 rounds:
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
        Name of the operation.
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
    """Operations of `select` with n actions, `evaluated` of which are scored exactly.

    Parameters
    ----------
    K, d, m : int
        Outcomes, features and sketch size.
    n, evaluated : float
        May be means over rounds.

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
    """Operations of `update` with a full sketch, as a mean over rounds.

    Parameters
    ----------
    K, d, m : int
        Outcomes, features and sketch size.
    projected : float
        Share of the rounds that project, in [0, 1].

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
