"""What a run is asked for: an experiment, its parameters with the seed, and its data.

This alone names a run and decides whether a stored one answers. Neither the code nor the text of the
notebook is part of it: which code made a run, and which code has reproduced it, stands beside the run
(see `compendium.runs.attestation`). A comment that changes leaves a run valid, and a number that changes
is found by computing again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from compendium.experiments.data import DataError, Dataset, load_fashion, load_mnist
from compendium.runs.manifest import CUSTOM, DataName, Experiment, Parameters, notebook_parameters, resolve
from compendium.system.paths import UsageError
from compendium.system.provenance import sha256

if TYPE_CHECKING:
    from compendium.experiments.ratings import Ratings


@dataclass(frozen=True)
class Request:
    """What decides the results of a run.

    Attributes
    ----------
    experiment : str
        Name in the manifest.
    kind : str
        The profile, or ``custom`` where parameters of the profile are overridden.
    parameters : dict
        All parameters of the notebook: those that are given, and the others with their defaults.
    data : dict
        The checksum of each data set that the experiment may use; None for one that is not there.
    """

    experiment: str
    kind: str
    parameters: Parameters
    data: dict[str, str | None]

    @classmethod
    def make(
        cls, experiment: Experiment, profile: str, point: Parameters, overrides: Parameters
    ) -> tuple[Self, Parameters]:
        """Return the request, and those of its parameters that the notebook has to be given.

        Raises
        ------
        UsageError
            If the parameters do not fit, or the digits are damaged or not where the user says.
        """
        given = resolve(experiment, profile, {**point, **overrides})
        parameters = _plain({**notebook_parameters(experiment.source), **given})
        data: dict[str, str | None] = {name: _checksum(name) for name in experiment.data}
        return cls(experiment.name, CUSTOM if overrides else profile, parameters, data), given

    @classmethod
    def of(cls, path: Path, record: Mapping[str, Any]) -> Self:
        """Return the request that a stored run answers, as its record and its notebook say."""
        notebook = path / f"{Path(record['notebook']).stem}.ipynb"
        parameters = _plain({**notebook_parameters(notebook), **record["parameters"]})
        kind = CUSTOM if record["overrides"] else record["profile"]
        # Records of before the manifest named data have those that the studies used.
        data = record["data"] if "data" in record else used_data(record["study"])
        return cls(record["experiment"], kind, parameters, data)

    @property
    def name(self) -> str:
        """Name of the run's folder: the kind, and eight digits of a hash of everything else."""
        request = json.dumps([self.experiment, self.parameters, self.data], sort_keys=True)
        return f"{self.kind}-{sha256(request)[:8]}"

    def is_answered_by(self, stored: Request) -> bool:
        """Whether a run of the stored request is what is asked for.

        Data that this machine does not have cannot contradict the run: it holds more than could be
        computed here.
        """
        known = all(checksum in (None, stored.data.get(name)) for name, checksum in self.data.items())
        return known and replace(self, data={}) == replace(stored, data={})


def used_data(study: Mapping[str, Any]) -> dict[str, str | None]:
    """Return name and checksum of the data sets that the studies of a run say they used."""
    sets = [data for one in study.get("studies", []) for data in one.get("data", [])]
    return {data["name"]: data["sha256"] for data in sets if "sha256" in data}


def _checksum(name: DataName) -> str | None:
    """The checksum of a data set on this machine, or None where it is not there.

    The digits are always there, so an error in reading them is one that the user should know. Notebooks
    leave out the other data sets where they cannot be read, and say so.
    """
    try:
        return str(_loader(name)().checksum)
    except DataError as error:
        if name == "MNIST":
            raise UsageError(str(error)) from None
        return None


def _loader(name: DataName) -> Callable[[], Dataset | Ratings]:
    if name == "MNIST":
        return load_mnist
    if name == "Fashion-MNIST":
        return load_fashion
    from compendium.experiments import ratings  # needs pandas, which takes a second to import

    return ratings.load_movielens if name == "MovieLens-100k" else ratings.load_insteval


def _plain(parameters: Parameters) -> Parameters:
    """The parameters as a record holds them, where a tuple is a list."""
    return dict(json.loads(json.dumps(parameters)))
