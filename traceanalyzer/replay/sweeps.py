"""The two loops of replay: building the host's part of the graph, and executing it once from first to last node.

Both run over flat arrays in time order, so that their cost is linear in the number of calls and activities.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# a thread silent for longer than this, while another one worked, was waiting for it (forward → autograd → forward)
HANDOFF_NS = 150_000

# what a node waits for
NOTHING, EVERYTHING, STREAM, ACTIVITY, STREAM_FOR_ACTIVITY = range(5)

_LONG_AGO = -(1 << 62)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def link_host(  # type: ignore[no-untyped-def]
    call_start, call_end, call_thread, is_node, op_start, op_end, op_thread, mark_ns, mark_thread, threads,
    out, node_of_call, call_of_node,
):  # fmt: skip
    """Make nodes of calls and step borders in time order, and find who handed work to whom.

    Calls and operators come by start; thread -1 belongs to no launching thread, and operators only show that a thread
    was at work. ``out`` is int64 with one row of nine columns per node: start, end, thread, previous node of the
    thread, silence start, resume, handing node, hand-off time, operators since the previous node. ``node_of_call`` is
    filled with the node of each call (a call inside another belongs to the outer one), ``call_of_node`` with the call
    of each node, -1 for step borders.

    Returns:
        Number of nodes.
    """
    alive = np.full(threads, _LONG_AGO, np.int64)
    last_end = np.full(threads, _LONG_AGO, np.int64)
    last_node = np.full(threads, -1, np.int64)
    last_call = np.full(threads, -1, np.int64)
    silence = np.full(threads, -1, np.int64)
    resume = np.full(threads, -1, np.int64)
    giver = np.full(threads, -1, np.int64)
    hand = np.full(threads, -1, np.int64)
    count = np.full(threads, 0, np.int64)
    i = j = k = n = 0
    while i < len(call_start) or j < len(op_start) or k < len(mark_ns):
        at = (1 << 62) - 1
        which = 0
        if k < len(mark_ns):
            at = mark_ns[k]
        if j < len(op_start) and op_start[j] < at:
            at = op_start[j]
            which = 1
        if i < len(call_start) and call_start[i] < at:
            at = call_start[i]
            which = 2
        if which == 0:
            t = mark_thread
            end = at
            k += 1
        elif which == 1:
            t = op_thread[j]
            end = op_end[j]
            j += 1
        else:
            t = call_thread[i]
            end = call_end[i]
            i += 1
        if t < 0:
            continue
        if which:
            if alive[t] == _LONG_AGO or at - alive[t] > HANDOFF_NS:
                best = -1
                for other in range(threads):
                    worked = other != t and alive[other] > alive[t] and last_node[other] >= 0
                    if worked and (best < 0 or min(alive[other], at) > min(alive[best], at)):
                        best = other
                if best >= 0:
                    silence[t] = alive[t]
                    resume[t] = at
                    giver[t] = last_node[best]
                    hand[t] = min(alive[best], at)
            alive[t] = max(alive[t], end)
            if which == 1:
                count[t] += 1
                continue
            if not is_node[i - 1]:
                continue
            if at < last_end[t]:
                node_of_call[i - 1] = node_of_call[last_call[t]]
                continue
            node_of_call[i - 1] = n
            call_of_node[n] = i - 1
            last_call[t] = i - 1
        else:
            call_of_node[n] = -1
        out[n, 0] = at
        out[n, 1] = end
        out[n, 2] = t
        out[n, 3] = last_node[t]
        out[n, 4] = silence[t]
        out[n, 5] = resume[t]
        out[n, 6] = giver[t]
        out[n, 7] = hand[t]
        out[n, 8] = count[t]
        silence[t] = resume[t] = giver[t] = hand[t] = -1
        count[t] = 0
        last_node[t] = n
        last_end[t] = max(last_end[t], end)
        n += 1
    return n


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _before(cut_start, cut_end, cut_sum, low, high, at):  # type: ignore[no-untyped-def]
    """Host time removed before a moment: sum over the sorted cuts ``low`` to ``high`` of one thread."""
    first = low
    while low < high:
        middle = (low + high) // 2
        if cut_start[middle] <= at:
            low = middle + 1
        else:
            high = middle
    if low == first:
        return 0
    return cut_sum[low - 1] + min(at, cut_end[low - 1]) - cut_start[low - 1]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def execute(  # type: ignore[no-untyped-def]
    nodes, length, waits, wait_for, wait_stream, wake, factor, event_ns, offsets, stream, base, delay, gap, duration,
    streams, threads, cut_start, cut_end, cut_sum, cut_offsets, edit, removed, ts, te, gs, ge,
):  # fmt: skip
    """Execute the graph once.

    The nodes are as ``link_host`` filled them; each call has its own host time ``length``, what it ``waits`` for (the
    activity at position ``wait_for`` or the stream ``wait_stream``), and ``wake``, the time from the awaited end to its
    return. ``factor`` multiplies host time and ``event_ns`` is taken from it per recorded event (each one value, or
    one per node). Activities of node i are positions ``offsets[i]`` to ``offsets[i + 1]``, each with its stream, its
    delay from the call (from the call's first activity where ``base`` is 1), its gap to the stream's previous
    activity, and its duration. The cuts are host time to remove, sorted by thread and start, with the time removed on
    the thread before each. ``edit`` is 1 for nodes removed with their activities and 2 for nodes that do not wait;
    ``removed`` is 1 for activities removed. ``ts`` and ``te`` are filled with starts and ends of nodes, ``gs`` and
    ``ge`` with those of activities.
    """
    n = len(nodes)
    many = len(factor) > 1
    many_costs = len(event_ns) > 1
    send = np.full(streams, _LONG_AGO, np.int64)
    floor = np.full(streams, _LONG_AGO, np.int64)
    everything = _LONG_AGO
    pointer = np.full(threads, 0, np.int64)
    for t in range(threads):
        pointer[t] = cut_offsets[t]
    origin = nodes[0, 0]
    for i in range(n):
        start = nodes[i, 0]
        end = nodes[i, 1]
        t = nodes[i, 2]
        p = nodes[i, 3]
        resumed = nodes[i, 5]
        giver = nodes[i, 6]
        since = nodes[p, 1] if p >= 0 else origin
        since = min(since, start)
        own = start - since
        after = 0
        gone = edit[i] == 1
        stop = cut_offsets[t + 1]
        has_cuts = stop > cut_offsets[t]
        if has_cuts:
            q = pointer[t]
            while q < stop and cut_end[q] <= since:
                q += 1
            pointer[t] = q
            # cuts that touch the stretch before this call
            while q < stop and cut_start[q] < start:
                own -= min(cut_end[q], start) - max(cut_start[q], since)
                if cut_end[q] > start:
                    break
                q += 1
            if q < stop and cut_start[q] <= start and end <= cut_end[q] and call_like(nodes, i):
                gone = True
        if giver >= 0:
            quiet = max(nodes[i, 4], since)
            after = start - resumed
            own -= resumed - quiet
            if has_cuts:
                own += _before(cut_start, cut_end, cut_sum, cut_offsets[t], stop, resumed) - _before(
                    cut_start, cut_end, cut_sum, cut_offsets[t], stop, quiet
                )
                after -= _before(cut_start, cut_end, cut_sum, cut_offsets[t], stop, start) - _before(
                    cut_start, cut_end, cut_sum, cut_offsets[t], stop, resumed
                )
            own -= after
        f = factor[i] if many else factor[0]
        host = length[i]
        each = event_ns[i] if many_costs else event_ns[0]
        if each:
            cost = each * (nodes[i, 8] + 1)
            own = max(own - cost, own // 4)
            host = max(host - each, host // 4)
        if f != 1.0:
            own = int(own * f)
            after = int(after * f)
            host = int(host * f)
        s = (te[p] if p >= 0 else origin) + max(own, 0) + max(after, 0)
        if giver >= 0:
            handed = nodes[i, 7]
            a = nodes[giver, 2]
            if nodes[giver, 1] > handed:
                reached = ts[giver] + min(handed - nodes[giver, 0], te[giver] - ts[giver])
            else:
                worked = handed - nodes[giver, 1]
                if cut_offsets[a + 1] > cut_offsets[a]:
                    worked -= _before(
                        cut_start, cut_end, cut_sum, cut_offsets[a], cut_offsets[a + 1], handed
                    ) - _before(cut_start, cut_end, cut_sum, cut_offsets[a], cut_offsets[a + 1], nodes[giver, 1])
                reached = te[giver] + (int(worked * f) if f != 1.0 else worked)
            reached += int((resumed - handed) * f) + max(after, 0)
            if reached > s:
                s = reached
        ts[i] = s
        if gone:
            te[i] = s
            for j in range(offsets[i], offsets[i + 1]):
                gs[j] = -1
                ge[j] = _LONG_AGO
            continue
        e = s + host
        first = s
        began = False
        for j in range(offsets[i], offsets[i + 1]):
            if removed[j]:
                gs[j] = -1
                ge[j] = _LONG_AGO
                continue
            q = stream[j]
            r = (first if base[j] and began else s) + delay[j]
            if send[q] + gap[j] > r:
                r = send[q] + gap[j]
            if floor[q] + gap[j] > r:
                r = floor[q] + gap[j]
            gs[j] = r
            ge[j] = r + duration[j]
            if not began:
                began = True
                first = r
            if ge[j] > send[q]:
                send[q] = ge[j]
            if ge[j] > everything:
                everything = ge[j]
        kind = waits[i]
        if kind and edit[i] != 2:
            until = _LONG_AGO
            if kind == EVERYTHING:
                until = everything
            elif kind == STREAM:
                until = send[wait_stream[i]]
            elif wait_for[i] >= 0:
                until = ge[wait_for[i]]
            if kind == STREAM_FOR_ACTIVITY:
                q = wait_stream[i]
                if until > floor[q]:
                    floor[q] = until
            elif until > _LONG_AGO and until + wake[i] > e:
                e = until + wake[i]
        te[i] = e


@njit(cache=True, nogil=True, inline="always")  # type: ignore[untyped-decorator, unused-ignore]
def call_like(nodes, i):  # type: ignore[no-untyped-def]
    """Whether a node is a call; a step border has no length and is never removed."""
    return nodes[i, 1] > nodes[i, 0]
