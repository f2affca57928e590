"""Results of finished points on disk: one file of results each, found again by what it was made from."""

import hashlib
import json
from pathlib import Path

from sim.errors import UsageError
from sim.experiments.catalogue import trace_file
from sim.experiments.results import Result, read_results, write_results
from sim.experiments.spec import Spec


class PointStore:
    """Results in `folder`, each in a file named after its spec and the `version` of the sources it was made with.

    A file appears all at once or not at all, so whatever is there is finished; one of another version is never read.
    """

    def __init__(self, folder: Path, version: str):
        self.folder = folder
        self.version = version

    def path(self, spec: Spec) -> Path:
        """Where the result of `spec` is, or will be. A trace file counts by its content, not by where it lies, and a
        sub-layer by its shape, not by its name: FC-1 and FC-2 are one simulation."""
        fields = spec.to_json() | {"name": ""}
        if spec.trace:
            file, key = trace_file(spec.trace)
            fields["trace"] = [hashlib.sha256(file.read_bytes()).hexdigest(), key]
        text = json.dumps({"spec": fields, "sources": self.version}, sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"

    def load(self, spec: Spec) -> Result | None:
        """The result of `spec`; None when it has not been run. Raises :class:`sim.errors.UsageError` for a file that is
        damaged."""
        path = self.path(spec)
        if not path.exists():
            return None
        results = read_results(path)
        if len(results) != 1 or not isinstance(results[0], dict):
            raise UsageError(f"{path} is damaged; remove it, and its point runs again")
        return results[0] | {"spec": spec.to_json()}

    def save(self, spec: Spec, result: Result) -> None:
        """Keep the result of `spec`."""
        write_results(self.path(spec), [result], sources=self.version)
