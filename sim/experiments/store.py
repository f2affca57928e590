"""Results of finished points on disk: one JSON file each, found again by what it was made from."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sim.experiments.experiment import Point
from sim.experiments.grid import trace_file
from sim.files import replaced


class PointStore:
    """Results in `folder`, each in a file named after its point and the `version` of the sources it was made with.

    A file appears all at once or not at all, so whatever is there is finished; one of another version is never read.
    """

    def __init__(self, folder: Path, version: str):
        self.folder = folder
        self.version = version

    def path(self, point: Point) -> Path:
        """Where the result of `point` is, or will be. A trace file counts by its content, not by where it lies, and a
        sub-layer by its shape, not by its name: FC-1 and FC-2 are one simulation."""
        fields = asdict(point)
        if point.trace:
            file, key = trace_file(point.trace)
            fields["trace"] = [hashlib.sha256(file.read_bytes()).hexdigest(), key]
        else:
            work = point.sublayer
            fields["workload"] = [work.m, work.n, work.k, work.tp]
        text = json.dumps({"point": fields, "sources": self.version}, sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"

    def load(self, point: Point) -> dict[str, Any] | None:
        """The result of `point`; None when it has not been run."""
        try:
            result: dict[str, Any] = json.loads(self.path(point).read_text())["result"]
        except FileNotFoundError:
            return None
        return result | ({"point": asdict(point)} if "point" in result else {})

    def save(self, point: Point, result: dict[str, Any]) -> None:
        """Keep the result of `point`."""
        entry = {"point": asdict(point), "sources": self.version, "result": result}
        with replaced(self.path(point)) as draft:
            draft.write_text(json.dumps(entry) + "\n")
