"""A test that fails is named at once, not only in a summary that a run that is cut off never writes."""

import subprocess
import sys
from pathlib import Path

from tb.site.commands import ROOT


def test_a_failure_is_told_when_it_happens(tmp_path: Path) -> None:
    file = tmp_path / "test_two.py"
    file.write_text("def test_wrong():\n    assert 1 + 1 == 3\n\ndef test_right():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tb.conftest", "--rootdir", str(tmp_path), str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    told = done.stdout.partition("= FAILURES =")[0]
    assert "test_wrong failed (call)" in told
    assert "assert (1 + 1) == 3" in told
