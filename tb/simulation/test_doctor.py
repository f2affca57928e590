"""`t3rtl doctor` names what is missing, and by its exit code whether a simulation can run."""

import pytest

from sim.cli import doctor
from sim.cli.main import command_line
from sim.simulator import machine


def test_a_machine_with_everything_is_well(capsys, monkeypatch):
    monkeypatch.setattr(machine, "compile_seconds", lambda: machine.REFERENCE_SECONDS)
    assert command_line(["doctor"]) == 0
    printed = capsys.readouterr().out
    names = ("t3rtl", "Python", "packages", "compiler", "make", "Verilator", "wave headers", "disk", "memory", "speed")
    for name in (*names, "build folder", "first simulation"):
        assert f"\n{name} " in f"\n{printed}"
    assert "WRONG" not in printed
    assert "1.00 of the reference's" in printed


@pytest.mark.parametrize("missing", ["g++", "make"])
def test_a_missing_tool_is_named(capsys, monkeypatch, missing):
    found = doctor.shutil.which
    monkeypatch.setattr(doctor.shutil, "which", lambda tool: None if tool == missing else found(tool))
    monkeypatch.setattr(machine, "compile_seconds", lambda: machine.REFERENCE_SECONDS)
    assert command_line(["doctor"]) == 3
    printed = capsys.readouterr()
    assert f"not found; Debian: apt-get install {missing}  [WRONG]" in printed.out
    assert printed.err.startswith("t3rtl: no simulation runs here before this is put right: ")


def test_little_room_is_noted(capsys, monkeypatch):
    monkeypatch.setattr(machine, "compile_seconds", lambda: 10 * machine.REFERENCE_SECONDS)
    monkeypatch.setattr(machine, "disk", lambda: machine.Space(1 << 20, 1 << 40))
    assert command_line(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "[note: less than 2 GB]" in printed
    assert "[note: slow]" in printed
