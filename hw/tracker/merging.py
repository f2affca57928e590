"""Commits of many channels on their way to the Tracker's banks: what counts for one WF tile is added up.

The channels of a whole GPU commit more than the banks can count one by one, and the rows of one tile go around all
channels at once, so all of them want the same bank. Here that helps: what meets on the way becomes one message.
"""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..messages import MessageParameters, Messages
from .parameters import TrackerParameters

KEY = ("range", "wg", "wf", "epoch")
"""Fields of a commit that all commits of a message have in common."""


def may_merge(one: data.View, other: data.View) -> Value:
    """Whether two commits may become one: they count for the same WF tile, and both are below half of what `bytes` can
    hold."""
    same = Cat(one[name] == other[name] for name in KEY).all()
    return same & ~one.bytes[-1] & ~other.bytes[-1]


def merged(m: Module, name: str, one: data.View, other: data.View) -> data.View:
    """The one commit that two become: bytes added, lowest va."""
    result = Signal(one.shape(), name=name)
    m.d.comb += [
        result.eq(one),
        result.bytes.eq(one.bytes + other.bytes),
        result.va.eq(Mux(other.va < one.va, other.va, one.va)),
    ]
    return result


class MergeQueue(wiring.Component):
    """Queue of commits, of which each that comes is added to the last one if it may be and that is not offered.

    Ports: `commits`; `messages`, in the order of their first commits. Latency 1 cycle. Rate: one a cycle each way.
    `commits.ready` depends on registers and the commit's payload only.
    """

    def __init__(self, config: MessageParameters, depth: int):
        self._commit = commit = Messages(config).commit
        self._depth = depth
        super().__init__({"commits": In(stream.Signature(commit)), "messages": Out(stream.Signature(commit))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        entries = [Signal(self._commit, name=f"entry_{number}") for number in range(self._depth)]
        level = Signal(range(self._depth + 1))
        new, tail = self.commits.payload, Signal(self._commit)
        merges = Signal()
        push = Signal()
        pop = Signal()
        place = Signal(range(self._depth + 1))
        sums = merged(m, "sums", tail, new)
        m.d.comb += [
            tail.eq(Array(entries)[(level - 1)[: (self._depth - 1).bit_length()]]),
            merges.eq((level > 1) & may_merge(tail, new)),
            self.commits.ready.eq((level != self._depth) | merges),
            self.messages.valid.eq(level != 0),
            self.messages.payload.eq(entries[0]),
            push.eq(self.commits.valid & self.commits.ready),
            pop.eq(self.messages.valid & self.messages.ready),
            place.eq(level - pop - merges),
        ]
        m.d.sync += level.eq(level + (push & ~merges) - pop)
        for number, entry in enumerate(entries):
            with m.If(push & (place == number)):
                m.d.sync += entry.eq(Mux(merges, sums, new))
            with m.Elif(pop & (number + 1 < self._depth)):
                m.d.sync += entry.eq(entries[min(number + 1, self._depth - 1)])
        return m


class Merger(wiring.Component):
    """Two streams of commits as one: both at once when they may be merged, else in turns, into a :class:`MergeQueue`.

    Ports: `inputs`, `messages`. Latency 1 cycle. Rate: one message a cycle.
    """

    def __init__(self, config: MessageParameters, depth: int):
        self._config = config
        self._depth = depth
        commits = stream.Signature(Messages(config).commit)
        super().__init__({"inputs": In(commits).array(2), "messages": Out(commits)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = MergeQueue(self._config, self._depth)
        one, other = self.inputs
        sums = merged(m, "sums", one.payload, other.payload)
        both = Signal()
        second = Signal()
        """The turn is the second's."""
        before = Signal()
        m.d.comb += [
            both.eq(one.valid & other.valid & may_merge(one.payload, other.payload)),
            second.eq(other.valid & (~one.valid | ~before)),
            queue.commits.valid.eq(one.valid | other.valid),
            one.ready.eq(queue.commits.ready & (both | ~second)),
            other.ready.eq(queue.commits.ready & (both | second)),
        ]
        with m.If(both):
            m.d.comb += queue.commits.payload.eq(sums)
        with m.Elif(second):
            m.d.comb += queue.commits.payload.eq(other.payload)
        with m.Else():
            m.d.comb += queue.commits.payload.eq(one.payload)
        with m.If(queue.commits.valid & queue.commits.ready):
            m.d.sync += before.eq(second)
        connect(m, queue.messages, flipped(self.messages))
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
