"""What campaigns of many short runs share: runs in processes of the simulator beside each other, and a file of those
that are finished."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any, TypeVar

Part = TypeVar("Part")
Found = TypeVar("Found")


class RunFile:
    """Finished runs in a file of folder `folder` that is only appended to: one file for what `key` says and these
    sources (`version`)."""

    def __init__(self, folder: Path, key: object, version: str):
        name = hashlib.sha256(repr((key, version)).encode()).hexdigest()[:16]
        self._path = folder / f"{name}.jsonl"

    def load(self) -> Iterator[Any]:
        """What was kept. What was cut off in writing is left out."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def add(self, kept: dict[str, Any]) -> None:
        """Keep one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            # What was cut off before stays a line of its own.
            file.write("\n" + json.dumps(kept))


def side_by_side(parts: Sequence[Part], run: Callable[[Part], Iterable[Found]], processes: int) -> Iterator[Found]:
    """What `run` gives of each of `parts`, in the order in which it comes; `processes` parts at a time, each with a
    thread that waits for its simulator. An error of one ends all."""
    found: SimpleQueue[Found | Exception | None] = SimpleQueue()
    over = Event()

    def work(part: Part) -> None:
        try:
            for item in run(part):
                found.put(item)
                if over.is_set():
                    break
        except Exception as error:
            found.put(error)
        found.put(None)

    with ThreadPoolExecutor(processes) as pool:
        try:
            for part in parts:
                pool.submit(work, part)
            left = len(parts)
            while left:
                item = found.get()
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    left -= 1
                else:
                    yield item
        finally:
            over.set()
            pool.shutdown(cancel_futures=True)
