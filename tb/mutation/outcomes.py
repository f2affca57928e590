"""tb/mutation/outcomes.json: how each mutant ended, so that a run goes on where one of another checkout was cut off.

By block: the digest of the netlist, and by the digest of each mutant's command (without where in the sources it is) the
first letter of its outcome. What is of another netlist counts for nothing. As in one checkout, survivors are tried
again and their proofs are not.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from sim.files import replaced
from tb.mutation.netlist import Mutant

OUTCOMES = Path(__file__).with_name("outcomes.json")
_BY_LETTER = {outcome[0]: outcome for outcome in ("killed", "equivalent", "survived")}
_SOURCE = re.compile(r"^\s*attribute \\src .*\n", re.MULTILINE)
_SOURCE_OPTION = re.compile(r" -src \S+")


def netlist_digest(rtlil: str) -> str:
    """Name of a netlist: the same wherever its sources are, and when only their comments change."""
    return hashlib.sha256(_SOURCE.sub("", rtlil).encode()).hexdigest()[:16]


def _command_digest(command: str) -> str:
    """Of what the mutant is, not of where the sources are that it is said to come from."""
    return hashlib.sha256(_SOURCE_OPTION.sub("", command).encode()).hexdigest()[:8]


def _read(path: Path) -> dict[str, dict]:
    return json.loads(path.read_text()) if path.exists() else {}


def read_outcomes(block: str, netlist: str, mutants: Iterable[Mutant], path: Path = OUTCOMES) -> dict[int, str]:
    """The known outcomes of those of `mutants` that were tried, by their numbers."""
    entry = _read(path).get(block, {})
    letters = entry.get("outcomes", {}) if entry.get("netlist") == netlist else {}
    named = {mutant.number: _command_digest(mutant.command) for mutant in mutants}
    return {number: _BY_LETTER[letters[name]] for number, name in named.items() if name in letters}


def keep_outcome(block: str, netlist: str, command: str, outcome: str, path: Path = OUTCOMES) -> None:
    """Add or replace one outcome; those of an earlier netlist of the block go."""
    kept = _read(path)
    if kept.get(block, {}).get("netlist") != netlist:
        kept[block] = {"netlist": netlist, "outcomes": {}}
    kept[block]["outcomes"][_command_digest(command)] = outcome[0]
    lines = [f" {json.dumps(name)}: {json.dumps(entry, sort_keys=True)}" for name, entry in sorted(kept.items())]
    with replaced(path) as written:
        written.write_text("{\n" + ",\n".join(lines) + "\n}\n")
