"""Processes that change what they drive once: what is rewritten, and that an event-driven simulator comes to rest."""

import shutil
import subprocess
from pathlib import Path

import pytest

from hw.export.processes import change_once

CROSSED = """module crossed(input [1:0] choose, input rst, input clk, output [1:0] seen);
  reg [1:0] left;
  reg [1:0] right;
  reg [1:0] _1_;
  reg [1:0] kept = 2'h0;
  always_ff @(posedge clk)
    kept <= _1_;
  always_comb begin
    left[0] = 1'h0;
    if (choose[0]) begin
      left[0] = right[1];
    end
  end
  always_comb begin
    left[1] = choose[0];
  end
  always_comb begin
    right = 2'h0;
    if (choose[1]) begin
      right[1] = left[1];
      right[0] = left[0];
    end
  end
  always_comb begin
    _1_ = kept;
    if (rst) begin
      _1_ = 2'h0;
    end
  end
  assign seen = right ^ kept;
endmodule
"""
"""Two processes, each of which reads other bits of what the other drives: no loop, bit by bit. As yosys writes it."""


def test_processes_work_on_variables_of_their_own():
    text = change_once(CROSSED)
    assert (
        """  always_comb begin : process_1
    reg [0:0] _left$new;
    _left$new[0] = 1'h0;
    if (choose[0]) begin
      _left$new[0] = right[1];
    end
    left [0] = _left$new [0];
  end
"""
        in text
    )
    assert "    right = _right$new;\n" in text


def test_several_variables_assigned_at_once():
    text = change_once(
        """module joined(input [2:0] given, input clear, output [2:0] seen);
  reg [2:0] left;
  reg \\right.one ;
  always_comb begin
    { left[2], \\right.one , left[0] } = { given[2:1], given[0] };
    if (clear) begin
      left[0] = 1'h0;
    end
  end
  assign seen = { left[2], \\right.one , left[0] };
endmodule
"""
    )
    assert (
        """    reg [2:0] _left$new;
    reg \\_right.one$new ;
    { _left$new[2], \\_right.one$new , _left$new[0] } = { given[2:1], given[0] };
    if (clear) begin
      _left$new[0] = 1'h0;
    end
    left [0] = _left$new [0];
    left [2] = _left$new [2];
    \\right.one  = \\_right.one$new ;
"""
        in text
    )


def test_what_only_registers_take_and_what_has_no_default_stays():
    text = change_once(CROSSED)
    kept = CROSSED[CROSSED.index("  always_comb begin\n    _1_") : CROSSED.index("  assign")]
    assert kept in text
    assert "  always_comb begin\n    left[1] = choose[0];\n  end\n" in text
    assert change_once(text) == text


@pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed (Debian: apt-get install iverilog)"
)
@pytest.mark.parametrize(("rewrite", "ends"), [(False, False), (True, True)])
def test_icarus_comes_to_rest(rewrite: bool, ends: bool, tmp_path: Path) -> None:
    bench = """module bench;
  reg [1:0] choose = 2'h0;
  wire [1:0] seen;
  crossed crossed(.choose(choose), .rst(1'b0), .clk(1'b0), .seen(seen));
  initial begin
    #1 choose = 2'h3;
    #1 $display("%b", seen);
    $finish;
  end
endmodule
"""
    source = tmp_path / "bench.sv"
    source.write_text(bench + (change_once(CROSSED) if rewrite else CROSSED))
    program = tmp_path / "bench.vvp"
    subprocess.run(["iverilog", "-g2012", "-o", program, "-s", "bench", source], capture_output=True, check=True)
    command = ["vvp", "-n", str(program)]
    if ends:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == "11\n"
    else:
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(command, capture_output=True, check=False, timeout=5)
