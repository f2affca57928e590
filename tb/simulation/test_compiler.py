"""Programs become the register writes they should, and what the hardware does not have is refused in a sentence."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hw.config import preset
from hw.messages import Access
from hw.range_table import WORDS, Word
from hw.registers.map import SEND_BASE, WINDOW_BASE, find_register
from hw.send_table import SEND_WORDS, SendWord
from sim.collectives.all_to_all_dma import all_to_all_dma
from sim.collectives.compiler import NodeProgram, Placement, backing_sectors, compile_program, needs, workgroup_stride
from sim.collectives.direct_reduce_scatter import direct_reduce_scatter
from sim.collectives.hosted_gemm import hosted_gemm
from sim.collectives.program import Array, Kernel, Part, Program, ProgramError, Region, Send, Via
from sim.collectives.ring_all_gather import ring_all_gather
from sim.collectives.ring_reduce_scatter import ring_reduce_scatter
from sim.host.limits import DriverError
from sim.host.register_writes import Write
from sim.host.tiling import Tiling
from sim.topologies.known import topology
from sim.topologies.mesh import mesh
from sim.topologies.ring import ring

PAPER = preset("paper")
PEERS = find_register(preset("paper"), "link_peers_0").address
EXTENT = find_register(preset("paper"), "spill_sectors").address
CASES = json.loads((Path(__file__).parents[1] / "data" / "ring_register_writes.json").read_text())


def compiled(case: dict[str, Any]) -> list[NodeProgram]:
    """The ring reduce-scatter of a recorded case, compiled for every rank."""
    config = preset(case["preset"], tracker_banks=case["banks"], links=case["links"], ranges=64, trigger_blocks=1 << 16)
    gpus, direction = case["gpus"], case["direction"]
    program = ring_reduce_scatter(gpus, direction, case["dtype"], case["op"], case["first_touch"])
    return [
        compile_program(
            program,
            config,
            ring(gpus, case["links"], direction),
            rank,
            {"output": Placement(case["base"], Tiling(*case["tiling"]))},
            epoch=case["epoch"],
            block_wfs=case["block_wfs"],
            plain=[tuple(case["inputs"])] if case["inputs"] else [],
            backing=case["home"],
        )
        for rank in range(gpus)
    ]


def sends_by_peer(node: NodeProgram) -> set[tuple[int, int]]:
    """(peer, OFFSET_HIGH) of every send, of each peer one."""
    words = {divmod((at - SEND_BASE) // 4, 4): value for at, value in node.writes if at >= SEND_BASE}
    found = {words[number, SendWord.CONTROL] & 0x3F: words[number, SendWord.OFFSET_HIGH] for number, _ in words}
    return set(found.items())


def before_sends(node: NodeProgram) -> list[list[int]]:
    """The writes of `node` for a range table whose entries hold their send themselves, as when they were recorded:
    words 5 and 6 the distance, and in CONTROL access, traffic class and peer where first send and count are now; and
    for two registers with the port of each peer where now is whose packets the ports take; the backing store had no
    end."""
    writes, words, numbers = [], {}, []
    for address, value in node.writes:
        if address >= SEND_BASE:
            words[divmod((address - SEND_BASE) // 4, 4)] = value
            continue
        index, word = divmod((address - WINDOW_BASE) // 4, 32)
        if address == EXTENT:
            continue
        if address == PEERS:
            route = sum((send_high >> 28) << peer for peer, send_high in sends_by_peer(node))
            writes += [[0x24, route & 0xFFFFFFFF], [0x28, route >> 32]]
            continue
        if index < 0:
            writes.append([address, value])
            continue
        if word == Word.CONTROL and value:
            first, count = value >> 12 & 0x3F, value >> 18
            # What a range that is sent to nobody had there: no hardware looked at it.
            control, low, high = 1 << 6 | (1 if index < len(node.ranges) else 3) << 12, 0, 0
            if count:
                control, low, high = (words[first, number.value] for number in SendWord)
                high &= 0xFFFFF
                numbers.append(first)
                assert count == 1 and control >> 16 == 0
                sent = value >> 5 & 0xF, control >> 8 & 0xF
                assert sent[0] == sent[1], "reduced there with another operation"
            value = value & 0xFFF | (control >> 6 & 3) << 12 | (control >> 12 & 3) << 14 | (control & 0x3F) << 16
            at = len(writes) - len(Word) + Word.WORKGROUPS
            entry = WINDOW_BASE + 0x80 * index
            writes[at:at] = [[entry + 0x14, low], [entry + 0x18, high]]
        moved = word + 2 if word >= Word.WORKGROUPS else word
        writes.append([WINDOW_BASE + 0x80 * index + 4 * moved, value])
    assert numbers == list(range(len(words) // len(SendWord))), "every send is that of one range"
    return writes


def recorded_writes(nodes: list[NodeProgram]) -> tuple[int, str]:
    """How many writes there are, and their digest as in tb/data/ring_register_writes.json."""
    writes = [before_sends(node) for node in nodes]
    return sum(map(len, writes)), hashlib.sha256(json.dumps(writes).encode()).hexdigest()[:16]


@pytest.mark.parametrize("gpus", sorted({case["gpus"] for case in CASES}))
def test_ring_reduce_scatters_compile_to_the_recorded_writes(gpus: int) -> None:
    cases = [case for case in CASES if case["gpus"] == gpus]
    assert len(cases) >= 4
    for case in cases:
        nodes = compiled(case)
        assert recorded_writes(nodes) == (case["writes"], case["digest"])
        blocks, entries, fill, element, backing = case["plan"]
        last = nodes[-1]
        assert (last.expected_blocks, last.trigger_entries, last.backing_sectors) == (blocks, entries, backing)
        assert [list(region) for region in last.fill] == fill
        assert last.fill_element == element


@pytest.mark.parametrize("change", [{"epoch": 1}, {"direction": 0}, {"base": 32}, {"op": "other"}])
def test_other_writes_than_the_recorded_are_noticed(change: dict[str, Any]) -> None:
    case = dict(next(case for case in CASES if case["gpus"] == 3))
    for name in change:
        opposite = {"direction": -case["direction"], "op": "max" if case["op"] != "max" else "min"}
        case[name] = opposite.get(name, case[name] + 1 if name in ("epoch", "base") else None)
    assert recorded_writes(compiled(case)) != (case["writes"], case["digest"])


def fields(words: dict[Word, int], word: Word) -> dict[str, int]:
    """Fields of a word as numbers."""
    return {name: words[word] >> at.offset & ((1 << at.width) - 1) for name, at in WORDS[word]}


def send_of(writes: tuple[Write, ...], number: int) -> dict[str, int]:
    """The fields of send `number`, and its `offset`."""
    words = {SendWord((at - SEND_BASE) // 4 % 4): value for at, value in writes if (at - SEND_BASE) // 16 == number}
    control = words[SendWord.CONTROL]
    fields = {name: control >> at.offset & ((1 << at.width) - 1) for name, at in SEND_WORDS[SendWord.CONTROL]}
    high = words[SendWord.OFFSET_HIGH]
    return {**fields, "offset": words[SendWord.OFFSET_LOW] | (high & 0xFFFFF) << 32, "port": high >> 28}


def decode(writes: tuple[Write, ...]) -> tuple[dict[int, dict[Word, int]], dict[int, int]]:
    """Final range words by range, and the other registers by address."""
    table: dict[int, dict[Word, int]] = {}
    registers = {}
    for address, value in writes:
        if WINDOW_BASE <= address < SEND_BASE:
            index, word = divmod((address - WINDOW_BASE) // 4, 32)
            table.setdefault(index, {})[Word(word)] = value
        else:
            registers[address] = value
    return table, registers


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("banks", [1, 4])
def test_programmed_ranges_of_a_rank(banks: int, direction: int) -> None:
    """Rank 2 of 4: its own chunk stays, that of the rank before goes straight on, the others by DMA."""
    config = preset("paper", tracker_banks=banks)
    tiling = Tiling(300, 200, 128, 64, 8)
    inputs, backing = (1 << 20, 5000), 1 << 24
    program = ring_reduce_scatter(4, direction, "bf16", "max")
    placements = {"output": Placement(640, tiling)}
    node = compile_program(
        program,
        config,
        ring(4, 2, direction),
        2,
        placements,
        epoch=9,
        block_wfs=2,
        plain=[inputs],
        backing=backing,
    )
    table, registers = decode(node.writes)
    peer, straight = 2 + direction, 2 - direction
    for name, value in (
        ("rank", 2),
        ("link_peers_0", 0x8183),
        ("epoch", 9),
        ("spill_base_low", backing),
        ("spill_sectors", node.backing_sectors),
        ("expected_blocks", 2 * 4 * (4 + 4 + 2)),
    ):
        assert registers[find_register(config, name).address] == value, name
    used: list[tuple[int, int]] = []
    workgroups: list[int] = []
    for chunk in range(4):
        words = table[chunk]
        control = fields(words, Word.CONTROL)
        first = 640 + chunk * 300 * tiling.pitch_sectors
        assert (words[Word.BASE_LOW], words[Word.LIMIT_LOW]) == (first, first + 300 * tiling.pitch_sectors)
        assert control["mapping"] == {straight: 1, 2: 0}.get(chunk, 2)
        assert control["valid"] == 1 and control["alu"] == 2 and control["dtype"] == 1 and control["access"] == 2
        assert control["tracked"] == control["first_touch"] == int(chunk != straight)
        assert control["sends"] == int(chunk != 2)
        if chunk != 2:
            sent = send_of(node.writes, control["first_send"])
            assert sent["peer"] == peer and sent["access"] == Access.UPDATE.value and sent["traffic_class"] == 1
            assert sent["alu"] == 2 and sent["dtype"] == 1 and sent["offset"] == sent["wg_offset"] == 0
        if chunk != straight:
            assert words[Word.THRESHOLD_BODY] == 16 * 128 * 2
            shift = fields(words, Word.GROUPING)["block_shift"]
            base = fields(words, Word.BLOCKS)["base"]
            for workgroup in range(12):
                entry = base // banks + (workgroup // banks << shift)
                used += [(workgroup % banks, entry + block) for block in range(4)]
        numbers = fields(words, Word.WORKGROUPS)
        assert numbers["count"] == 12 and numbers["base"] == chunk * 12
        workgroups += range(numbers["base"], numbers["base"] + 12)
    assert len(set(used)) == len(used) and len(set(workgroups)) == 48
    assert max(entry for _, entry in used) < node.trigger_entries // banks
    for index, (start, length) in ((4, inputs), (5, (backing, backing_sectors(program, config, placements)))):
        assert table[index][Word.BASE_LOW] == start and table[index][Word.LIMIT_LOW] == start + length
        assert fields(table[index], Word.CONTROL)["tracked"] == 0
    assert node.fill == ()
    assert node.backing_sectors * 32 >= 48 * 8 * 16
    assert node.expected_triggers == 3 * tiling.wf_tiles
    needed = needs(program, config, placements, 2)
    assert (needed.ranges, needed.trigger_entries, needed.backing_sectors) == (
        4,
        node.trigger_entries,
        node.backing_sectors,
    )


def test_workgroups_of_chunks_start_at_whole_banks() -> None:
    config = preset("paper", tracker_banks=4)
    assert workgroup_stride(config, Tiling(100, 100, 64, 32, 4)) == 8
    assert workgroup_stride(config, Tiling(40, 100, 64, 32, 4)) == 4
    assert workgroup_stride(config, Tiling(40, 200, 64, 32, 4)) == 8


def test_zeroing_says_what_to_fill() -> None:
    placements = {"output": Placement(1000, Tiling(128, 128))}
    node = compile_program(ring_reduce_scatter(4, 1, "fp16", "min", False), PAPER, ring(4), 1, placements)
    table, _ = decode(node.writes)
    size = 128 * 8
    assert sorted(node.fill) == [(1000 + chunk * size, size) for chunk in (1, 2, 3)]
    assert node.fill_element == 0x7E00
    assert all(fields(table[chunk], Word.CONTROL)["first_touch"] == 0 for chunk in range(4))
    added = compile_program(ring_reduce_scatter(4, first_touch=False), PAPER, ring(4), 1, placements)
    assert added.fill_element == 0


def test_an_all_gather_compiles_to_stores() -> None:
    tiling = Tiling(128, 128)
    node = compile_program(ring_all_gather(4), PAPER, ring(4), 2, {"gathered": Placement(0, tiling)})
    table, _ = decode(node.writes)
    controls = [fields(table[chunk], Word.CONTROL) for chunk in range(4)]
    assert [control["mapping"] for control in controls] == [2, 2, 2, 0]
    sends = [send_of(node.writes, control["first_send"]) for control in controls if control["sends"]]
    assert len(sends) == 3
    assert all(item["access"] == Access.STORE.value for item in [*controls, *sends])
    assert all(send["traffic_class"] == 2 for send in sends) and all(control["tracked"] for control in controls)
    assert [table[chunk][Word.THRESHOLD_BODY] for chunk in range(4)] == [16 * 256] * 4
    assert node.expected_blocks == 3 * tiling.blocks(1) and node.expected_triggers == 4 * tiling.wf_tiles


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 4}, "rank must be from 0 to 3, got 4"),
        ({"epoch": 0}, "epoch must be from 1 to 255"),
        ({"epoch": 256}, "epoch must be from 1 to 255"),
        ({"gpus": 16, "backing": 1 << 30}, "ranges must be at least 17 for 16 chunks and 1 plain ranges"),
        ({"plain": [(0, 10)]}, "the regions at sectors 0 .of 10. and 8 overlap"),
        ({"backing": 20}, "overlap"),
        ({"tiling": Tiling(4096, 4096)}, "trigger_blocks must be at least"),
        ({"tiling": Tiling(1024, 512, 512, 128, 1)}, "counts 262144 bytes for a WF tile, a node counts to 131071"),
        (
            {"config": replace(PAPER, wg_bits=9), "tiling": Tiling(128 * 150, 128)},
            "needs 600 wg numbers, a node has 512",
        ),
    ],
)
def test_what_the_hardware_cannot_hold_is_refused(arguments: dict[str, Any], message: str) -> None:
    options = {"config": PAPER, "gpus": 4, "rank": 0, "tiling": Tiling(128, 128), **arguments}
    config, gpus, rank, tiling = (options.pop(name) for name in ("config", "gpus", "rank", "tiling"))
    with pytest.raises((DriverError, ProgramError), match=message):
        compile_program(
            ring_reduce_scatter(gpus), config, ring(gpus), rank, {"output": Placement(8, tiling)}, **options
        )


def test_a_link_that_is_not_there_is_refused() -> None:
    config, placements = replace(PAPER, links=1), {"output": Placement(0, Tiling(128, 128))}
    with pytest.raises(ProgramError, match="sends from rank 0 to rank 2, but the ring-one-way has no link there"):
        compile_program(ring_reduce_scatter(3, -1), config, ring(3, 1, -1), 0, placements)
    compile_program(ring_reduce_scatter(2, -1), config, ring(2, 1, -1), 0, placements)


def test_more_ports_than_a_node_has_are_refused() -> None:
    placements = {"output": Placement(0, Tiling(128, 128))}
    with pytest.raises(
        (DriverError, ProgramError), match="direct-reduce-scatter on 4 GPUs needs 3 link ports, a node has 2"
    ):
        compile_program(direct_reduce_scatter(4), PAPER, mesh(4), 0, placements)
    node = compile_program(direct_reduce_scatter(3), PAPER, mesh(3), 1, placements)
    ports = {send["peer"]: send["port"] for send in (send_of(node.writes, number) for number in range(2))}
    assert ports == {0: 1, 2: 0}


def pair(regions: Callable[[int], list[Region]]) -> Program:
    """A program of two ranks whose kernels store a[0] on rank 0, nothing on rank 1."""
    return Program(
        name="pair",
        gpus=2,
        arrays=(Array("a", 2), Array("b", 2)),
        regions=regions,
        kernels=lambda rank: (Kernel("gemm", () if rank else (Part("a", 0),)),),
        result=lambda rank: (),
        golden=lambda inputs: inputs,
        lies=lambda rank: (Part("a", 1),),
    )


@pytest.mark.parametrize("via", Via)
def test_a_send_to_another_chunk_moves_address_and_tile_number(via: Via) -> None:
    def regions(rank: int) -> list[Region]:
        if rank:
            return [Region("b", 1, updates=1)]
        return [Region("a", 0, updates=int(via is Via.DMA), sends=(Send(1, "b", 1),), via=via)]

    tiling = Tiling(200, 200)
    placements = {"a": Placement(6000, tiling), "b": Placement(100, tiling)}
    config = preset("paper", tracker_banks=8)
    nodes = [compile_program(pair(regions), config, ring(2), rank, placements) for rank in range(2)]
    tables = [decode(node.writes)[0][0] for node in nodes]
    here, there = (fields(words, Word.WORKGROUPS)["base"] for words in tables)
    sent = send_of(nodes[0].writes, 0)
    assert (here, there) == (0, 24) and sent["wg_offset"] == 24
    assert tables[0][Word.BASE_LOW] + sent["offset"] - (1 << config.va_sector_bits) == tables[1][Word.BASE_LOW]


def rings(node: NodeProgram) -> list[tuple[Part, range]]:
    """What each ring of a node's doorbells is for: a part, and which of its workgroups."""
    workgroups, doorbell = (find_register(PAPER, name) for name in ("doorbell_workgroups", "doorbell"))
    first, count = (workgroups.field(name) for name in ("first", "count"))
    answer = []
    for writes in node.doorbells:
        assert [address for address, _ in writes] == [workgroups.address, doorbell.address]
        index, ring_bit = writes[1][1] & 0x3F, writes[1][1] >> 31
        assert ring_bit == 1
        item = node.ranges[index]
        begin, size = ((writes[0][1] & field.mask) >> field.low for field in (first, count))
        answer.append((item.region.part, range(begin - item.wg_base, begin - item.wg_base + size)))
    return answer


def test_doorbells_are_rung_for_what_lies_in_memory() -> None:
    tiling = Tiling(300, 200, 128, 64, 8)
    placements = {name: Placement(base, tiling) for name, base in (("output", 0), ("received", 1 << 20))}
    node = compile_program(all_to_all_dma(3), PAPER, mesh(3), 1, placements)
    table, _ = decode(node.writes)
    rung: dict[Part, list[int]] = {}
    for turn, (part, tiles) in enumerate(rings(node)):
        assert part == (Part("output", 2), Part("output", 0))[turn % 2], "two peers, in turns"
        rung.setdefault(part, []).extend(tiles)
    for item in node.ranges:
        if item.region.doorbell:
            assert rung.pop(item.region.part) == list(range(tiling.workgroups))
    assert not rung
    for item in node.ranges:
        control = fields(table[item.index], Word.CONTROL)
        assert control["first_touch"] == int(bool(item.region.updates) and not item.region.doorbell)
    assert not compile_program(ring_reduce_scatter(3), PAPER, ring(3), 0, {"output": placements["output"]}).doorbells


def test_a_host_rings_for_whole_rows_of_two_arrays_in_turns() -> None:
    """Peer by peer, a few workgroups at a time; of each peer a row of B, then one of A."""
    tiling = Tiling(40, 1024, 8, 64, 8)
    placements = {name: Placement(number << 20, tiling) for number, name in enumerate("abc")}
    node = compile_program(hosted_gemm(3, spread=True), PAPER, topology("hosted-mesh", 3), 2, placements)
    found = rings(node)
    assert [part.chunk for part, _ in found] == [0, 1] * (len(found) // 2), "two peers, in turns"
    for peer in range(2):
        tiles = [(part.array, tile) for part, tiles in found if part.chunk == peer for tile in tiles]
        rows = [(name, range(row * 16, row * 16 + 16)) for row in range(5) for name in "ba"]
        assert tiles == [(name, tile) for name, row in rows for tile in row]


def test_sends_that_the_hardware_has_not_are_refused() -> None:
    def elsewhere(rank: int) -> list[Region]:
        if rank:
            return [Region("b", 1, updates=1)]
        return [Region("a", 0, sends=(Send(1, "b", 1),), via=Via.STORE)]

    def often(rank: int) -> list[Region]:
        if rank:
            return [Region("a", 0, updates=17)]
        return [Region("a", 0, updates=1, sends=(Send(1, "a", 0),) * 17)]

    placements = {"a": Placement(0, Tiling(128, 128)), "b": Placement(1 << 20, Tiling(128, 64))}
    for regions, message in (
        (elsewhere, r"a\[0\] is sent to b\[1\], whose tiles are others"),
        (often, "pair on 2 GPUs needs 17 sends, a node has 16"),
    ):
        with pytest.raises((DriverError, ProgramError), match=message):
            compile_program(pair(regions), PAPER, ring(2), 0, placements)
