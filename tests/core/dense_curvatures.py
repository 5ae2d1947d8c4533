"""Every curvature again on Kd x Kd matrices, from its definition, by full eigendecompositions."""

from __future__ import annotations

import numpy as np


class DenseReference:
    """Base class: lambda, the exact sum of the Hessians, and the matrix Z that a subclass defines."""

    def __init__(self, K, d, lam):
        self.K, self.d, self.lam = K, d, lam
        self.full = lam * np.eye(K * d)
        self.rho = 0.0
        self.returned = 0.0

    def hessian(self, J, x):
        hessian = np.kron(J, np.outer(x, x))
        self.full += hessian
        return hessian

    @property
    def ridge(self):
        return self.lam + self.returned

    def dense(self):
        return self.ridge * np.eye(self.K * self.d) + self.part


class Sketched(DenseReference):
    """Frequent Directions of a fixed size, of which a share of what is subtracted goes to the ridge."""

    def __init__(self, K, d, lam, m, share=0.0):
        super().__init__(K, d, lam)
        self.m, self.share, self.part = m, share, np.zeros((K * d, K * d))

    def add(self, J, x):
        values, Q = decreasing(self.part + self.hessian(J, x))
        self.size(values)
        amount = beyond(values, self.m)
        self.lose(amount)
        self.part = rebuilt(values[: self.m] - amount, Q)

    def size(self, values):
        """Choose m from the eigenvalues of the round."""

    def lose(self, amount):
        self.rho += amount
        self.returned += self.share * amount


class Budgeted(Sketched):
    """m grows by one while rho and the next amount exceed the budget of the round."""

    def __init__(self, K, d, lam, m, budget, horizon, open_ended=False, largest=None, compensate=False):
        super().__init__(K, d, lam, m)
        self.budget, self.horizon, self.open_ended = budget, horizon, open_ended
        self.largest, self.compensate = largest or K * d, compensate
        self.t = 0

    def allowance(self):
        share = self.t / (self.t + self.horizon) if self.open_ended else min(1.0, self.t / self.horizon)
        return self.budget * self.lam * share

    def size(self, values):
        self.t += 1
        while self.m < self.largest and self.rho - self.returned + beyond(values, self.m) > self.allowance():
            self.m += 1

    def lose(self, amount):
        too_much = self.rho - self.returned + amount > self.allowance()
        self.rho += amount
        self.returned += amount if self.compensate and too_much else 0.0


class Doubling(Sketched):
    """m doubles while the next amount would exceed the budget of the phase."""

    def __init__(self, K, d, lam, m, budget, falling=False):
        super().__init__(K, d, lam, m)
        self.budget, self.falling, self.phase, self.lost = budget, falling, 0, 0.0

    def size(self, values):
        while True:
            share = 1.0 / ((self.phase + 1) * (self.phase + 2)) if self.falling else 1.0
            if self.lost + beyond(values, self.m) <= self.budget * self.lam * share:
                break
            self.m, self.phase, self.lost = 2 * self.m, self.phase + 1, 0.0
        self.lost += beyond(values, self.m)


class Dyadic(DenseReference):
    """One matrix for each block."""

    def __init__(self, K, d, lam, m, budget):
        super().__init__(K, d, lam)
        self.m, self.limit = m, budget * lam * m / 2
        self.blocks, self.lost, self.mass, self.held = [np.zeros((K * d, K * d))], [0.0], 0.0, 0

    @property
    def part(self):
        return sum(self.blocks)

    def full_block(self):
        exact = sum(self.m * 2**i for i in range(len(self.blocks))) >= self.K * self.d
        return not exact and self.held + self.K > self.m * 2 ** (len(self.blocks) - 1)

    def add(self, J, x):
        hessian = self.hessian(J, x)
        while self.full_block() and self.mass + np.trace(hessian) > self.limit:
            self.blocks.append(np.zeros_like(hessian))
            self.lost.append(0.0)
            self.mass, self.held = 0.0, 0
        self.mass += np.trace(hessian)
        values, Q = decreasing(self.blocks[-1] + hessian)
        if self.full_block():
            size = self.held = self.m * 2 ** (len(self.blocks) - 1)
            amount = beyond(values, size)
            self.lost[-1] += amount
            self.rho += amount
            self.blocks[-1] = rebuilt(values[:size] - amount, Q)
        else:
            self.blocks[-1] = self.blocks[-1] + hessian
            self.held += self.K


class Diagonal(DenseReference):
    """The diagonal of the full Hessian."""

    def add(self, J, x):
        self.hessian(J, x)

    def dense(self):
        return np.diag(np.diag(self.full))


class Ridge(DenseReference):
    """A multiple of the trace of the full Hessian's data part, times the identity."""

    def __init__(self, K, d, lam, growth=1.0):
        super().__init__(K, d, lam)
        self.growth, self.part = growth, np.zeros((K * d, K * d))

    def add(self, J, x):
        self.returned += self.growth * np.trace(self.hessian(J, x))


def decreasing(matrix):
    """Eigenvalues, from the largest on, none negative, and eigenvectors."""
    values, Q = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.maximum(values[::-1], 0.0), Q[:, ::-1]


def beyond(values, m):
    """The (m+1)-th eigenvalue, or 0 if there is none."""
    return values[m] if m < len(values) else 0.0


def rebuilt(values, Q):
    """The matrix with these eigenvalues and the first eigenvectors."""
    return (Q[:, : len(values)] * np.maximum(values, 0.0)) @ Q[:, : len(values)].T


#: References by the name of the constructor in `variants`, with the defaults that stand there.
REFERENCES = {
    "eofd": Sketched,
    "robust_eofd": lambda K, d, lam, m: Sketched(K, d, lam, m, 0.5),
    "compensated_eofd": lambda K, d, lam, m: Sketched(K, d, lam, m, 1.0),
    "budgeted_eofd": lambda K, d, lam, m, **options: Budgeted(K, d, lam, m, 4.0, 60, **options),
    "doubling_eofd": lambda K, d, lam, m, **options: Doubling(K, d, lam, m, 4.0, **options),
    "dyadic_eofd": lambda K, d, lam, m: Dyadic(K, d, lam, m, 12.0),
    "diagonal": lambda K, d, lam, m: Diagonal(K, d, lam),
    "growing_ridge": lambda K, d, lam, m: Ridge(K, d, lam),
}
