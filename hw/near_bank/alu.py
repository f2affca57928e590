"""The near-bank op-and-store ALU: reduces one 256-bit sector with what memory holds (T3 section 4.3).

Four register stages: an operation accepted in cycle t has its result on `result` in cycle t + 4, one per cycle at most.
Eight 32-bit lanes; each has a wide adder (FP32, INT32, or the lower FP16/BF16) and a narrow one for the upper half.
"""

from amaranth import C, Cat, Module, Mux, Signal
from amaranth.hdl import Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..messages import AluOperation, DataType
from ..primitives.clock_enable import ClockEnable
from .float_add import AddAligned, Aligned, AlignOperands, Normalize, Normalized, Round, Total

LANES = 8
LATENCY = 4
"""Cycles from `valid` to `result_valid`."""

AluOperand = data.StructLayout(
    {
        "operation": AluOperation,
        "dtype": DataType,
        "first": unsigned(1),
        "mask": unsigned(32),
    }
)
"""What to do with a sector. `first`: act as a store and set elements outside the mask to the identity of the operation.
Bit i of `mask` covers byte i."""

Format = data.StructLayout({"fp16": unsigned(1), "short": unsigned(1), "integer": unsigned(1)})

Controls = data.StructLayout(
    {
        "format": Format,
        "long": unsigned(1),
        "add": unsigned(1),
        "maximum": unsigned(1),
        "take": unsigned(1),
        "fill": unsigned(1),
    }
)
"""An operand decoded. `long`: not `short`, a register of its own because both are read in many places; `take`: no
element of memory is used; `fill`: bytes outside the mask become the identity."""


class Choice(wiring.Signature):
    """Per 32-bit lane: a :class:`Bypass` that is still to be chosen, half by half, from two values."""

    def __init__(self) -> None:
        super().__init__(
            {
                "if_a": Out(32),
                "if_b": Out(32),
                "low_b": Out(1),
                "high_b": Out(1),
                "low": Out(1),
                "high": Out(1),
            }
        )


class Bypass(wiring.Signature):
    """Per 32-bit lane: the value used instead of an adder's, and which halves use it."""

    def __init__(self) -> None:
        super().__init__({"value": Out(32), "low": Out(1), "high": Out(1)})


def _register(m: Module, target: wiring.PureInterface, source: wiring.PureInterface) -> None:
    for name in target.signature.members:
        m.d.sync += getattr(target, name).eq(getattr(source, name))


class OperandStage(wiring.Component):
    """Holds the operands and decodes what to do with them, for everything behind reads that in many places; nothing
    wide, so that it rests while no operation arrives."""

    operand: In(AluOperand)
    old: In(256)
    arriving: In(256)
    held: Out(AluOperand)
    controls: Out(Controls)
    held_old: Out(256)
    held_arriving: Out(256)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        dtype, operation, first = self.operand.dtype, self.operand.operation, self.operand.first
        controls = self.controls
        m.d.sync += [
            self.held.eq(self.operand),
            self.held_old.eq(self.old),
            self.held_arriving.eq(self.arriving),
            controls.format.fp16.eq(dtype == DataType.FP16),
            controls.format.short.eq((dtype == DataType.FP16) | (dtype == DataType.BF16)),
            controls.format.integer.eq(dtype == DataType.INT32),
            controls.long.eq((dtype == DataType.FP32) | (dtype == DataType.INT32)),
            controls.add.eq(operation == AluOperation.ADD),
            controls.maximum.eq(operation == AluOperation.MAX),
            controls.take.eq(first | (operation == AluOperation.STORE)),
            controls.fill.eq(first & (operation != AluOperation.STORE)),
        ]
        return m


class AlignStage(wiring.Component):
    """Comparison, alignment, special values, and what needs no adder at all: stores, first touches, masked elements."""

    operand: In(AluOperand)
    controls: In(Controls)
    old: In(256)
    arriving: In(256)
    format: Out(Format)
    choice: Out(Choice()).array(LANES)
    wide: Out(Aligned(32)).array(LANES)
    narrow: Out(Aligned(16)).array(LANES)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        controls = self.controls
        short = controls.format.short
        m.d.sync += self.format.eq(controls.format)

        selected = Signal(256)
        rest = Signal(256)
        merged = Signal(256)
        m.d.comb += [
            selected.eq(Cat(self.operand.mask[byte].replicate(8) for byte in range(32))),
            rest.eq(Mux(controls.fill, self._identity(m), self.old)),
            merged.eq(self.arriving & selected | rest & ~selected),
        ]
        for lane in range(LANES):
            m.submodules[f"wide_{lane}"] = wide = AlignOperands(32)
            m.submodules[f"narrow_{lane}"] = narrow = AlignOperands(16)
            old, new = self.old.word_select(lane, 32), self.arriving.word_select(lane, 32)
            kept = merged.word_select(lane, 32)
            # The two registers share the load of the lanes.
            long = controls.long if lane % 2 else ~short
            for adder in (wide, narrow):
                m.d.comb += [
                    adder.fp16.eq(controls.format.fp16),
                    adder.add.eq(controls.add),
                    adder.maximum.eq(controls.maximum),
                ]
            m.d.comb += [
                wide.integer.eq(controls.format.integer),
                wide.a.eq(Mux(long, old, Cat(C(0, 16), old[:16]))),
                wide.b.eq(Mux(long, new, Cat(C(0, 16), new[:16]))),
                narrow.a.eq(old[16:]),
                narrow.b.eq(new[16:]),
            ]
            mask = self.operand.mask.word_select(lane, 4)
            untouched_low = Signal(name=f"untouched_low_{lane}")
            untouched_high = Signal(name=f"untouched_high_{lane}")
            m.d.comb += [
                untouched_low.eq(controls.take | ~(mask[:2].all() & (short | mask[2:].all()))),
                untouched_high.eq(controls.take | ~mask[2:].all()),
            ]
            choice = self.choice[lane]
            for value, of_wide, of_narrow in (
                (choice.if_a, wide.if_a, narrow.if_a),
                (choice.if_b, wide.if_b, narrow.if_b),
            ):
                whole = Mux(untouched_low, kept, of_wide)
                low, high = Mux(untouched_low, kept[:16], of_wide[16:]), Mux(untouched_high, kept[16:], of_narrow)
                m.d.sync += value.eq(Mux(short, Cat(low, high), whole))
            m.d.sync += [
                choice.low_b.eq(wide.take_b),
                choice.high_b.eq(Mux(short, narrow.take_b, wide.take_b)),
                choice.low.eq(untouched_low | wide.special),
                choice.high.eq(untouched_high | narrow.special),
            ]
            _register(m, self.wide[lane], wide.aligned)
            _register(m, self.narrow[lane], narrow.aligned)
        return m

    def _identity(self, m: Module) -> Value:
        """The sector of identity elements of the operation, so that a later update of them acts as a store."""
        identity = Signal(32)
        add, minimum = AluOperation.ADD, AluOperation.MIN
        operation = self.operand.operation
        with m.Switch(self.operand.dtype):
            with m.Case(DataType.FP16):
                m.d.comb += identity.eq(Mux(operation == add, 0x80008000, 0x7E007E00))
            with m.Case(DataType.BF16):
                m.d.comb += identity.eq(Mux(operation == add, 0x80008000, 0x7FC07FC0))
            with m.Case(DataType.FP32):
                m.d.comb += identity.eq(Mux(operation == add, 0x80000000, 0x7FC00000))
            with m.Case(DataType.INT32):
                m.d.comb += identity.eq(Mux(operation == add, 0, Mux(operation == minimum, 0x7FFFFFFF, 0x80000000)))
        return identity.replicate(LANES)


class AddStage(wiring.Component):
    """Shift by whole bytes, addition, and the choice between both operands where there is nothing to add."""

    format: In(Format)
    choice: In(Choice()).array(LANES)
    wide: In(Aligned(32)).array(LANES)
    narrow: In(Aligned(16)).array(LANES)
    next_format: Out(Format)
    next_bypass: Out(Bypass()).array(LANES)
    wide_total: Out(Total(32)).array(LANES)
    narrow_total: Out(Total(16)).array(LANES)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.next_format.eq(self.format)
        for lane in range(LANES):
            m.submodules[f"wide_{lane}"] = wide = AddAligned(32)
            m.submodules[f"narrow_{lane}"] = narrow = AddAligned(16)
            wiring.connect(m, wide.aligned, wiring.flipped(self.wide[lane]))
            wiring.connect(m, narrow.aligned, wiring.flipped(self.narrow[lane]))
            _register(m, self.wide_total[lane], wide.result)
            _register(m, self.narrow_total[lane], narrow.result)
            choice, bypass = self.choice[lane], self.next_bypass[lane]
            m.d.sync += [
                bypass.value[:16].eq(Mux(choice.low_b, choice.if_b[:16], choice.if_a[:16])),
                bypass.value[16:].eq(Mux(choice.high_b, choice.if_b[16:], choice.if_a[16:])),
                bypass.low.eq(choice.low),
                bypass.high.eq(choice.high),
            ]
        return m


class NormalizeStage(wiring.Component):
    """Leading-zero count and normalization."""

    format: In(Format)
    bypass: In(Bypass()).array(LANES)
    wide_total: In(Total(32)).array(LANES)
    narrow_total: In(Total(16)).array(LANES)
    next_format: Out(Format)
    next_bypass: Out(Bypass()).array(LANES)
    wide: Out(Normalized(32)).array(LANES)
    narrow: Out(Normalized(16)).array(LANES)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.next_format.eq(self.format)
        for lane in range(LANES):
            m.submodules[f"wide_{lane}"] = wide = Normalize(32)
            m.submodules[f"narrow_{lane}"] = narrow = Normalize(16)
            wiring.connect(m, wide.total, wiring.flipped(self.wide_total[lane]))
            wiring.connect(m, narrow.total, wiring.flipped(self.narrow_total[lane]))
            _register(m, self.wide[lane], wide.result)
            _register(m, self.narrow[lane], narrow.result)
            _register(m, self.next_bypass[lane], self.bypass[lane])
        return m


class RoundStage(wiring.Component):
    """Rounding and packing; combinational, its register is the array (or the operand register, when forwarded)."""

    format: In(Format)
    bypass: In(Bypass()).array(LANES)
    wide: In(Normalized(32)).array(LANES)
    narrow: In(Normalized(16)).array(LANES)
    result: Out(256)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for lane in range(LANES):
            m.submodules[f"wide_{lane}"] = wide = Round(32)
            m.submodules[f"narrow_{lane}"] = narrow = Round(16)
            for adder, source in ((wide, self.wide[lane]), (narrow, self.narrow[lane])):
                wiring.connect(m, adder.normalized, wiring.flipped(source))
                m.d.comb += [adder.fp16.eq(self.format.fp16), adder.short.eq(self.format.short)]
            m.d.comb += wide.integer.eq(self.format.integer)
            bypass = self.bypass[lane]
            low = Mux(bypass.low, bypass.value[:16], wide.result[16:])
            high = Mux(bypass.high, bypass.value[16:], narrow.result)
            whole = Mux(bypass.low, bypass.value, wide.result)
            m.d.comb += self.result.word_select(lane, 32).eq(Mux(self.format.short, Cat(low, high), whole))
        return m


class AluPort(wiring.Signature):
    """The ports of an :class:`Alu`, from the side of who uses it."""

    def __init__(self) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "operand": Out(AluOperand),
                "old": Out(256),
                "arriving": Out(256),
                "result_valid": In(1),
                "result": In(256),
            }
        )


class Alu(wiring.Component):
    """Pipelined op-and-store.

    Ports: with `valid`, `operand`, `old` (what memory holds) and `arriving` enter; four cycles later
    `result_valid` is set and `result` is the sector to write; it stays until the next result. Never stalls.
    An element only partly in the mask is written bytewise. A stage changes only when an operation passes.
    """

    valid: In(1)
    operand: In(AluOperand)
    old: In(256)
    arriving: In(256)
    result_valid: Out(1)
    result: Out(256)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        arrived = Signal(LATENCY)
        m.d.sync += arrived.eq(Cat(self.valid, arrived))
        m.d.comb += self.result_valid.eq(arrived[-1])

        hold, align, add, normalize = OperandStage(), AlignStage(), AddStage(), NormalizeStage()
        m.submodules.hold = ClockEnable(hold, self.valid)
        m.submodules.align = ClockEnable(align, arrived[0])
        m.submodules.add = ClockEnable(add, arrived[1])
        m.submodules.normalize = ClockEnable(normalize, arrived[2])
        m.submodules.round = rounding = RoundStage()
        m.d.comb += [
            hold.operand.eq(self.operand),
            hold.old.eq(self.old),
            hold.arriving.eq(self.arriving),
            align.operand.eq(hold.held),
            align.controls.eq(hold.controls),
            align.old.eq(hold.held_old),
            align.arriving.eq(hold.held_arriving),
            add.format.eq(align.format),
            normalize.format.eq(add.next_format),
            rounding.format.eq(normalize.next_format),
            self.result.eq(rounding.result),
        ]
        for lane in range(LANES):
            wiring.connect(m, align.choice[lane], add.choice[lane])
            wiring.connect(m, align.wide[lane], add.wide[lane])
            wiring.connect(m, align.narrow[lane], add.narrow[lane])
            wiring.connect(m, add.next_bypass[lane], normalize.bypass[lane])
            wiring.connect(m, add.wide_total[lane], normalize.wide_total[lane])
            wiring.connect(m, add.narrow_total[lane], normalize.narrow_total[lane])
            wiring.connect(m, normalize.next_bypass[lane], rounding.bypass[lane])
            wiring.connect(m, normalize.wide[lane], rounding.wide[lane])
            wiring.connect(m, normalize.narrow[lane], rounding.narrow[lane])
        return m
