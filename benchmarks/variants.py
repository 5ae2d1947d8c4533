"""The variants that are compared, and how a printed form takes over the state of a policy.

The library's forms reach the steady state by playing. A printed form would take minutes for that; it is given
the state of the NumPy form instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mlogb_core.literal import LiteralEOFD, LiteralOFUL, LiteralPolicy, Sketch
from mlogb_core.policies import OptimisticPolicy, Policy, eofd, oful
from mlogb_core.printed import CholeskyOFUL, PrintedEOFD, PrintedOFUL

FORMS = ("printed", "cholesky", "numpy", "compiled")
#: The forms of the library's policies. The other forms are given the state of the NumPy form.
LIBRARY = ("numpy", "compiled")


class Variant(NamedTuple):
    """An algorithm in one form, with one sketch size.

    Attributes
    ----------
    family : str
        `eofd` or `oful`.
    form : str
        `printed` (the steps of the paper, all actions scored at once), `cholesky` (only OFUL, with one
        Cholesky factor per round), `numpy` or `compiled`.
    sketch_size : int
        m of EOFD; 0 for OFUL, which has none.
    """

    family: str
    form: str
    sketch_size: int = 0

    @property
    def reference(self) -> Variant:
        """The NumPy form of the same algorithm; all forms must play its actions."""
        return self._replace(form="numpy")

    @property
    def rival(self) -> Variant:
        """OFUL in the same form, with which EOFD is compared."""
        return Variant("oful", self.form)


def missing_forms() -> dict[str, str]:
    """Forms that are not available in this environment, with the reason."""
    try:
        build(Variant("oful", "compiled"), 2, np.ones(1), _tiny())
    except ImportError as error:
        return {"compiled": str(error)}
    return {}


def build(variant: Variant, n_features: int, rewards: Any, settings: Mapping[str, Any]) -> Policy:
    """A fresh policy.

    Parameters
    ----------
    variant : Variant
        Which one.
    n_features : int
        d.
    rewards : (K,) array
        Rewards of the outcomes 1..K.
    settings : mapping
        `regularization`, `step_size`, `norm_bound` and `radius`.

    Raises
    ------
    ImportError
        If the compiled form needs a package that is not installed.
    """
    arguments = dict(settings)
    if variant.family == "eofd":
        arguments["sketch_size"] = variant.sketch_size
    if variant.form not in LIBRARY:
        return _OTHERS[variant.family, variant.form](n_features, rewards, **arguments)
    if variant.form == "compiled":
        arguments["compiled"] = True
    return (eofd if variant.family == "eofd" else oful)(n_features, rewards, **arguments)


def take_over(literal: LiteralPolicy, policy: OptimisticPolicy) -> None:
    r"""Give a new printed policy the state of another policy with the same parameters.

    Parameters
    ----------
    literal : LiteralPolicy
        One of `mlogb_core.printed`, or of the oracle; changed in place.
    policy : OptimisticPolicy
        The NumPy form; not changed.

    Notes
    -----
    The low-rank part :math:`B^\top C B` of the library's sketch becomes :math:`V\Lambda V^\top` by an
    eigendecomposition of the small core C. While the rank is below m, the remaining columns of V are 0 with
    eigenvalue 0, which gives the same results as orthonormal columns would.
    """
    state = policy.state_dict()
    if isinstance(literal, LiteralEOFD):
        literal.sketch = _spectral_sketch(state, literal.rank_bound)
    elif isinstance(literal, LiteralOFUL):
        literal.hessian = policy.curvature.dense().copy()
        literal._inverse_root = literal._form_inverse_root()
    literal.parameter = state["parameter"].copy()
    literal.rounds = int(state["rounds"])
    literal._logit_movement = float(state["logit_movement"])
    literal._hessian_movement = float(state["hessian_movement"])


_OTHERS: Mapping[tuple[str, str], type[LiteralPolicy]] = {
    ("eofd", "printed"): PrintedEOFD,
    ("oful", "printed"): PrintedOFUL,
    ("oful", "cholesky"): CholeskyOFUL,
}


def _spectral_sketch(state: Mapping[str, Any], rank_bound: int) -> Sketch:
    basis, core = state["curvature.basis"], state["curvature.core"]
    values, vectors = np.linalg.eigh(core)
    directions = np.zeros((basis.shape[1], rank_bound))
    directions[:, : len(core)] = basis[: len(core)].T @ vectors[:, ::-1]
    spectrum = np.zeros(rank_bound)
    spectrum[: len(core)] = np.maximum(values[::-1], 0.0)
    return Sketch(directions, spectrum, float(state["curvature.shrinkage"]))


def _tiny() -> dict[str, Any]:
    from mlogb_core.radius import ConstantRadius

    return {"regularization": 1.0, "step_size": 1.0, "norm_bound": 1.0, "radius": ConstantRadius(1.0)}
