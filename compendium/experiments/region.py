"""Whether the confidence region holds the truth in the rounds of a trial, and how much of its radius is used.

The truth is known in a synthetic problem. Its distance needs the matrix of every round, which no table holds,
so it is taken while the trial is played.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compendium.experiments.problems import Synthetic
from compendium.experiments.setting import Setting
from mlogb_core.curvature import LowRankCurvature
from mlogb_core.environments import SyntheticInstance
from mlogb_core.policies import OptimisticPolicy, Policy
from mlogb_core.simulation import trial_streams

#: What a trial stores beside the final state of a policy whose region was followed.
SHARES = ("largest_share", "last_share")
#: Up to this many parameters the dense matrix is as fast as its parts.
_SMALL = 50


class Region:
    r"""The share of the radius that the truth takes, :math:`\|W_t - W_\star\|_{Z_t}^2/\beta_t`.

    Parameters
    ----------
    policies : mapping of str to Policy
        Who plays; the optimistic ones are followed. They are looked at once now, before the first round.
    truth : (K, d) array
        :math:`W_\star`.

    Raises
    ------
    ValueError
        If no policy is optimistic.
    """

    def __init__(self, policies: Mapping[str, Policy], truth: np.ndarray) -> None:
        followed = {name: one for name, one in policies.items() if isinstance(one, OptimisticPolicy)}
        if not followed:
            raise ValueError(f"policies must have an optimistic one to be followed, got {tuple(policies)}")
        self._policies, self._truth = followed, truth
        self._largest, self._last = dict.fromkeys(followed, 0.0), dict.fromkeys(followed, 0.0)
        self.look()

    def look(self) -> None:
        """Take the distances in the state in which the policies are now."""
        for name, policy in self._policies.items():
            self._last[name] = _share(policy, self._truth)
            self._largest[name] = max(self._largest[name], self._last[name])

    def shares(self, name: str) -> dict[str, float]:
        """The largest share so far and the last one; nothing for a policy that is not followed.

        A share is infinite where the radius is 0. The truth was covered in all rounds if the largest share is
        at most 1.
        """
        if name not in self._policies:
            return {}
        return dict(zip(SHARES, (self._largest[name], self._last[name]), strict=True))


def true_parameter(setting: Setting, seed: int, experiment: str, trial: int) -> np.ndarray:
    """Return the true parameter of a trial; raise a ValueError if the problem of the setting has none."""
    if not isinstance(setting.problem, Synthetic):
        raise ValueError(
            f"the true parameter must be known, so the problem synthetic, got {setting.problem!r} in "
            f"{setting.name!r}"
        )
    # A second copy of the instance's stream gives the same instance as `run_trial` draws.
    instance = setting.problem.environment().instance(trial_streams(seed, experiment, trial).instance)
    assert isinstance(instance, SyntheticInstance)
    return instance.parameter


def squared_distance(policy: OptimisticPolicy, truth: np.ndarray) -> float:
    r"""Return :math:`\|W_t - W_\star\|_{Z_t}^2` for the present state of a policy."""
    error, curvature = (policy.parameter - truth).reshape(-1), policy.curvature
    if isinstance(curvature, LowRankCurvature) and error.size > _SMALL:
        inside = curvature.basis @ error
        return float(curvature.ridge * (error @ error) + inside @ curvature.core @ inside)
    return float(error @ curvature.dense() @ error)


def _share(policy: OptimisticPolicy, truth: np.ndarray) -> float:
    beta = policy.beta
    return squared_distance(policy, truth) / beta if beta > 0.0 else np.inf
