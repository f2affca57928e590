"""Sequences of collectives in one simulation: what a text says, what is drawn, what is kept; on the RTL every sequence
is right, and software that is wrong is noticed."""

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from hw.config import PRESETS, Configuration
from sim.errors import UsageError
from sim.sequences import server
from sim.sequences.campaign import (
    Finished,
    Options,
    Store,
    command,
    cycles_alone,
    merged,
    run_all,
    summarize,
    up_to_the_failure,
)
from sim.sequences.collectives import TOPOLOGIES, Collectives, collectives_of, served, settings_of
from sim.sequences.sequence import (
    CollectiveSequence,
    Item,
    at_every_cycle,
    drawn,
    every_pair,
    pairs,
    parse,
)
from sim.sequences.server import OK, UNREWRITTEN, UNSHUT, UNTOLD, Found, build, prepared, run_sequences

TEXT = "17%60/ring-all-reduce:1@2.431@0.440/~all-to-all:0"
ONE_ENTRY = tuple(
    (item.name, getattr(PRESETS["tiny"], item.name))
    for item in fields(Configuration)
    if item.name != "name" and getattr(PRESETS["tiny"], item.name) != getattr(PRESETS["paper"], item.name)
)
"""Every buffer at one entry."""
RIGHT = Found(OK, 0, 0, 0, 120, 5000, "ac", (500, 900))


@cache
def known(topology: str = "mesh", gpus: int = 3) -> Collectives:
    return collectives_of(topology, gpus)


def test_a_sequence_is_its_text():
    made = parse(TEXT, known())
    assert str(made) == TEXT
    assert (made.seed, made.stall, made.items[0].aborts) == (17, 60, ((2, 431), (0, 440)))
    assert made.items[1] == Item("all-to-all:0", alone=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("17", "--replay takes SEED/"),
        ("17/all-to-all", "--replay takes SEED/"),
        ("x/all-to-all:0", "--replay takes SEED/"),
        ("17/all-to-none:0", "there is no collective 'all-to-none:0' here"),
        ("17/all-to-all:9", "there is no collective 'all-to-all:9' here"),
        ("17/all-to-all:0@3.5", "there is no such GPU of 3"),
    ],
)
def test_what_is_no_sequence_is_refused(text, said):
    with pytest.raises(UsageError, match=said):
        parse(text, known())


def test_every_pair_comes_once():
    row = every_pair([str(number) for number in range(14)])
    assert sorted(itertools.pairwise(row)) == sorted(itertools.product(map(str, range(14)), repeat=2))
    names = [item.name for item in pairs(known(), 1).items]
    assert set(itertools.pairwise(names)) == set(itertools.product(known().names, repeat=2))


@pytest.mark.parametrize("topology", ["mesh", "switch"])
def test_a_seed_draws_the_same_again(topology):
    of = known(topology)
    cycles = {item.text: 1000 for item in of.ready}
    made = [drawn(of, cycles, seed) for seed in range(300)]
    assert made == [drawn(of, cycles, seed) for seed in range(300)]
    items = [item for sequence in made for item in sequence.items]
    assert {len(item.aborts) for item in items} == {0, 1, 2} and {item.name for item in items} == set(of.names)
    assert not any(sequence.items[-1].aborts for sequence in made)
    assert any(item.alone for item in items) == (topology != "switch")
    for sequence in made:
        assert parse(str(sequence), of) == sequence


def test_a_sequence_is_as_long_as_asked():
    of = known()
    cycles = {item.text: 1000 for item in of.ready}
    made = drawn(of, cycles, 1, 1000)
    assert len(made.items) == 1000 and parse(str(made), of) == made
    assert {item.name for item in made.items} == set(of.names) and any(item.aborts for item in made.items)


def test_every_cycle_is_aborted_by_every_gpu():
    made = list(at_every_cycle(known(), {"all-to-all:0": 9}, "all-to-all", 1))
    assert [sequence.items[0].aborts for sequence in made] == [
        ((gpu, cycle),) for cycle in range(10) for gpu in range(3)
    ]
    assert all(sequence.items[1] == Item("all-to-all:0") for sequence in made)


@pytest.mark.parametrize("topology", ["ring", "mesh", "switch"])
def test_all_collectives_of_a_size_have_one_build(topology):
    builds = {(gpus, known(topology, gpus).build.config) for gpus in (2, 4)}
    assert len({config for _, config in builds}) == 1
    for gpus in (2, 4):
        of = known(topology, gpus)
        assert len({item.job.build.config for item in of.ready}) == 1 and of.names == served(topology, gpus)
        assert not any(item.job.log for item in of.ready), "the order of a sum must not matter"
    assert dict(settings_of(topology, 4))["protection"] == "all"


@pytest.mark.parametrize("gpus", [2, 9, pytest.param(16, marks=pytest.mark.wide)])
def test_a_switch_is_no_larger_than_its_gpus_need(gpus, monkeypatch):
    asked = []
    monkeypatch.setattr(server, "build_system", lambda *_, **options: asked.append(options["switch_gpus"]))
    for topology in ("switch", "mesh"):
        build(known(topology, gpus))
    assert asked == [gpus, 0]


def test_what_is_finished_is_kept(tmp_path):
    options = Options("mesh", 3)
    store = Store(tmp_path, options)
    assert store.load() == {}
    store.add(Finished(TEXT, RIGHT))
    (file,) = tmp_path.iterdir()
    with file.open("a") as end:
        end.write('\n{"text": "cut o')
    store.add(Finished("1/all-to-all:0", RIGHT))
    assert Store(tmp_path, options).load() == {
        TEXT: Finished(TEXT, RIGHT),
        "1/all-to-all:0": Finished("1/all-to-all:0", RIGHT),
    }
    assert Store(tmp_path, Options("mesh", 2)).load() == {}


def test_what_was_found_is_read_as_it_is_printed():
    assert Found.of_line("ok 0 0 0 120 5000 ac 500,900") == RIGHT
    assert Found.of_line("died 0 0 9 0 0 - -").lasted == ()
    assert Found.of_json(json.loads(json.dumps(RIGHT.to_json()))) == RIGHT


def test_a_summary_counts_and_says_how_to_repeat_what_failed(tmp_path):
    options = Options("mesh", 3, (("tracker_ways", 2),))
    wrong = Finished("5/all-to-all:0/broadcast-tree:2", Found("hang", 1, 2, 0, 0, 20000, "c-", (700, 0)))
    made = {"kind": "random", **summarize(options, [Finished(TEXT, RIGHT), wrong])}
    assert (made["collectives"], made["completed"], made["aborted"], made["failed"], made["hung"]) == (3, 2, 1, 1, 1)
    assert made["wrong"] == 0 and made["longest_abort_cycles"] == 120 and made["longest_collective_cycles"] == 900
    assert made["pairs"] == {"ring-all-reduce > all-to-all": 1}
    again = "t3rtl sequences --topology mesh --gpus 3 --set tracker_ways=2 --replay 5/all-to-all:0/broadcast-tree:2"
    assert made["failures"][0]["command"] == again == command(options, wrong.text)
    early = Finished("5/a:0/~b:0/c:0/d:0", Found("hang", 0, 2, 0, 0, 20000, "----", (0, 0, 0, 0)))
    assert up_to_the_failure(early) == "5/a:0/~b:0"
    summary = tmp_path / "summary.json"
    first = merged(summary, made)
    summary.write_text(json.dumps(first))
    assert merged(summary, made) == first
    both = merged(summary, {**made, "gpus": 4})
    assert both["sequences"] == 4 and [run["gpus"] for run in both["runs"]] == [3, 4]


def served_by(of: Collectives, sequences: list[CollectiveSequence], seeded: str = "") -> Iterator[Found]:
    """What comes of sequences that nobody keeps."""
    model = build(of)
    with prepared(of, model, seeded) as shared:
        yield from (found for _, found in run_sequences(of, model, shared, sequences))


def test_collectives_that_follow_one_another_are_right_and_aborts_are_bounded(tmp_path: Path):
    """Random sequences, some aborted, some twice; and one again by its text."""
    of = known()
    model = build(of)
    with prepared(of, model) as shared:
        cycles = cycles_alone(of, model, shared)
        listed = [drawn(of, cycles, seed) for seed in range(40)]
        finished = list(run_all(of, (model, shared), listed, Store(tmp_path, Options("mesh", 3)), 1))
        ((_, again),) = run_sequences(of, model, shared, [parse(finished[0].text, of)])
        assert not list(run_all(of, (model, shared), [], Store(tmp_path, Options("mesh", 3)), 1))
    wrong = [item for item in finished if item.failed]
    assert not wrong, wrong[0]
    assert again == finished[0].found
    ends = "".join(item.found.ends for item in finished)
    assert set(ends) == {"a", "c"} and all(item.found.ends.endswith("c") for item in finished)
    assert 0 < max(item.found.drained for item in finished) < 1000


def test_tables_that_are_not_rewritten_are_noticed():
    names = ("all-to-all:0", "ring-all-reduce:0", "direct-all-gather:1", "broadcast-tree:0")
    listed = [CollectiveSequence(1, (Item(one), Item(other))) for one, other in itertools.permutations(names, 2)]
    verdicts = [found.verdict for found in served_by(known(), listed, UNREWRITTEN)]
    assert OK not in verdicts and {"wrong", "hang"} & set(verdicts), verdicts


def test_an_abort_that_tells_nobody_is_noticed():
    listed = [parse(f"1/ring-all-reduce:0@{gpu}.{200 + 50 * gpu}/all-to-all:0", known()) for gpu in range(3)]
    assert {found.verdict for found in served_by(known(), listed, UNTOLD)} == {"hang_after_abort"}


def test_a_gate_that_the_collective_before_has_opened_is_noticed():
    """A GEMM in slices, and one that waits for whole tile rows."""
    listed = [parse(f"1/{name}/{name}", known()) for name in ("direct-all-gather-gemm:0", "ring-all-gather-gemm:0")]
    assert [found.verdict for found in served_by(known(), listed)] == [OK, OK]
    assert {found.verdict for found in served_by(known(), listed, UNSHUT)} == {"wrong_reads"}


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["ring", "mesh", "switch"])
@pytest.mark.parametrize("gpus", [2, 3, 4, 8, 16])
def test_every_collective_follows_every_collective(topology: str, gpus: int):
    of = known(topology, gpus)
    (found,) = served_by(of, [pairs(of, 1)])
    assert found.verdict == OK, found


@pytest.mark.slow
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_thousand_collectives_pass_through_buffers_of_one_entry(topology: str):
    """In random order, each before any comes again, with random pauses of hosts and links, and none aborted."""
    of = collectives_of(topology, 4, ONE_ENTRY)
    choice = random.Random(1)
    rounds = (choice.sample(of.ready, len(of.ready)) for _ in itertools.count())
    texts = (ready.text for ready in itertools.chain.from_iterable(rounds))
    items = tuple(map(Item, itertools.islice(texts, 1000)))
    (found,) = served_by(of, [CollectiveSequence(1, items, stall=60)])
    assert found.verdict == OK, found
