"""The flow of the proofs: a proof holds, is not vacuous, and fails on a bug; what is missing is said."""

import itertools
import json
import random
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from amaranth import Module, Signal
from amaranth.sim import Simulator

from hw.primitives.queue import Queue
from tb.formal import report, solver
from tb.formal.bench import Bench, UnknownSignal
from tb.formal.proof import Proof, all_proofs
from tb.formal.tile_geometry import product_terms

MISSING = solver.missing_tools()
needs_tools = pytest.mark.skipif(
    bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (extra [formal]: pip install -e '.[formal]')"
)


def changed(name: str, **changes: object) -> Proof:
    """The proof called `name` with some fields changed."""
    return Proof(**{**vars(all_proofs()[name]), **changes})


@pytest.mark.parametrize("name", all_proofs())
def test_what_a_proof_reads_and_breaks_in_a_block_is_there(name: str) -> None:
    """Most proofs take too long for every commit, and signals of blocks are found by their names."""
    solver.design(all_proofs()[name], "seeded")


@needs_tools
@pytest.mark.parametrize("name", ["queue", "arbiter_starvation"])
def test_cheap_proof_holds_is_not_vacuous_and_finds_its_bug(tmp_path, name):
    outcome = solver.run(all_proofs()[name], tmp_path)
    assert outcome.passed, report.errors([outcome])
    assert outcome.mode == "unbounded"


@needs_tools
def test_pdr_proves_and_refutes(tmp_path):
    proof = all_proofs()["ready_queue"]
    assert solver.prove(proof, tmp_path / "right")[0] == "proved"

    def wrong(b: Bench) -> None:
        proof.build(b)
        b.claim(b.past(0, "never"))

    assert solver.prove(changed("ready_queue", build=wrong), tmp_path / "wrong")[0] == "failed"


@needs_tools
def test_contradictory_assumptions_are_no_proof(tmp_path):
    queue = all_proofs()["queue"]

    def contradictory(b: Bench) -> None:
        queue.build(b)
        b.assume(b.past(1, "one_cycle_later") == 0)

    proof = changed("queue", build=contradictory)
    assert solver.cover(proof, tmp_path)[0] == "unreached"


@needs_tools
def test_bug_that_no_claim_sees_is_reported(tmp_path):
    queue = all_proofs()["queue"]

    def blind(b: Bench) -> None:
        b.seeded = False
        queue.build(b)

    assert solver.find_seeded_bug(changed("queue", build=blind), tmp_path)[0] == "missed"


def test_registers_are_clocked():
    """A clock that is no port would be constant: no register changes and every claim holds."""
    text = solver.design(all_proofs()["queue"], "proof")
    assert re.search(r"input \d+\s+\\clk", text)


def test_unknown_inner_signal_is_named():
    queue = all_proofs()["queue"]

    def lost(b: Bench) -> None:
        queue.build(b)
        with pytest.raises(UnknownSignal, match="no_such: 0 signals"):
            b.block(Queue(8, 2), "another").signal("no_such")

    solver.design(changed("queue", build=lost), "proof")


def test_summary_and_junit_tell_what_failed(tmp_path):
    good = solver.Outcome(
        "a", "queues", "p", "small", "k-induction", "unbounded", 2, "proved", 1.0, "reached", 1.0, "found", "bug", 1.0
    )
    bad = solver.Outcome(
        "b", "arbiter", "p", "small", "bmc", "bounded", 9, "proved", 1.0, "unreached", 1.0, "missed", "bug", 1.0
    )
    report.write([good, bad], tmp_path)
    rows = json.loads((tmp_path / "summary.json").read_text())
    assert [(row["name"], row["status"], row["mode"], row["cover"], row["seeded_bug"]) for row in rows] == [
        ("a", "proved", "unbounded", "reached", "found"),
        ("b", "proved", "bounded", "unreached", "missed"),
    ]
    suites = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert [suite.get("failures") for suite in suites] == ["0", "1"]
    failure = suites.find("testsuite/testcase/failure")
    assert failure is not None and "vacuous" in failure.get("message", "")


def test_unknown_proof_is_refused():
    result = subprocess.run(
        [sys.executable, "-m", "tb.formal", "--only", "nothing"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "--only must be one of " in result.stderr


def test_product_terms_add_up_to_the_product():
    """The proof of the tile geometry takes the sum of these terms for (number + 1) * inverse."""
    number, inverse, product = Signal(16), Signal(16), Signal(16)
    m = Module()
    m.d.comb += product.eq(sum(product_terms(number, inverse)))
    draw = random.Random(7)
    corners = [0, 1, 2, 3, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF, *(1 << bit for bit in range(16))]
    pairs = [
        *itertools.product(corners, repeat=2),
        *((draw.getrandbits(16), draw.getrandbits(16)) for _ in range(2000)),
    ]

    async def check(ctx) -> None:
        for one, other in pairs:
            ctx.set(number, one)
            ctx.set(inverse, other)
            assert ctx.get(product) == (one + 1) * other % 65536, (one, other)

    simulator = Simulator(m)
    simulator.add_testbench(check)
    simulator.run()
