"""Requests: the experiment, the parameters with the seed, and the data that a run is asked for.

The request alone gives a run its name and decides whether a stored run answers it. Neither the code nor the
text of the notebook is part of it. Which code made a run is in its record, and which code has reproduced it
is in its attestations (see `compendium.runs.attestation`). So a changed comment leaves a run valid, and a
changed number is found by computing trials again.
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
        The checksum of each data set that the experiment may use; None for one that is not on this machine.
    """

    experiment: str
    kind: str
    parameters: Parameters
    data: dict[str, str | None]

    @classmethod
    def make(
        cls, experiment: Experiment, profile: str, point: Parameters, overrides: Parameters
    ) -> tuple[Self, Parameters]:
        """Return the request, and the parameters that must be passed to the notebook.

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
        """Return the request that a stored run answers, according to its record and its notebook."""
        notebook = path / f"{Path(record['notebook']).stem}.ipynb"
        parameters = _plain({**notebook_parameters(notebook), **record["parameters"]})
        kind = CUSTOM if record["overrides"] else record["profile"]
        # Records from before the manifest named data have only the data that the studies used.
        data = record["data"] if "data" in record else used_data(record["study"])
        return cls(record["experiment"], kind, parameters, data)

    @property
    def name(self) -> str:
        """Name of the run's folder: the kind, and eight digits of a hash of everything else."""
        request = json.dumps([self.experiment, self.parameters, self.data], sort_keys=True)
        return f"{self.kind}-{sha256(request)[:8]}"

    def is_answered_by(self, stored: Request) -> bool:
        """Whether a run of the stored request answers this request.

        Data that this machine does not have do not contradict the run, which then has more than could be
        computed on this machine.
        """
        known = all(checksum in (None, stored.data.get(name)) for name, checksum in self.data.items())
        return known and replace(self, data={}) == replace(stored, data={})


def used_data(study: Mapping[str, Any]) -> dict[str, str | None]:
    """Return name and checksum of the data sets that the studies of a run say they used."""
    sets = [data for one in study.get("studies", []) for data in one.get("data", [])]
    return {data["name"]: data["sha256"] for data in sets if "sha256" in data}


def _checksum(name: DataName) -> str | None:
    """Return the checksum of a data set on this machine, or None if it is absent.

    The digits are always on the machine, so the user must know of an error in reading them. The other data
    sets may be absent or unreadable; notebooks then leave them out and say so.
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
    """Return the parameters in the form that they have in a record, where a tuple is a list."""
    return dict(json.loads(json.dumps(parameters)))
