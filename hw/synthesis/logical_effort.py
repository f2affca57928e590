"""A cell library in units of logical effort, written as Liberty text: what `t3rtl synth` maps to when none is given.

A gate's delay is p + g h, in units of tau, the delay of an inverter that drives an identical one without its own
parasitic: p is the gate's parasitic delay, g its logical effort, h the load it drives over the load it presents. An
inverter that drives four like it takes 1 + 4 = 5 tau, the fanout-of-4 delay in which paths are reported: it makes
figures comparable between processes. Loads are in units of the input of the smallest inverter. Slews play no part.

Values of g and p are those of static CMOS with a pull-up to pull-down width ratio of 2 (Sutherland, Sproull, Harris:
Logical Effort, tables 1.1 and 1.2; the complex gates by the same counting of transistor widths). Areas are transistors
over 4, i.e. gate equivalents (a two-input NAND has four transistors); a cell k times as strong is (k + 1) / 2 times as
large.
"""

from dataclasses import dataclass

FO4 = 5.0
"""Delay of an inverter that drives four like it, in tau."""

STRENGTHS = (1, 2, 4, 8, 16)

TAU_PS = 10.0
"""Picoseconds that stand for one tau in the Liberty text: abc rounds delays below one picosecond."""


@dataclass(frozen=True)
class Gate:
    """A combinational cell: `function` in Liberty syntax, `efforts` of its inputs, `parasitic` delay, `transistors`.

    `inner`, by input: extra delay of the paths that pass an inverter inside the cell.
    """

    function: str
    efforts: dict[str, float]
    parasitic: float
    transistors: int
    inner: float = 0.0


GATES = {
    "INV": Gate("!A", {"A": 1}, 1, 2),
    "BUF": Gate("A", {"A": 0.5}, 1, 4, inner=3.0),
    "NAND2": Gate("!(A&B)", {"A": 4 / 3, "B": 4 / 3}, 2, 4),
    "NAND3": Gate("!(A&B&C)", {"A": 5 / 3, "B": 5 / 3, "C": 5 / 3}, 3, 6),
    "NAND4": Gate("!(A&B&C&D)", {"A": 2, "B": 2, "C": 2, "D": 2}, 4, 8),
    "NOR2": Gate("!(A|B)", {"A": 5 / 3, "B": 5 / 3}, 2, 4),
    "NOR3": Gate("!(A|B|C)", {"A": 7 / 3, "B": 7 / 3, "C": 7 / 3}, 3, 6),
    "AOI21": Gate("!((A&B)|C)", {"A": 2, "B": 2, "C": 5 / 3}, 7 / 3, 6),
    "AOI22": Gate("!((A&B)|(C&D))", {"A": 2, "B": 2, "C": 2, "D": 2}, 4, 8),
    "OAI21": Gate("!((A|B)&C)", {"A": 2, "B": 2, "C": 4 / 3}, 8 / 3, 6),
    "OAI22": Gate("!((A|B)&(C|D))", {"A": 2, "B": 2, "C": 2, "D": 2}, 4, 8),
    "XOR2": Gate("A^B", {"A": 3, "B": 3}, 4, 10, inner=3.0),
    "XNOR2": Gate("!(A^B)", {"A": 3, "B": 3}, 4, 10, inner=3.0),
    "MUX2": Gate("(S&B)|(!S&A)", {"A": 2, "B": 2, "S": 3}, 5, 12, inner=2.0),
}
"""XOR and MUX hold an inverter for the complement of an input (smallest size, driving two units: 3 tau; MUX has an
output inverter as well). BUF is an inverter of half the size in front of one."""

FLIP_FLOP_DELAY = 6.0
"""Clock to output without load, in tau."""
FLIP_FLOP_SETUP = 4.0
FLIP_FLOP_TRANSISTORS = 26
"""Twenty-four, and two for an output inverter of double strength."""
FLIP_FLOP_STRENGTH = 2

_HEADER = """library (logical_effort) {
  delay_model : table_lookup;
  time_unit : "1ps";
  capacitive_load_unit (1, ff);
  voltage_unit : "1V";
  current_unit : "1mA";
  pulling_resistance_unit : "1kohm";
  leakage_power_unit : "1nW";
  nom_process : 1; nom_temperature : 25; nom_voltage : 1;
  default_max_transition : 1000;
  lu_table_template (delay) {
    variable_1 : input_net_transition;
    variable_2 : total_output_net_capacitance;
    index_1 ("0, 1000");
    index_2 ("0, 1000");
  }
"""


def _table(kind: str, at_zero: float, at_full: float) -> str:
    row = f'"{at_zero:.4f}, {at_full:.4f}"'
    return f"        {kind} (delay) {{ values ({row}, {row}); }}\n"


def _arc(related: str, sense: str, intrinsic: float, strength: int, extra: str = "") -> str:
    text = f'      timing () {{\n        related_pin : "{related}";\n        timing_sense : {sense};\n{extra}'
    for edge in ("rise", "fall"):
        text += _table(f"cell_{edge}", TAU_PS * intrinsic, TAU_PS * (intrinsic + 1000 / strength))
        text += _table(f"{edge}_transition", TAU_PS, TAU_PS)
    return text + "      }\n"


def _gate(name: str, gate: Gate, strength: int) -> str:
    sense = (
        "non_unate" if name in ("XOR2", "XNOR2", "MUX2") else "positive_unate" if name == "BUF" else "negative_unate"
    )
    area = gate.transistors / 4 * (strength + 1) / 2
    text = f"  cell ({name}_X{strength}) {{\n    area : {area:.3f};\n"
    for pin, effort in gate.efforts.items():
        text += f"    pin ({pin}) {{ direction : input; capacitance : {effort * strength:.4f}; }}\n"
    text += f'    pin (Y) {{\n      direction : output;\n      function : "{gate.function}";\n'
    for pin in gate.efforts:
        text += _arc(pin, sense, gate.parasitic + gate.inner, strength)
    return text + "    }\n  }\n"


def _flip_flop() -> str:
    area = FLIP_FLOP_TRANSISTORS / 4
    edge = "        timing_type : rising_edge;\n"
    setup = "".join(
        f'        {kind} (scalar) {{ values ("{TAU_PS * FLIP_FLOP_SETUP}"); }}\n'
        for kind in ("rise_constraint", "fall_constraint")
    )
    return (
        f"  cell (DFF_X{FLIP_FLOP_STRENGTH}) {{\n    area : {area:.3f};\n"
        '    ff (IQ, IQN) { clocked_on : "CLK"; next_state : "D"; }\n'
        "    pin (CLK) { direction : input; clock : true; capacitance : 1; }\n"
        "    pin (D) { direction : input; capacitance : 1;\n"
        '      timing () {\n        related_pin : "CLK";\n        timing_type : setup_rising;\n'
        f"{setup}      }}\n    }}\n"
        '    pin (Q) { direction : output; function : "IQ";\n'
        + _arc("CLK", "non_unate", FLIP_FLOP_DELAY, FLIP_FLOP_STRENGTH, edge)
        + "    }\n  }\n"
    )


def liberty_text() -> str:
    """The library as Liberty: ten picoseconds stand for one tau, one femtofarad for the smallest inverter's input."""
    cells = (_gate(name, gate, strength) for name, gate in GATES.items() for strength in STRENGTHS)
    return _HEADER + "".join(cells) + _flip_flop() + "}\n"
