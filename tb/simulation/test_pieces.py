"""The C++ of a model in few files: all of it, none twice, each compiled as it should be."""

import subprocess

from sim.simulator import pieces

CLASSES = """\
VM_PARALLEL_BUILDS = 0
VM_CLASSES_FAST += \\
  Vx \\
  Vx_0 \\
  Vx_1 \\

VM_CLASSES_SLOW += \\
  Vx_2__Slow \\

VM_SUPPORT_FAST += \\
  Vx__Dpi \\

VM_SUPPORT_SLOW += \\

VM_GLOBAL_FAST += \\
  verilated \\
  verilated_dpi \\
  verilated_threads \\

"""
MAKEFILE = """\
include Vx_classes.mk
VK_OBJS += Vx__ALL.o
OPT_SLOW = -O0
all: $(VK_OBJS) $(addsuffix .o,$(VM_GLOBAL_FAST) host)
%.o: %.cpp
\t@echo $@ $(OPT_FAST) $(CPPFLAGS)
"""


def test_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_BYTES", 100)
    (tmp_path / "Vx_classes.mk").write_text(CLASSES)
    (tmp_path / "Vx.mk").write_text(MAKEFILE)
    for name, size in (("Vx", 10), ("Vx_0", 80), ("Vx_1", 200), ("Vx_2__Slow", 1), ("Vx__Dpi", 1), ("host", 1)):
        (tmp_path / f"{name}.cpp").write_text(" " * size)
    makefile = pieces.joined(tmp_path, "Vx", newer=("host.cpp",))
    included = {path.name: path.read_text().split()[1::2] for path in sorted(tmp_path.glob("*_[0-9r]*.cpp"))}
    assert {name: files for name, files in included.items() if not name.startswith("Vx")} == {
        "fast_0.cpp": ['"Vx.cpp"', '"Vx_0.cpp"'],
        "fast_1.cpp": ['"Vx_1.cpp"'],
        "fast_2.cpp": ['"Vx__Dpi.cpp"'],
        "slow_0.cpp": ['"Vx_2__Slow.cpp"'],
        "verilated_runtime.cpp": ['"verilated.cpp"', '"verilated_threads.cpp"'],
    }
    command = ["make", "-s", "-f", makefile.name, "OPT_FAST=-O1", "all"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    assert sorted(line.strip() for line in made) == [
        "fast_0.o -O1",
        "fast_1.o -O1",
        "fast_2.o -O1",
        "host.o -O1 -std=c++20",
        "slow_0.o -O0",
        "verilated_runtime.o -O1",
    ]
