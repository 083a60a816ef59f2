"""What a memory snapshot's state and history say together, against sums done by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.snapshots import MIB, History, block, segment, snapshot
from traceanalyzer.measures.memory_history import free_blocks, rebuild_history
from traceanalyzer.measures.memory_incidents import explain_oom
from traceanalyzer.measures.memory_sites import short_file
from traceanalyzer.readers.memory_snapshot import snapshot_of

FILE = Path("memory_snapshot.pickle")
A = 1000 * MIB


def test_totals_are_reckoned_back_from_the_final_state() -> None:
    made = History()
    made.free(1, A, 4 * MIB)  # allocated before the history began
    made.add(2, "segment_alloc", A + 100 * MIB, 10 * MIB)
    made.add(3, "alloc", A + 100 * MIB, 10 * MIB)
    made.add(4, "free_requested", A + 100 * MIB, 10 * MIB)
    made.add(5, "free_completed", A + 100 * MIB, 10 * MIB)
    made.add(6, "segment_free", A + 100 * MIB, 10 * MIB)
    state = [segment(A, [block(4 * MIB, "inactive"), block(2 * MIB)])]
    history = rebuild_history(snapshot_of(snapshot(state, made), FILE), 0)
    assert history.contradictions == ()
    assert (history.reserved_bytes // MIB).tolist() == [6, 6, 6, 16, 16, 16, 16, 6]
    assert (history.allocated_bytes // MIB).tolist() == [6, 2, 2, 2, 12, 2, 2, 2]
    assert (history.active_bytes // MIB).tolist() == [6, 6, 2, 2, 12, 12, 2, 2]
    assert history.peak == 4


def test_free_stretches_are_those_between_blocks_at_that_moment() -> None:
    made = History()
    made.add(1, "alloc", A, MIB)
    made.add(2, "alloc", A + 3 * MIB, MIB)
    made.free(3, A, MIB)
    state = [segment(A, [block(3 * MIB, "inactive"), block(MIB), block(6 * MIB, "inactive")])]
    found = snapshot_of(snapshot(state, made), FILE)
    history = rebuild_history(found, 0)

    def at(index: int) -> list[int]:
        stretches = free_blocks(found, history, index)
        assert stretches is not None
        return [size // MIB for size in stretches.tolist()]

    assert at(-1) == [10]
    assert at(0) == [9]
    assert at(1) == [6, 2]
    assert at(3) == [6, 3]


def test_a_history_that_contradicts_the_segments_is_told() -> None:
    made = History()
    made.add(1, "segment_alloc", A, 50 * MIB)
    made.add(2, "alloc", A + 700 * MIB, MIB)
    made.add(3, "alloc", A + 700 * MIB, MIB)
    found = rebuild_history(snapshot_of(snapshot([segment(A, [block(MIB)])], made), FILE), 0).contradictions
    assert any("twice in a row" in what for what in found)
    assert any("not in its segments" in what for what in found)
    assert any("negative" in what for what in found)


def test_a_block_a_stream_still_uses_is_active_but_not_allocated() -> None:
    made = History()
    made.add(1, "alloc", A, MIB)
    made.add(2, "free_requested", A, MIB)
    state = [segment(A, [block(MIB, "active_pending_free"), block(MIB, "active_pending_free")])]
    history = rebuild_history(snapshot_of(snapshot(state, made), FILE), 0)
    assert (history.allocated_bytes // MIB).tolist() == [0, 1, 0]
    assert (history.active_bytes // MIB).tolist() == [1, 2, 2]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 40)), max_size=80), st.integers(0, 80))
def test_a_simulated_allocator_is_rebuilt_whole_from_any_tail_of_its_history(
    moves: list[tuple[int, int]], begun: int
) -> None:
    """Eight slots of 20 KiB: a move allocates a free slot or frees a used one."""
    slot, made, held, totals = 40 * 512, History(), dict[int, int](), [0]
    for number, (at, units) in enumerate(moves):
        if at in held:
            size = held.pop(at)
            made.free(number, A + at * slot, size)
            totals += [sum(held.values()), sum(held.values())]
        else:
            held[at] = units * 512
            made.add(number, "alloc", A + at * slot, units * 512)
            totals.append(sum(held.values()))
    blocks = []
    for at in range(8):
        used = held.get(at, 0)
        if used:
            blocks.append(block(used))
        if used < slot:
            blocks.append(block(slot - used, "inactive"))
    cut = min(begun, len(made.entries))
    if cut < len(made.entries) and made.entries[cut]["action"] == "free_completed":
        cut -= 1  # both halves of a free
    made.entries = made.entries[cut:]
    found = snapshot_of(snapshot([segment(A, blocks)], made), FILE)
    history = rebuild_history(found, 0)
    assert history.contradictions == ()
    assert history.allocated_bytes.tolist() == totals[cut:]
    last = free_blocks(found, history, len(history.events) - 1)
    assert last is not None
    assert int(last.sum()) == 8 * slot - sum(held.values())
    assert bool(np.all(history.allocated_bytes <= history.active_bytes))
    assert bool(np.all(history.active_bytes <= history.reserved_bytes))


def test_why_a_request_did_not_fit_is_told_from_what_was_free() -> None:
    limit, _ = explain_oom(10, 20, 5, 0, 0)
    assert "a limit on this process" in limit
    pieces, advice = explain_oom(10, 1, 5, 12, 4)
    assert "pieces too small" in pieces
    assert "largest free stretch was 4 B" in pieces
    assert "expandable_segments" in advice
    full, advice = explain_oom(10, 1, 50, 2, 2)
    assert "only 3 B free" in full
    assert "smaller batch" in advice


def test_files_of_libraries_are_named_below_their_package() -> None:
    assert (
        short_file("/home/someone/env/lib/python3.12/site-packages/torch/nn/functional.py") == "torch/nn/functional.py"
    )
    assert short_file("/home/someone/secret/train.py") == "train.py"
    assert short_file("ultralytics/nn/tasks.py") == "ultralytics/nn/tasks.py"
