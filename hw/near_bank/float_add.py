"""A multi-format floating-point adder (and comparator) in four combinational steps; the ALU puts registers between.

An operand stands left-aligned in a frame of `width` bits (32: FP32, or one FP16, BF16 or INT32; 16: FP16 or BF16), so
that one comparator, shifter and adder serve every format:

1. :class:`AlignOperands` compares, swaps the larger magnitude to `x` and shifts `y` right by 0 to 7 places;
2. :class:`AddAligned` shifts it by whole bytes and adds or subtracts;
3. :class:`Normalize` shifts the leading one to the top, but no further than the least exponent (subnormals);
4. :class:`Round` rounds to nearest, ties to even, and packs.

In the frame of steps 2 and 3 the top bit takes the carry, the hidden bit stands below it, and at least four bits below
the significand keep guard, round and sticky. Sources: IEEE 754-2019 sections 4.3.1 and 9.6.
"""

from amaranth import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

EXPONENT_BITS = 8


class Aligned(wiring.Signature):
    """Result of step 1. `y` still has to move right by `coarse` bytes, or out of the frame altogether (`far`);
    `sticky`: ones were already shifted out of it."""

    def __init__(self, width: int):
        super().__init__(
            {
                "x": Out(width),
                "y": Out(width),
                "coarse": Out(2 if width == 32 else 1),
                "far": Out(1),
                "sticky": Out(1),
                "subtract": Out(1),
                "sign": Out(1),
                "exponent": Out(EXPONENT_BITS),
            }
        )


class Total(wiring.Signature):
    """Result of step 2. `limit` has a one where the leading one may go at most; `exponent` is that of the top bit."""

    def __init__(self, width: int):
        super().__init__({"total": Out(width), "limit": Out(width), "sign": Out(1), "exponent": Out(EXPONENT_BITS)})


class Normalized(wiring.Signature):
    """Result of step 3: exponent of the top bit of `fraction` is `exponent` - `shift`, `exponent_next` one more."""

    def __init__(self, width: int):
        super().__init__(
            {
                "fraction": Out(width),
                "shift": Out(5),
                "sign": Out(1),
                "exponent": Out(EXPONENT_BITS),
                "exponent_next": Out(EXPONENT_BITS),
            }
        )


class AlignOperands(wiring.Component):
    """Step 1, and everything that needs no adder: comparison and special values.

    `a`, `b`: operands, left-aligned. `fp16`, `integer` choose the format (neither: an 8-bit exponent). `add`: addition,
    else minimum or (`maximum`) maximum. When `special` is set the result is `if_b` with `take_b`, else `if_a`, and the
    later steps do not matter. `take_b` comes late.
    """

    def __init__(self, width: int):
        self._width = width
        super().__init__(
            {
                "a": In(width),
                "b": In(width),
                "fp16": In(1),
                "integer": In(1),
                "add": In(1),
                "maximum": In(1),
                "aligned": Out(Aligned(width)),
                "if_a": Out(width),
                "if_b": Out(width),
                "take_b": Out(1),
                "special": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = self._width
        top = width - 1
        infinity = Signal(top)
        m.d.comb += infinity.eq(Mux(self.fp16, 0x1F << top - 5, 0xFF << top - 8))

        exponents, frames, nans, infinities = [], [], [], []
        for name, value in (("a", self.a), ("b", self.b)):
            field = Signal(EXPONENT_BITS, name=f"field_{name}")
            frame = Signal(width, name=f"frame_{name}")
            exponent = Signal(EXPONENT_BITS, name=f"exponent_{name}")
            m.d.comb += [
                field.eq(Mux(self.fp16, value[top - 5 : top], value[top - 8 : top])),
                exponent.eq(field | ~field.any()),
                frame.eq(
                    Cat(
                        Mux(self.fp16, Cat(C(0, 4), value[: top - 5]), Cat(C(0, 7), value[: top - 8])),
                        field.any(),
                    )
                ),
            ]
            exponents.append(exponent)
            frames.append(frame)
            nans.append(~self.integer & (value[:top] > infinity))
            infinities.append(~self.integer & (value[:top] == infinity))
        nan_a, nan_b = nans

        signs_differ = Signal()
        not_smaller = Signal()
        less = Signal()
        m.d.comb += [
            signs_differ.eq(self.a[top] ^ self.b[top]),
            not_smaller.eq(
                Cat(self.a[:top], self.integer & ~self.a[top]) >= Cat(self.b[:top], self.integer & ~self.b[top])
            ),
            less.eq(
                Mux(
                    self.integer,
                    ~not_smaller,
                    Mux(signs_differ, self.a[top], Mux(self.a[top], not_smaller, ~not_smaller)),
                )
            ),
        ]

        any_nan = Signal()
        invalid = Signal()
        quiet_nan = Signal(width)
        m.d.comb += [
            any_nan.eq(nan_a | nan_b),
            invalid.eq(Mux(self.add, any_nan | infinities[0] & infinities[1] & signs_differ, nan_a & nan_b)),
            self.take_b.eq(Mux(self.add, ~not_smaller, nan_a | ~nan_b & ~(less ^ self.maximum))),
            quiet_nan.eq(Mux(self.fp16, 0x3F << top - 6, 0x1FF << top - 9)),
            self.if_a.eq(Mux(invalid, quiet_nan, self.a)),
            self.if_b.eq(Mux(invalid, quiet_nan, self.b)),
            self.special.eq(~self.add | any_nan | infinities[0] | infinities[1]),
        ]

        # The low bits of a difference are there before it is known which operand is the smaller, so both are shifted.
        aligned = self.aligned
        coarse_bits = len(aligned.coarse)
        shifted, lost, distances = [], [], []
        for name, frame, distance in (
            ("b", frames[1], exponents[0] - exponents[1]),
            ("a", frames[0], exponents[1] - exponents[0]),
        ):
            places = Signal(EXPONENT_BITS, name=f"places_{name}")
            outside = Signal(7, name=f"outside_{name}")
            m.d.comb += [places.eq(distance), outside.eq((C(0x7F, 7) << places[:3]) >> 7)]
            shifted.append(frame >> places[:3])
            lost.append((frame[:7] & outside).any())
            distances.append(Cat(places[3 : 3 + coarse_bits], places[3 + coarse_bits :].any()))
        distance = Mux(not_smaller, *distances)
        m.d.comb += [
            aligned.x.eq(Mux(self.integer, self.a, Mux(not_smaller, frames[0], frames[1]))),
            aligned.y.eq(Mux(self.integer, self.b, Mux(not_smaller, *shifted))),
            Cat(aligned.coarse, aligned.far).eq(Mux(self.integer, 0, distance)),
            aligned.sticky.eq(~self.integer & Mux(not_smaller, *lost)),
            aligned.subtract.eq(~self.integer & signs_differ),
            aligned.exponent.eq(Mux(self.integer, 0, Mux(not_smaller, exponents[0], exponents[1]))),
            # x - x is +0 (IEEE 754 section 6.3).
            aligned.sign.eq(
                Mux(not_smaller, self.a[top], self.b[top]) & ~(signs_differ & (self.a[:top] == self.b[:top]))
            ),
        ]
        return m


class AddAligned(wiring.Component):
    """Step 2. An integer has exponent 0, which puts the limit at the top bit: it is not shifted by step 3."""

    def __init__(self, width: int):
        self._width = width
        super().__init__({"aligned": In(Aligned(width)), "result": Out(Total(width))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = self._width
        aligned, result = self.aligned, self.result
        addend = Signal(width)
        shifted = Signal(width)
        half = Signal(width)
        lost_half = Signal()
        lost = Signal()
        if width == 32:
            m.d.comb += [
                half.eq(Mux(aligned.coarse[1], aligned.y[16:], aligned.y)),
                lost_half.eq(aligned.coarse[1] & aligned.y[:16].any()),
            ]
        else:
            m.d.comb += half.eq(aligned.y)
        m.d.comb += [
            lost.eq(
                aligned.sticky | lost_half | (aligned.coarse[0] & half[:8].any()) | (aligned.far & aligned.y.any())
            ),
            shifted.eq(Mux(aligned.far, 0, Mux(aligned.coarse[0], half[8:], half)) | lost),
            addend.eq(shifted ^ aligned.subtract.replicate(width)),
            # One adder: the bit below the lowest carries the 1 of the two's complement in.
            result.total.eq((Cat(aligned.subtract, aligned.x) + Cat(aligned.subtract, addend))[1 : width + 1]),
            result.limit.eq(C(1 << width - 1, width) >> aligned.exponent),
            result.sign.eq(aligned.sign),
            result.exponent.eq(aligned.exponent + 1),
        ]
        return m


class Normalize(wiring.Component):
    """Step 3. The zero tests of the wide steps are made on the unshifted value, in parallel with the shifts."""

    def __init__(self, width: int):
        self._width = width
        super().__init__({"total": In(Total(width)), "result": Out(Normalized(width))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = self._width
        total, result = self.total, self.result
        seen = Signal(width)
        m.d.comb += seen.eq(total.total | total.limit)
        nibbles = Signal(width // 4)
        m.d.comb += nibbles.eq(Cat(seen[4 * n : 4 * n + 4].any() for n in range(width // 4)))
        shift = Signal(5)
        fraction: Value = total.total
        step = width // 2
        bit = 4 if width == 32 else 3
        remaining: Value = nibbles
        remaining_seen: Value = seen
        while step >= 4:
            count = step // 4
            kept = Signal(count, name=f"nibbles_{step}")
            moved = Signal(width, name=f"fraction_{step}")
            seen_moved = Signal(step, name=f"seen_{step}")
            upper, lower = remaining_seen[step:], remaining_seen[:step]
            m.d.comb += [
                shift[bit].eq(~remaining[count:].any()),
                kept.eq(Mux(shift[bit], remaining[:count], remaining[count:])),
                seen_moved.eq(Mux(shift[bit], lower, upper)),
                moved.eq(Mux(shift[bit], fraction << step, fraction)),
            ]
            remaining, remaining_seen, fraction = kept, seen_moved, moved
            step //= 2
            bit -= 1
        pair = Signal(2)
        m.d.comb += [
            shift[1].eq(~remaining_seen[2:].any()),
            pair.eq(Mux(shift[1], remaining_seen[:2], remaining_seen[2:])),
            shift[0].eq(~pair[1]),
            result.fraction.eq(fraction << shift[:2]),
            result.shift.eq(shift),
            result.sign.eq(total.sign),
            result.exponent.eq(total.exponent),
            result.exponent_next.eq(total.exponent + 1),
        ]
        return m


class Round(wiring.Component):
    """Step 4. `short`: the element has 16 bits (in the upper half of a 32-bit frame). A subnormal result is exact, so
    rounding never carries into the exponent field 0."""

    def __init__(self, width: int):
        self._width = width
        super().__init__(
            {
                "normalized": In(Normalized(width)),
                "fp16": In(1),
                "short": In(1),
                "integer": In(1),
                "result": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        top = self._width - 1
        normalized = self.normalized
        normal = normalized.fraction[top]
        fraction = normalized.fraction[:top]
        half_unit = Signal(top)
        below = Signal(top)
        half_unit_16, half_unit_8, half_unit_32 = 1 << top - 11, 1 << top - 8, 1 << 7
        for mask, less in ((half_unit, 0), (below, 1)):
            other: Value = C(half_unit_8 - less, top)
            if self._width == 32:
                other = Mux(self.short, other, half_unit_32 - less)
            m.d.comb += mask.eq(Mux(self.fp16, half_unit_16 - less, other))
        up = Signal()
        overflow = Signal()
        carry = Signal()
        rounded = Signal(top)
        exponent = Signal(EXPONENT_BITS)
        exponent_up = Signal(EXPONENT_BITS)
        field = Signal(EXPONENT_BITS)
        kept = Signal(top)
        packed = Signal(top)
        m.d.comb += [
            up.eq((fraction & half_unit).any() & (fraction & (below | half_unit << 1)).any()),
            carry.eq(up & (fraction | below | half_unit).all()),
            exponent.eq(Mux(normal, normalized.exponent - normalized.shift, 0)),
            exponent_up.eq(normalized.exponent_next - normalized.shift),
            overflow.eq(exponent[:5].all() & (self.fp16 | exponent[5:].all())),
            field.eq(Mux(carry & ~overflow, exponent_up, exponent)),
            rounded.eq(Mux(up, fraction + (half_unit << 1), fraction)),
            kept.eq(Mux(overflow | carry, 0, rounded & ~(below | half_unit))),
            packed.eq(Mux(self.fp16, Cat(kept[5:], field[:5]), Cat(kept[8:], field))),
            self.result.eq(Mux(self.integer, normalized.fraction, Cat(packed, normalized.sign))),
        ]
        return m
