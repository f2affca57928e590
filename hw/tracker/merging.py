"""Commits of many channels on their way to the Tracker's banks: what counts for one WF tile is added up.

The channels of a whole GPU commit more than the banks can count one by one, and the rows of one tile go around all
channels at once, so all of them want the same bank. Here that helps: what meets on the way becomes one message.
"""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value, ValueLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..message_parameters import MessageParameters
from ..messages import Messages
from .parameters import TrackerParameters

KEY = ("range", "wg", "wf", "epoch")
"""Fields of a commit that all commits of a message have in common."""


def may_merge(one: data.View, other: data.View) -> Value:
    """Whether two commits may become one: they count for the same WF tile, and both are below half of what `bytes` can
    hold."""
    same = Cat(one[name] == other[name] for name in KEY).all()
    return same & ~one.bytes[-1] & ~other.bytes[-1]


class _Places:
    """The commits that a queue holds, the first one offered on `messages`; one that comes is appended, or takes the
    place of the last one, with which it was merged."""

    def __init__(self, m: Module, depth: int, messages: stream.Interface):
        commit = messages.payload.shape()
        self._m, self._depth = m, depth
        self._entries = entries = [Signal(commit, name=f"entry_{number}") for number in range(depth)]
        self._level = level = Signal(range(depth + 1), name="level")
        self._pop = Signal(name="pop")
        self.tail = Signal(commit, name="tail")
        """The last one, if there is one; kept once more, because to select it would lengthen the longest path."""
        self.room = Signal(name="room")
        self.mergeable = Signal(name="mergeable")
        """The last one is not offered."""
        m.d.comb += [
            self.room.eq(level != depth),
            self.mergeable.eq(level > 1),
            messages.valid.eq(level != 0),
            messages.payload.eq(entries[0]),
            self._pop.eq(messages.valid & messages.ready),
        ]

    def keep(self, push: Value, merges: Value, value: ValueLike) -> None:
        """With `push`, keep `value`; `merges`: in the place of the last one."""
        m, level, pop = self._m, self._level, self._pop
        place = Signal(range(self._depth + 1), name="place")
        m.d.comb += place.eq(level - pop - merges)
        with m.If(push):
            m.d.sync += self.tail.eq(value)
        m.d.sync += level.eq(level + (push & ~merges) - pop)
        for number, entry in enumerate(self._entries):
            with m.If(push & (place == number)):
                m.d.sync += entry.eq(value)
            with m.Elif(pop & (number + 1 < self._depth)):
                m.d.sync += entry.eq(self._entries[min(number + 1, self._depth - 1)])


def _lower(m: Module, name: str, one: data.View, other: data.View) -> Signal:
    """Whether the va of `one` is the lower one. Each such comparison takes long, so none waits for another."""
    lower = Signal(name=name)
    m.d.comb += lower.eq(one.va < other.va)
    return lower


class MergeQueue(wiring.Component):
    """Queue of commits, of which each that comes is added to the last one if it may be and that is not offered.

    Ports: `commits`; `messages`, in the order of their first commits: bytes added, lowest va. Latency 1 cycle. Rate:
    one a cycle each way. `commits.ready` depends on registers and the commit's payload only.
    """

    def __init__(self, config: MessageParameters, depth: int):
        self._commit = commit = Messages(config).commit
        self._depth = depth
        super().__init__({"commits": In(stream.Signature(commit)), "messages": Out(stream.Signature(commit))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        places = _Places(m, self._depth, self.messages)
        new, tail = self.commits.payload, places.tail
        merges = Signal()
        value = Signal(self._commit)
        lower = _lower(m, "lower", new, tail)
        m.d.comb += [
            merges.eq(places.mergeable & may_merge(tail, new)),
            self.commits.ready.eq(places.room | merges),
            value.eq(new),
        ]
        with m.If(merges):
            m.d.comb += [value.bytes.eq(tail.bytes + new.bytes), value.va.eq(Mux(lower, new.va, tail.va))]
        places.keep(self.commits.valid & self.commits.ready, merges, value)
        return m


class Merger(wiring.Component):
    """Two streams of commits as one: both at once when they may be merged, else in turns, into a queue that merges.

    Ports: `inputs`, `messages`; as of :class:`MergeQueue`. Latency 1 cycle. Rate: one message a cycle.
    """

    def __init__(self, config: MessageParameters, depth: int):
        self._commit = commit = Messages(config).commit
        self._depth = depth
        commits = stream.Signature(commit)
        super().__init__({"inputs": In(commits).array(2), "messages": Out(commits)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        places = _Places(m, self._depth, self.messages)
        first, second = self.inputs
        one, other, tail = first.payload, second.payload, places.tail
        both = Signal()
        turn = Signal()
        """It is the second's."""
        before = Signal()
        one_merges = Signal()
        other_merges = Signal()
        all_merge = Signal()
        merges = Signal()
        m.d.comb += [
            both.eq(first.valid & second.valid & may_merge(one, other)),
            turn.eq(second.valid & (~first.valid | ~before)),
            one_merges.eq(places.mergeable & may_merge(tail, one)),
            other_merges.eq(places.mergeable & may_merge(tail, other)),
            # The sum of three is to fit as well.
            all_merge.eq(one_merges & other_merges & ~Cat(commit.bytes[-2] for commit in (one, other, tail)).any()),
            merges.eq(Mux(both, all_merge, Mux(turn, other_merges, one_merges))),
            first.ready.eq((places.room | merges) & (both | ~turn)),
            second.ready.eq((places.room | merges) & (both | turn)),
        ]
        one_lower = _lower(m, "one_lower", one, tail)
        other_lower = _lower(m, "other_lower", other, tail)
        other_lowest = _lower(m, "other_lowest", other, one)
        value = Signal(self._commit)
        with m.If(both):
            m.d.comb += [
                value.eq(one),
                value.bytes.eq(one.bytes + other.bytes),
                value.va.eq(Mux(other_lowest, other.va, one.va)),
            ]
            with m.If(all_merge):
                m.d.comb += value.bytes.eq(tail.bytes + one.bytes + other.bytes)
                with m.If(~Mux(other_lowest, other_lower, one_lower)):
                    m.d.comb += value.va.eq(tail.va)
        with m.Elif(turn):
            m.d.comb += value.eq(other)
            with m.If(other_merges):
                m.d.comb += [value.bytes.eq(tail.bytes + other.bytes), value.va.eq(Mux(other_lower, other.va, tail.va))]
        with m.Else():
            m.d.comb += value.eq(one)
            with m.If(one_merges):
                m.d.comb += [value.bytes.eq(tail.bytes + one.bytes), value.va.eq(Mux(one_lower, one.va, tail.va))]
        push = Signal()
        m.d.comb += push.eq((first.valid & first.ready) | (second.valid & second.ready))
        with m.If(push):
            m.d.sync += before.eq(turn)
        places.keep(push, merges, value)
        return m


class MergingCrossbar(wiring.Component):
    """As :class:`hw.tracker.crossbar.Crossbar`, with queues that merge: neighbouring inputs by fours, then one for each
    of them and each bank, then all of a bank.

    Ports: `inputs`, of which the last one is merged with no other before it comes to its bank's; `outputs`, per bank;
    `holding`: a commit was taken and has not left. Latency: a cycle for each time that two become one, and one.
    """

    def __init__(self, config: TrackerParameters, inputs: int):
        self._config = config
        self._inputs = inputs
        commits = stream.Signature(Messages(config).commit)
        super().__init__(
            {
                "inputs": In(commits).array(inputs),
                "outputs": Out(commits).array(config.tracker_banks),
                "holding": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        banks = self._config.tracker_banks
        bank_bits = (banks - 1).bit_length()
        held: list[Value] = []
        *channels, last = (flipped(port) for port in self.inputs)
        fours = self._reduced(m, "fours", self._reduced(m, "pairs", channels, held), held)
        for bank in range(banks):
            queues = []
            for number, port in enumerate((*fours, last)):
                queue = MergeQueue(self._config, self._config.commit_merge_depth)
                m.submodules[f"queue_{bank}_{number}"] = queue
                held.append(queue.messages.valid)
                queues.append(queue.messages)
                chosen = Signal(name=f"chosen_{bank}_{number}")
                m.d.comb += [
                    chosen.eq(port.payload.wg[:bank_bits] == bank if bank_bits else 1),
                    queue.commits.payload.eq(port.payload),
                    queue.commits.valid.eq(port.valid & chosen),
                ]
                with m.If(chosen):
                    m.d.comb += port.ready.eq(queue.commits.ready)
            step = 0
            while len(queues) > 1:
                queues = self._reduced(m, f"bank_{bank}_{step}", queues, held)
                step += 1
            connect(m, queues[0], flipped(self.outputs[bank]))
        m.d.comb += self.holding.eq(Cat(held).any())
        return m

    def _reduced(self, m: Module, name: str, streams: list, held: list[Value]) -> list:
        """Half as many streams, each merged of two; one that is left alone stays as it is."""
        results = []
        for number, pair in enumerate(zip(streams[::2], streams[1::2], strict=False)):
            merger = Merger(self._config, self._config.commit_merge_depth)
            m.submodules[f"{name}_{number}"] = merger
            for source, inner in zip(pair, merger.inputs, strict=True):
                connect(m, source, inner)
            held.append(merger.messages.valid)
            results.append(merger.messages)
        return results + streams[len(streams) // 2 * 2 :]
