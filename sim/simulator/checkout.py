"""Which commit the measured sources are."""

import subprocess
from pathlib import Path


def commit() -> str:
    """The commit that is checked out, with a mark when files differ from it; "unknown" without git or a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=10", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return found.stdout.strip() or "unknown"
