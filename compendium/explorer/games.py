"""The explorer: one game with parameters of the reader's choice, its figure and its controls.

Everything shown is computed by `mlogb_core` when it is asked for. EOFD-MLogB plays a second time with a
recorder, which keeps what the algorithm itself never forms: the accumulated Hessian and the last step that
had to be projected. `explorer` puts controls around `play` and `draw`.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveFloat, PositiveInt

from compendium.experiments.problems import Synthetic
from compendium.experiments.trials import Setting
from compendium.report.figures import STYLES
from mlogb_core._validation import Array
from mlogb_core.curvature import FrequentDirections
from mlogb_core.link import jacobian, jacobian_factor, loss_residual, outcome_probabilities
from mlogb_core.policies import OptimisticPolicy
from mlogb_core.projection import project_onto_ball
from mlogb_core.simulation import Trial, run_trial, trial_streams

#: What the reader does not choose: lambda and eta of every game.
RIDGE = 1.0
STEP_SIZE = 1.0
SHOWN = ("eofd", "oful", "first-order", "random")
#: What a plain front end is shown in place of the controls.
WITHOUT_FRONT_END = "The controls appear here when the notebook runs in JupyterLab."


class Choice(BaseModel):
    """What the reader chooses.

    Parameters
    ----------
    n_outcomes, n_features, sketch_size : int
        K, d and m.
    decay : float
        The variances of the features decay like i to this negative power.
    norm_bound : float
        S, the length of the true parameter and the radius of the ball that the estimate stays in.
    scale : float
        c in beta = c lambda S^2.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_outcomes: PositiveInt = 3
    n_features: PositiveInt = 50
    sketch_size: PositiveInt = 5
    decay: NonNegativeFloat = 1.0
    norm_bound: PositiveFloat = 3.0
    scale: NonNegativeFloat = 0.001

    @property
    def n_parameters(self) -> int:
        """Kd."""
        return self.n_outcomes * self.n_features

    @property
    def beta(self) -> float:
        """The squared radius of the confidence region."""
        return self.scale * RIDGE * self.norm_bound**2

    def setting(self, policies: tuple[str, ...] = SHOWN) -> Setting:
        """The setting of a trial with these parameters; outcome k is worth k/K."""
        K = self.n_outcomes
        problem = Synthetic(
            dimension=self.n_features,
            rewards=tuple(k / K for k in range(1, K + 1)),
            parameter_norm=self.norm_bound,
            decay=self.decay,
        )
        return Setting(
            name="explorer",
            problem=problem,
            sketch_size=self.sketch_size,
            regularization=RIDGE,
            step_size=STEP_SIZE,
            norm_bound=self.norm_bound,
            radius={"kind": "ridge", "scale": self.scale},
            policies=policies,
        )


class Dual(NamedTuple):
    r"""A projection onto the ball, seen in the eigenbasis of its matrix.

    Attributes
    ----------
    eigenvalues, coordinates : (n,) array
        Eigenvalues p of :math:`\tilde Z`, and the coordinates y of :math:`w'` in its eigenvectors.
    norm_bound : float
        S.
    iterates : tuple of float
        Newton's iterates from 0; the last one is the root :math:`\nu`.
    """

    eigenvalues: Array
    coordinates: Array
    norm_bound: float
    iterates: tuple[float, ...]

    @property
    def root(self) -> float:
        r"""The multiplier :math:`\nu`."""
        return self.iterates[-1]

    @property
    def steps(self) -> int:
        """Newton steps that were taken."""
        return len(self.iterates) - 1

    def value(self, multiplier: ArrayLike) -> Array:
        r"""The dual function :math:`f(\nu) = \sum_i (p_i y_i / (p_i + \nu))^2` at an array of multipliers."""
        p, nu = self.eigenvalues, np.asarray(multiplier, dtype=np.float64)[..., None]
        return np.asarray(np.square(p * self.coordinates / (p + nu)).sum(axis=-1))


@dataclass(frozen=True)
class Game:
    """One game and what was recorded of EOFD-MLogB in it.

    Attributes
    ----------
    choice : Choice
        The parameters.
    trial : Trial
        The policies named in `SHOWN`, in this order.
    hessian : (Kd, Kd) array
        Sum of the Hessians that EOFD-MLogB's sketch was given, without the ridge.
    sketch : FrequentDirections
        The sketch at the end.
    dual : Dual or None
        The last projection; None if every step stayed in the ball.
    """

    choice: Choice
    trial: Trial
    hessian: Array
    sketch: FrequentDirections
    dual: Dual | None

    def regrets(self) -> dict[str, float]:
        """Total regret by policy."""
        return dict(zip(self.trial.policies, map(float, self.trial.regret.sum(axis=0)), strict=True))

    def milliseconds(self) -> dict[str, float]:
        """Median time of a round by policy, over the second half of the game."""
        seconds = (self.trial.select_seconds + self.trial.update_seconds)[len(self.trial.n_actions) // 2 :]
        return dict(zip(self.trial.policies, map(float, 1e3 * np.median(seconds, axis=0)), strict=True))


class _Recorder:
    """EOFD-MLogB as a policy that also keeps what the algorithm itself never forms.

    Attributes
    ----------
    hessian : (Kd, Kd) array
        Sum of the Hessians that the sketch is given.
    projected : tuple of arrays, optional
        Matrix and point of the last step that ended outside of the ball.
    """

    def __init__(self, policy: OptimisticPolicy) -> None:
        self.policy, self.margin = policy, policy.margin
        size = policy.parameter.size
        self.hessian: Array = np.zeros((size, size))
        self.projected: tuple[Array, Array] | None = None

    def select(self, actions: ArrayLike) -> int:
        chosen = self.policy.select(actions)
        self.margin = self.policy.margin
        return chosen

    def update(self, action: ArrayLike, outcome: int) -> None:
        x = np.asarray(action, dtype=np.float64)
        self._record_projection(x, outcome)
        self.policy.update(x, outcome)
        self.hessian += self._loss_hessian(x)

    def _loss_hessian(self, x: Array) -> Array:
        slope = jacobian(outcome_probabilities(self.policy.parameter @ x))
        return np.asarray(np.kron(slope, np.outer(x, x)))

    def _record_projection(self, x: Array, outcome: int) -> None:
        policy, curvature, eta = self.policy, self.policy.curvature, self.policy.step_size
        probabilities = outcome_probabilities(policy.parameter @ x)
        residual, factor = loss_residual(probabilities, outcome), jacobian_factor(probabilities)
        step = curvature.newton_step(curvature.frame(x), policy.parameter, residual, factor, eta, np.inf)
        if np.linalg.norm(step.parameter) > policy.norm_bound:
            self.projected = curvature.dense() + eta * self._loss_hessian(x), step.parameter.ravel()


def play(choice: Choice, n_rounds: int = 300, seed: int = 17) -> Game:
    """Play one game with the library.

    Parameters
    ----------
    choice : Choice
        The parameters.
    n_rounds : int
        T >= 1.
    seed : int
        Of the random streams: one seed, one problem and one sequence of action sets.

    Returns
    -------
    Game
    """
    setting, streams = choice.setting(), trial_streams(seed, "explorer", 0)
    environment = setting.problem.environment()
    trial = run_trial(environment, setting.build(environment, streams.policy), n_rounds, streams)
    # Once more on the same random numbers, since recording takes time that no policy should be charged for.
    streams = trial_streams(seed, "explorer", 0)
    policy = choice.setting(("eofd",)).build(environment, streams.policy)["eofd"]
    assert isinstance(policy, OptimisticPolicy)
    recorder = _Recorder(policy)
    run_trial(environment, {"eofd": recorder}, n_rounds, streams)
    assert isinstance(policy.curvature, FrequentDirections)
    dual = recorder.projected and dual_of(*recorder.projected, choice.norm_bound)
    return Game(choice, trial, recorder.hessian, policy.curvature, dual)


def dual_of(matrix: ArrayLike, point: ArrayLike, norm_bound: float) -> Dual:
    r"""The projection of a point onto the ball of radius S in the norm of a matrix, step by step.

    Parameters
    ----------
    matrix : (n, n) or (n,) array
        :math:`\tilde Z`, or its eigenvalues where the coordinate axes are its eigenvectors.
    point : (n,) array
        :math:`w'`.
    norm_bound : float
        S > 0.

    Returns
    -------
    Dual
        With the iterates of Newton's method in `mlogb_core.projection.project_onto_ball`.
    """
    matrix, point = np.asarray(matrix, dtype=np.float64), np.asarray(point, dtype=np.float64)
    values, vectors = np.linalg.eigh(matrix) if matrix.ndim == 2 else (matrix, np.eye(len(matrix)))
    coordinates, iterates = vectors.T @ point, [0.0]

    def resolvent_at(multiplier: float) -> Any:
        if multiplier > 0.0:
            iterates.append(multiplier)
        return lambda vector: vector / (values + multiplier)

    _, root = project_onto_ball(resolvent_at, coordinates, values * coordinates, norm_bound, series=False)
    # A last evaluation that moved nothing beyond roundoff is not counted as a step.
    kept = [nu for nu in iterates[1:-1] if abs(nu - root) > 1e-12 * root]
    return Dual(values, coordinates, norm_bound, (0.0, *kept, root) if root > 0.0 else (0.0,))


def shadow(matrix: Array, plane: Array, beta: float, n_points: int = 200) -> Array:
    r"""Outline of the ellipsoid's shadow on a plane.

    The ellipsoid is :math:`\{w : w^\top Z w \le \beta\}`. In each direction x of the plane its shadow
    reaches as far as the bonus, :math:`\sqrt\beta\,\|x\|_{Z^{-1}}`.

    Parameters
    ----------
    matrix : (n, n) array
        Z, positive definite.
    plane : (n, 2) array
        Orthonormal columns.
    beta : float
        The squared radius.
    n_points : int
        Points of the outline.

    Returns
    -------
    (2, n_points) array
    """
    lower = np.linalg.cholesky(plane.T @ np.linalg.solve(matrix, plane))
    angle = np.linspace(0.0, 2.0 * np.pi, n_points)
    return np.asarray(np.sqrt(beta) * lower @ np.array([np.cos(angle), np.sin(angle)]))


def draw(game: Game, times: bool = True) -> Figure:
    """Draw a game: spectrum, dual function, confidence ellipsoid, regret, and times if they are wanted.

    Parameters
    ----------
    game : Game
        The game.
    times : bool
        Whether the times per round are drawn; no two runs have the same.

    Returns
    -------
    Figure
    """
    columns = 3 if times else 2
    figure, axes = plt.subplots(2, columns, figsize=(4.6 * columns, 7.6), layout="constrained")
    panels = list(axes.flat)
    for panel, axis in zip((_draw_spectrum, _draw_dual, _draw_ellipsoid, _draw_regret), panels, strict=False):
        panel(axis, game)
    if times:
        _draw_times(panels[4], game)
        panels[5].axis("off")
    return figure


def _named(values: dict[str, float], digits: int) -> str:
    return ", ".join(f"{STYLES[policy].label} {value:.{digits}f}" for policy, value in values.items())


def summary(game: Game, times: bool = True) -> str:
    """The numbers of the figure as text, one line each."""
    sketch = game.sketch
    lines = [
        f"K = {game.choice.n_outcomes}, d = {game.choice.n_features}, Kd = {game.choice.n_parameters}, "
        f"m = {game.choice.sketch_size}, {len(game.trial.n_actions)} rounds",
        f"rho = {sketch.shrinkage:.4g}, largest eigenvalue of the Hessian "
        f"{np.linalg.eigvalsh(game.hessian)[-1]:.4g}, beta = {game.choice.beta:.4g}",
        "no step left the ball"
        if game.dual is None
        else f"root nu = {game.dual.root:.4g} after {game.dual.steps} Newton steps",
        f"regret: {_named(game.regrets(), 1)}",
    ]
    if times:
        lines.append(f"ms a round: {_named(game.milliseconds(), 3)}")
    return "\n".join(lines)


def explorer(choice: Choice | None = None, n_rounds: int = 300) -> Any:
    """The controls and what they show, as one tree of ipywidgets.

    Parameters
    ----------
    choice : Choice, optional
        Where the controls start.
    n_rounds : int
        Rounds of each game.

    Returns
    -------
    ipywidgets.VBox
        Its children are the box of controls, the numbers, and the picture.

    Raises
    ------
    ImportError
        If ipywidgets is not installed; it is part of the extra `compendium`.
    """
    import ipywidgets as widgets

    start = choice or Choice()
    common: dict[str, Any] = {
        "continuous_update": False,
        "style": {"description_width": "10em"},
        "layout": widgets.Layout(width="24em"),
    }
    scales = [0.0, *(float(f"1e{k}") for k in range(-5, 1))]
    controls = {
        "n_outcomes": widgets.IntSlider(start.n_outcomes, 1, 4, description="outcomes K", **common),
        "n_features": widgets.IntSlider(start.n_features, 2, 60, description="features d", **common),
        "sketch_size": widgets.IntSlider(start.sketch_size, 1, 80, description="sketch size m", **common),
        "decay": widgets.FloatSlider(start.decay, min=0, max=3, step=0.25, description="decay", **common),
        "norm_bound": widgets.FloatLogSlider(
            start.norm_bound, min=-0.5, max=1.5, step=0.1, description="length S", **common
        ),
        "scale": widgets.SelectionSlider(
            options=sorted({*scales, start.scale}), value=start.scale, description="scale c of beta", **common
        ),
    }
    numbers, picture = widgets.HTML(), widgets.Image(format="png")

    def show(_: Any = None) -> None:
        chosen = Choice(**{name: control.value for name, control in controls.items()})
        game = play(chosen, n_rounds)
        numbers.value = f"<pre>{summary(game)}</pre>"
        picture.value = _png(draw(game))

    for control in controls.values():
        control.observe(show, names="value")
    show()
    box = widgets.Box(list(controls.values()), layout=widgets.Layout(flex_flow="row wrap"))
    return widgets.VBox([box, numbers, picture])


def show_explorer(choice: Choice | None = None) -> None:
    """Display the controls in a live front end; elsewhere say in one fixed line where they appear.

    Notes
    -----
    A widget's view has another id in each execution, so it cannot be an output that is stored and
    compared. The output has a line of text beside the view; where a notebook is stored, `normalise` keeps
    the text alone, and a kernel without a front end gives the same. The servers of JupyterLab and Notebook
    set JPY_SESSION_NAME for their kernels; nbclient, nbval and papermill do not.
    """
    from IPython.display import display

    view = explorer(choice)._repr_mimebundle_() if "JPY_SESSION_NAME" in os.environ else {}
    display(view | {"text/plain": WITHOUT_FRONT_END}, raw=True)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=80)
    plt.close(figure)
    return buffer.getvalue()


def _line(axis: Axes, policy: str, x: ArrayLike, y: ArrayLike, text: str) -> None:
    """A line in the colour and with the dashes of a policy."""
    axis.plot(x, y, color=STYLES[policy].colour, dashes=STYLES[policy].dashes, label=text)


def _draw_spectrum(axis: Axes, game: Game) -> None:
    full = np.linalg.eigvalsh(game.hessian)[::-1] + RIDGE
    kept = np.full(len(full), RIDGE)
    spectrum = game.sketch.spectrum()
    kept[: len(spectrum)] += spectrum
    index, rho = np.arange(1, len(full) + 1), game.sketch.shrinkage
    axis.fill_between(index, kept, kept + rho, color="0.85", label=r"between $Z$ and $Z + \rho I$")
    _line(axis, "oful", index, full, "full Hessian H")
    _line(axis, "eofd", index, kept, "sketch Z")
    axis.axvline(min(game.choice.sketch_size, len(full)), color="black", lw=0.8, ls=":", label="m")
    axis.set(title=rf"Spectrum, $\rho$ = {rho:.3g}", xlabel="number i of the eigenvalue", ylabel="eigenvalue")
    axis.set(xscale="log", yscale="log")
    axis.legend(fontsize=8)


def _draw_dual(axis: Axes, game: Game) -> None:
    axis.set(title="Dual function: no step left the ball", xlabel=r"multiplier $\nu$", ylabel=r"$f(\nu)/S^2$")
    if game.dual is None:
        return
    dual, square = game.dual, game.dual.norm_bound**2
    nu = np.linspace(0.0, 1.8 * dual.root, 200)
    axis.plot(nu, dual.value(nu) / square, color=STYLES["eofd"].colour, label=r"$f(\nu)/S^2$")
    axis.axhline(1.0, color="black", ls="--", lw=1, label="1, the edge of the ball")
    axis.plot(dual.iterates, dual.value(dual.iterates) / square, "ko", ms=5, label="Newton's iterates")
    axis.set_title(rf"Dual function, root $\nu$ = {dual.root:.3g}, {dual.steps} steps")
    axis.legend(fontsize=8)


def _draw_ellipsoid(axis: Axes, game: Game) -> None:
    choice, identity = game.choice, np.eye(len(game.hessian))
    if len(identity) == 1:
        axis.set(title="Confidence ellipsoid: an interval, with one parameter")
        return
    vectors = np.linalg.eigh(game.hessian)[1][:, ::-1]
    other = min(choice.sketch_size, len(vectors) - 1)
    for policy, matrix, text in (
        ("oful", game.hessian + RIDGE * identity, "full Hessian H"),
        ("eofd", game.sketch.dense(), "sketch Z"),
        ("first-order", RIDGE * identity, "round 1, no curvature"),
    ):
        x, y = shadow(matrix, vectors[:, [0, other]], choice.beta)
        _line(axis, policy, x, y, text)
    axis.plot(0, 0, "k+", label="estimate")
    reach = 1.1 * float(np.sqrt(choice.beta / RIDGE)) or 1.0
    axis.set(
        title=rf"Confidence ellipsoid, $\beta$ = {choice.beta:.3g}",
        xlabel="along eigenvector 1 of H (logits)",
        ylabel=f"along eigenvector {other + 1} (logits)",
        aspect="equal",
        xlim=(-reach, reach),
        ylim=(-reach, 1.8 * reach),  # room for the legend
    )
    axis.legend(fontsize=8, loc="upper center", ncols=2)


def _draw_regret(axis: Axes, game: Game) -> None:
    rounds = np.arange(1, len(game.trial.n_actions) + 1)
    for policy, regret in zip(game.trial.policies, game.trial.regret.T, strict=True):
        _line(axis, policy, rounds, np.cumsum(regret), STYLES[policy].label)
    axis.set(title="Regret, one game", xlabel="round t", ylabel="cumulative regret (missed rewards)")
    axis.legend(fontsize=8)


def _draw_times(axis: Axes, game: Game) -> None:
    spent = game.milliseconds()
    for place, (policy, value) in enumerate(spent.items()):
        axis.plot(value, place, marker=STYLES[policy].marker, ls="", color=STYLES[policy].colour, ms=9)
        axis.annotate(
            f"{value:.3g} ms", (value, place), xytext=(10, -4), textcoords="offset points", fontsize=9
        )
    axis.set_yticks(range(len(spent)), [STYLES[policy].label for policy in spent])
    axis.set(title="Time per round, this machine", xlabel="time per round (ms)", xscale="log")
    axis.set_ylim(len(spent) - 0.5, -0.5)
    low, high = axis.get_xlim()
    axis.set_xlim(low, high * 4)  # room for the numbers
