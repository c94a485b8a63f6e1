"""Which algorithm, protocol and channels an op gets, and which pins are refused."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.contract.base.errors import PlanError
from etloop.traffic.collectives.algorithms.registry import ALGORITHMS
from etloop.traffic.collectives.choice import Custom, Settings, Shaping, choose, why_not
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.table import Protocol, Schedule
from etloop.traffic.collectives.nccl.hardware import Gpu, Hardware, Layout
from etloop.traffic.collectives.pins import Pin

SIMPLE, LL, LL128 = Protocol.SIMPLE, Protocol.LL, Protocol.LL128
NCCL, GLOO, MPI, PLAIN = Shaping
FOUR = Layout(4, 1)
KIB, MIB = 1 << 10, 1 << 20
COLLECTIVES = sorted(set().union(*(algorithm.collectives for algorithm in ALGORITHMS.values())))


@pytest.mark.parametrize(
    ("collective", "layout", "op_bytes", "expected"),
    [
        # Four H100 with a card each: by latency a tree with LL, by bandwidth the ring.
        ("all-reduce", FOUR, KIB, ("tree", LL, 1)),
        ("all-reduce", FOUR, 64 * MIB, ("ring", SIMPLE, 4)),
        # 16 KiB from each of four are 64 KiB: 5,120 B a channel suffice for LL128, 16 KiB are wanted by LL.
        ("all-gather", FOUR, 16 * KIB, ("ring", LL, 4)),
        ("reduce-scatter", FOUR, 64 * KIB, ("ring", LL, 4)),
        # A plan states one rank's bytes of an all-gather, all ranks' of a reduce-scatter: the same op, the same choice.
        ("all-gather", FOUR, 64 * MIB, ("ring", SIMPLE, 4)),
        ("reduce-scatter", FOUR, 256 * MIB, ("ring", SIMPLE, 4)),
        # NCCL has no barrier: frameworks reduce four bytes.
        ("barrier", FOUR, 4, ("tree", LL, 1)),
        ("broadcast", FOUR, 64 * MIB, ("chain", SIMPLE, 4)),
        ("reduce", FOUR, 64, ("chain", LL, 1)),
        ("all-to-all", FOUR, 64 * MIB, ("p2p", SIMPLE, 4)),
        ("point-to-point", Layout(2, 1), 64 * MIB, ("p2p", SIMPLE, 4)),
        ("gather", FOUR, MIB, ("linear", SIMPLE, 4)),
        ("all-gather", Layout(512, 1), 64, ("pat", SIMPLE, 1)),
        ("all-reduce", Layout(64, 8), 1 << 30, ("ring", SIMPLE, 16)),
    ],
)
def test_nccl_chooses_by_its_model(
    collective: str, layout: Layout, op_bytes: int, expected: tuple[str, Protocol, int]
) -> None:
    choice = choose(collective, layout, op_bytes, Settings())
    assert (choice.algorithm, choice.protocol, choice.channels) == expected
    tuned = collective not in ("all-to-all", "point-to-point", "gather")
    assert bool(choice.alternatives) == tuned


def test_a_choice_says_why_and_what_else_there_was() -> None:
    choice = choose("all-reduce", FOUR, 64 * MIB, Settings())
    assert choice.reason == "least of 6 by NCCL's tuning model"
    assert [(str(e.algorithm), e.protocol, e.time_ns) for e in choice.alternatives][-1] == (
        "ring",
        SIMPLE,
        2226512,
    )
    assert min(e.time_ns for e in choice.alternatives) == 2226512
    small = choose("all-reduce", FOUR, KIB, Settings())
    assert small.reason == "least of 6 by NCCL's tuning model; too few bytes for all of 4 channels"


@pytest.mark.parametrize(
    ("pin", "collective", "expected", "reason"),
    [
        # Each part of a pin leaves the others to the model.
        (Pin(algorithm="tree"), "all-reduce", ("tree", SIMPLE, 4), "least of 3 by NCCL's tuning model"),
        (Pin(protocol=LL128), "all-reduce", ("ring", LL128, 4), "least of 2 by NCCL's tuning model"),
        (Pin(channels=9), "all-reduce", ("ring", SIMPLE, 9), "least of 6 by NCCL's tuning model; channels pinned"),
        (Pin("ring", SIMPLE, 1), "all-reduce", ("ring", SIMPLE, 1), "pinned"),
        # Not NCCL's, but cut as NCCL would.
        (Pin("halving_doubling"), "all-reduce", ("halving_doubling", SIMPLE, 1), "pinned; not an algorithm of NCCL"),
        (Pin("direct", LL, 2), "all-gather", ("direct", LL, 2), "pinned; not an algorithm of NCCL"),
        (Pin("bruck"), "all-to-all", ("bruck", SIMPLE, 4), "pinned"),
        # Channels of grouped sends are a power of two.
        (Pin(channels=3), "all-to-all", ("p2p", SIMPLE, 4), "NCCL's grouped sends"),
    ],
)  # fmt: skip
def test_pins_hold(pin: Pin, collective: str, expected: tuple[str, Protocol, int], reason: str) -> None:
    choice = choose(collective, FOUR, 64 * MIB, Settings(pins=((collective, pin),)))
    assert (choice.algorithm, choice.protocol, choice.channels) == expected
    assert choice.reason == reason


def test_a_general_pin_holds_where_it_can() -> None:
    settings = Settings(pin=Pin("ring", LL, 2))
    chosen = {name: choose(name, FOUR, MIB, settings) for name in ("all-reduce", "broadcast", "all-to-all")}
    assert {name: (c.algorithm, c.protocol, c.channels) for name, c in chosen.items()} == {
        "all-reduce": ("ring", LL, 2),
        "broadcast": ("chain", LL, 2),
        "all-to-all": ("p2p", SIMPLE, 2),
    }


def test_a_collectives_own_pin_comes_before_the_general_one() -> None:
    settings = Settings(pin=Pin("ring", SIMPLE, 1), pins=(("all-reduce", Pin("tree")),))
    choice = choose("all-reduce", FOUR, MIB, settings)
    assert (choice.algorithm, choice.protocol, choice.channels) == ("tree", SIMPLE, 1)


def test_hardware_changes_the_choice() -> None:
    ampere = Settings(hardware=Hardware(gpu=Gpu.AMPERE, nic_bps=200_000_000_000))
    assert choose("all-reduce", FOUR, 64 * MIB, ampere).channels == 2


@pytest.mark.parametrize(
    ("shaping", "collective", "layout", "op_bytes", "algorithm", "message"),
    [
        (GLOO, "all-reduce", FOUR, 64 * MIB, "gloo_ring", MIB),
        (MPI, "all-reduce", FOUR, 2048, "recursive_doubling", 1 << 30),
        (MPI, "all-reduce", FOUR, MIB, "halving_doubling", 1 << 30),
        (PLAIN, "all-reduce", FOUR, MIB, "ring", 1 << 30),
        (PLAIN, "point-to-point", Layout(2, 1), MIB, "p2p", 1 << 30),
        (MPI, "uneven all-to-all", FOUR, MIB, "p2p", 1 << 30),
    ],
)
def test_other_shapings_send_whole_buffers(
    shaping: Shaping, collective: str, layout: Layout, op_bytes: int, algorithm: str, message: int
) -> None:
    choice = choose(collective, layout, op_bytes, Settings(shaping))
    assert (choice.algorithm, choice.protocol, choice.channels) == (algorithm, SIMPLE, 1)
    assert choice.request.cutting.chunk_bytes == message
    assert choice.alternatives == ()


@pytest.mark.parametrize("shaping", Shaping)
@pytest.mark.parametrize("collective", COLLECTIVES)
@settings(max_examples=20)
@given(size=st.integers(2, 24), ranks_per_host=st.integers(1, 8), op_bytes=st.integers(0, 1 << 33))
def test_every_shaping_has_an_answer_for_every_op(
    shaping: Shaping, collective: str, size: int, ranks_per_host: int, op_bytes: int
) -> None:
    layout = Layout(size, min(size, ranks_per_host))
    choice = choose(collective, layout, op_bytes, Settings(shaping))
    assert collective in ALGORITHMS[choice.algorithm].collectives
    assert 1 <= choice.channels <= 64
    assert choice.request.size == size


REFUSED = {
    "PAT with two ranks on a host": (
        Settings(pins=(("all-gather", Pin("pat")),)),
        "all-gather",
        Layout(8, 2),
        "all-gather of 8 ranks, 2 a host: PAT with several ranks a host is not modelled",
    ),
    "a hierarchy of one host": (
        Settings(pins=(("all-to-all", Pin("hierarchical")),)),
        "all-to-all",
        Layout(4, 4),
        "all-to-all of 4 ranks, 4 a host: hierarchical cannot execute it: needs 2 or more hosts",
    ),
    "half a bidirectional ring": (
        Settings(pins=(("all-reduce", Pin("bidirectional_ring", channels=3)),)),
        "all-reduce",
        FOUR,
        "needs an even number of channels, half for each direction; got 3",
    ),
    "uneven splits with an algorithm for even ones": (
        Settings(pins=(("all-to-all", Pin("bruck")),)),
        "uneven all-to-all",
        FOUR,
        "uneven all-to-all of 4 ranks, 1 a host: bruck cannot execute it: it does not implement this collective",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_pin_that_this_group_cannot_follow_is_refused(case: str) -> None:
    settings, collective, layout, printed = REFUSED[case]
    with pytest.raises(PlanError, match=re.escape(printed)):
        choose(collective, layout, MIB, settings)


@pytest.mark.parametrize(
    ("shaping", "collective", "pin", "printed"),
    [
        (NCCL, "all-reduce", Pin("rign"), 'unknown algorithm "rign"'),
        (NCCL, "all-reduce", Pin("bruck"), "bruck does not implement all-reduce"),
        (NCCL, "all-to-all", Pin(protocol=LL), "sends over a network use the Simple protocol in NCCL"),
        (NCCL, "point-to-point", Pin(protocol=LL128), "sends over a network use the Simple protocol in NCCL"),
        (NCCL, "all-gather", Pin("pat", LL), "PAT has the Simple protocol only"),
        (NCCL, "all-reduce", Pin(channels=65), "65 channels; NCCL has at most 64"),
        (MPI, "all-reduce", Pin(protocol=LL), "mpi has no protocols"),
        (GLOO, "all-reduce", Pin(channels=2), "gloo has no channels"),
        (PLAIN, "all-reduce", Pin(channels=2), ""),
        (NCCL, "all-reduce", Pin("tree", LL128, 64), ""),
        (NCCL, "all-reduce", Pin(), ""),
    ],
)
def test_a_pin_that_no_op_could_follow_is_known_without_a_job(
    shaping: Shaping, collective: str, pin: Pin, printed: str
) -> None:
    wrong = why_not(shaping, collective, pin)
    assert (wrong[0] if wrong is not None else "") == printed


def _built(request: Request) -> Schedule:
    return ALGORITHMS["ring"].build(request)


def test_a_schedule_of_the_users_own_serves_the_ops_it_is_made_for() -> None:
    own = Custom("mine", _built, LL128, 3, ranks=4, least_bytes=KIB, most_bytes=MIB)
    settings = Settings(custom=(("all-gather", own),))
    choice = choose("all-gather", FOUR, KIB // 4, settings)
    assert (choice.algorithm, choice.protocol, choice.channels) == ("mine", LL128, 3)
    assert choice.reason == "the user's own schedule"
    assert choice.schedule().size == 4
    # Another size of group or of buffer, another collective: the library's choice.
    assert choose("all-gather", Layout(5, 1), KIB // 4, settings).algorithm == "ring"
    assert choose("all-gather", FOUR, KIB // 4 - 1, settings).algorithm == "ring"
    assert choose("all-gather", FOUR, MIB // 4 + 1, settings).algorithm == "pat"
    assert choose("all-reduce", FOUR, KIB, settings).algorithm == "tree"
    pinned = Settings(pins=(("all-gather", Pin(protocol=LL)),), custom=settings.custom)
    assert choose("all-gather", FOUR, KIB, pinned).protocol is LL
