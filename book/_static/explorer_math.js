// The formulas of the explorer page, without a document: a second copy of what mlogb_core computes,
// kept equal to it by tests/test_explorer.py. A classic script, since browsers refuse modules from files.
(function (global) {
  "use strict";

  // Eight roundoffs, as in mlogb_core/projection.py.
  const ROUNDOFF = 8 * Number.EPSILON;

  /** Shares i^-a / sum of the features' variances, i = 1..d. */
  function shares(d, decay) {
    const weights = Array.from({ length: d }, (_, i) => Math.pow(i + 1, -decay));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    return weights.map((weight) => weight / total);
  }

  /** Eigenvalues of the link's Jacobian diag(p) - pp' at W = 0, where p = 1 / (K + 1): K of them. */
  function linkEigenvalues(K) {
    return Array.from({ length: K }, (_, k) => (k < K - 1 ? 1 / (K + 1) : 1 / ((K + 1) * (K + 1))));
  }

  /** The axis that each of T rounds plays: always the one that is furthest behind its share. */
  function schedule(d, decay, rounds) {
    const share = shares(d, decay);
    const behind = new Float64Array(d);
    const axes = [];
    for (let t = 0; t < rounds; t += 1) {
      let next = 0;
      for (let i = 0; i < d; i += 1) {
        behind[i] += share[i];
        // A tie up to roundoff goes to the lower axis.
        if (behind[i] > behind[next] + 1e-9) next = i;
      }
      behind[next] -= 1;
      axes.push(next);
    }
    return axes;
  }

  /**
   * Frequent Directions of a stream of actions along axes, with the Jacobian at W = 0.
   *
   * The Hessians J (x) e_i e_i' share their eigenvectors, so nothing turns: a round adds the K eigenvalues of J
   * at the places of its axis, and a shrink subtracts the (m+1)-th largest value from all that are held.
   *
   * Returns the eigenvalues of the full sum, those of the sketch (both by place i K + k), and rho.
   */
  function sketchOfAxes(K, d, m, axes) {
    const full = new Float64Array(K * d);
    const kept = new Float64Array(K * d);
    const added = linkEigenvalues(K);
    let held = [];
    let rho = 0;
    for (const axis of axes) {
      for (let k = 0; k < K; k += 1) {
        const place = axis * K + k;
        if (kept[place] === 0) held.push(place);
        full[place] += added[k];
        kept[place] += added[k];
      }
      if (held.length > m) {
        held.sort((a, b) => kept[b] - kept[a]);
        const dropped = kept[held[m]];
        for (const place of held) kept[place] = Math.max(kept[place] - dropped, 0);
        held = held.filter((place) => kept[place] > 0);
        rho += dropped;
      }
    }
    return { full, kept, rho };
  }

  /** The dual function f(nu) = sum (p y / (p + nu))^2, the squared length of the projected point. */
  function dualFunction(p, y, nu) {
    let sum = 0;
    for (let i = 0; i < p.length; i += 1) {
      const w = (p[i] * y[i]) / (p[i] + nu);
      sum += w * w;
    }
    return sum;
  }

  /**
   * Root of f(nu) = S^2 by Newton's method on 1 / sqrt(f) = 1 / S from nu = 0, as project_onto_ball takes it.
   * Returns the root and the iterates, 0 first, without a last one that moved by roundoff alone.
   */
  function dualRoot(p, y, S) {
    const iterates = [0];
    let nu = 0;
    for (let count = 0; count < 200; count += 1) {
      const square = dualFunction(p, y, nu);
      const norm = Math.sqrt(square);
      if (norm <= S * (1 + ROUNDOFF)) break;
      let slope = 0;
      for (let i = 0; i < p.length; i += 1) {
        const w = (p[i] * y[i]) / (p[i] + nu);
        slope += (w * w) / (p[i] + nu);
      }
      const step = ((norm / S - 1) * square) / slope;
      if (step <= ROUNDOFF * nu) break;
      nu += step;
      iterates.push(nu);
    }
    const moved = iterates.slice(1, -1).filter((value) => Math.abs(value - nu) > 1e-12 * nu);
    return { root: nu, iterates: nu > 0 ? [0, ...moved, nu] : [0] };
  }

  /**
   * Coordinates of the farthest point that one step can reach from the edge of the ball: its length is
   * S + eta u / lambda with u = 1 for K = 1 and sqrt(2) else (notebook 05). Its direction is that of the
   * features' standard deviations, the same for every outcome; by place i K + k.
   */
  function farthestPoint(K, d, decay, S, stepSize, ridge) {
    const length = S + (stepSize * (K === 1 ? 1 : Math.SQRT2)) / ridge;
    const share = shares(d, decay);
    return Array.from({ length: K * d }, (_, place) => length * Math.sqrt(share[Math.floor(place / K)] / K));
  }

  /** Half-axis of the confidence ellipsoid along an eigenvector: the bonus sqrt(beta) ||v|| in the inverse. */
  function halfAxis(beta, eigenvalue) {
    return Math.sqrt(beta / eigenvalue);
  }

  const ExplorerMath = {
    shares,
    linkEigenvalues,
    schedule,
    sketchOfAxes,
    dualFunction,
    dualRoot,
    farthestPoint,
    halfAxis,
  };
  global.ExplorerMath = ExplorerMath;
  if (typeof module !== "undefined") module.exports = ExplorerMath;
})(globalThis);
