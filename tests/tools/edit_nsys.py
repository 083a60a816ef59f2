"""Cut Nsight Systems' SQLite exports into stretches of steps, and put known changes into their tables.

The changes are made to what a profiler would have written, not to what is measured from it, so a test of the gate goes
through reading, attribution and measuring as a real recording does:

- every host time longer by a share, launch calls included (a slower host);
- the host later before one launch of every step;
- every kernel longer by a share;
- one more H2D copy per step: its call, its activity, the host time it takes.

GPU activities follow the launch that they belong to, and wait for the one before on their stream. The host's own waits
are not made longer when the GPU is; in a launch-bound run that is microseconds.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
GPU_TABLES = (KERNEL, MEMCPY, "CUPTI_ACTIVITY_KIND_MEMSET")
HOST_TABLES = (RUNTIME, "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "OSRT_API", "PROFILER_OVERHEAD")
H2D = 1  # copyKind
COPY_CALL_NS, COPY_NS, COPY_BYTES = 6_000, 1_500, 4096


@dataclass(frozen=True, slots=True)
class Launches:
    """Runtime calls that started GPU activities, in order of time.

    Attributes:
        start: When the call began, ns.
        end: When it returned, ns.
        correlation: Its correlation id.
        step: Index of the step it lies in.
        turn: Its place among the step's launches, from 0.
    """

    start: Ints
    end: Ints
    correlation: Ints
    step: Ints
    turn: Ints


def step_starts(connection: sqlite3.Connection, marker: str = "step") -> Ints:
    """Return when each step range began, ns, in order."""
    rows = connection.execute(
        "SELECT n.start FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId "
        "WHERE COALESCE(n.text, s.value) = ? AND n.end IS NOT NULL ORDER BY n.start",
        (marker,),
    )
    return np.array([start for (start,) in rows], dtype=np.int64)


def cut_steps(source: Path, target: Path, first: int, end: int) -> Path:
    """Write the steps ``[first, end)`` of an export as an export of their own.

    Args:
        source: The export.
        target: What to write.
        first: First step.
        end: Step before which to stop.

    Returns:
        ``target``.
    """
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(target)) as out:
        out.execute("PRAGMA synchronous = OFF")
        out.execute("ATTACH ? AS whole", (str(source),))
        tables = out.execute("SELECT name, sql FROM whole.sqlite_master WHERE type = 'table'").fetchall()
        with closing(opened(source)) as whole:
            starts = step_starts(whole)
        low, high = int(starts[first]), int(starts[end]) if end < len(starts) else 2**62
        out.execute("CREATE TEMP TABLE kept (id INTEGER PRIMARY KEY)")
        out.execute(
            f"INSERT OR IGNORE INTO kept SELECT correlationId FROM whole.{RUNTIME} WHERE start >= ? AND start < ?",
            (low, high),
        )
        for name, sql in tables:
            out.execute(sql)
            if name in (*GPU_TABLES, "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"):
                where = "WHERE correlationId IN kept"
            elif name in HOST_TABLES:
                where = f"WHERE start >= {low} AND start < {high}"
            else:
                where = ""
            out.execute(f'INSERT INTO main."{name}" SELECT * FROM whole."{name}" {where}')
        out.commit()
    return target


def opened(path: Path) -> sqlite3.Connection:
    """Open an export for reading only."""
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def find_launches(connection: sqlite3.Connection) -> Launches:
    """Find the calls that started something, and where in their step they stand."""
    linked = " UNION ".join(f"SELECT correlationId FROM {table}" for table in _present(connection, GPU_TABLES))
    rows = np.array(
        connection.execute(
            f"SELECT start, end, correlationId FROM {RUNTIME} WHERE correlationId IN ({linked}) ORDER BY start"
        ).fetchall(),
        dtype=np.int64,
    )
    step = np.searchsorted(step_starts(connection), rows[:, 0], side="right") - 1
    first = np.searchsorted(step, step)  # where each launch's step begins
    return Launches(rows[:, 0], rows[:, 1], rows[:, 2], step, np.arange(len(rows)) - first)


def _present(connection: sqlite3.Connection, tables: tuple[str, ...]) -> list[str]:
    known = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [table for table in tables if table in known]


def _change_times(
    path: Path, host: Callable[[Ints], Ints], kernel_per_mille: int = 1000, extra: Callable[..., None] | None = None
) -> None:
    """Move every time of an export.

    Args:
        path: The export, changed in place.
        host: Old host times to new ones, never decreasing.
        kernel_per_mille: New length of a kernel, in thousandths of the old one.
        extra: Called with the connection and the launches as they were, to add rows.
    """
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        launches = find_launches(connection)
        order = np.argsort(launches.correlation, kind="stable")
        known = launches.correlation[order]
        for table in _present(connection, HOST_TABLES):
            rows = np.array(
                connection.execute(
                    f"SELECT rowid, start, COALESCE(end, start) FROM {table} WHERE start IS NOT NULL"
                ).fetchall(),
                dtype=np.int64,
            ).reshape(-1, 3)
            new = np.column_stack([host(rows[:, 1]), host(rows[:, 2]), rows[:, 0]]).tolist()
            connection.executemany(
                f"UPDATE {table} SET start = ?, end = CASE WHEN end IS NULL THEN NULL ELSE ? END WHERE rowid = ?", new
            )
        moved: dict[str, Ints] = {}
        for table in _present(connection, GPU_TABLES):
            rows = np.array(
                connection.execute(f"SELECT rowid, start, end, correlationId, streamId FROM {table}").fetchall(),
                dtype=np.int64,
            ).reshape(-1, 5)
            at = np.minimum(np.searchsorted(known, rows[:, 3]), len(known) - 1)
            is_linked = known[at] == rows[:, 3]
            anchor = np.where(is_linked, launches.end[order][at], rows[:, 1])
            length = rows[:, 2] - rows[:, 1]
            if table == KERNEL:
                length = length * kernel_per_mille // 1000
            start = rows[:, 1] + host(anchor) - anchor
            moved[table] = np.column_stack([start, start + length, rows[:, 0], rows[:, 4]])
        if kernel_per_mille != 1000:
            _queue(moved)
        for table, rows in moved.items():
            connection.executemany(f"UPDATE {table} SET start = ?, end = ? WHERE rowid = ?", rows[:, :3].tolist())
        if extra is not None:
            extra(connection, launches)
        connection.commit()


def _queue(moved: dict[str, Ints]) -> None:
    """Let every activity wait for the one before on its stream."""
    names = list(moved)
    table = np.concatenate([np.full(len(moved[name]), i) for i, name in enumerate(names)])
    row = np.concatenate([np.arange(len(moved[name])) for name in names])
    rows = np.concatenate([moved[name] for name in names])
    for stream in np.unique(rows[:, 3]):
        own = np.flatnonzero(rows[:, 3] == stream)
        own = own[np.argsort(rows[own, 0], kind="stable")]
        start, length = rows[own, 0], rows[own, 1] - rows[own, 0]
        before = np.concatenate([[0], np.cumsum(length)[:-1]])
        begun = np.maximum.accumulate(start - before) + before
        for name_index, name in enumerate(names):
            mine = table[own] == name_index
            moved[name][row[own][mine], 0] = begun[mine]
            moved[name][row[own][mine], 1] = (begun + length)[mine]


def slow_host(path: Path, per_mille: int) -> None:
    """Make every host time longer: calls, ranges, waits and what lies between, by ``per_mille`` thousandths."""
    with closing(opened(path)) as connection:
        origin = int(step_starts(connection)[0])
    _change_times(path, lambda t: t + (t - origin) * per_mille // 1000)


def stretch_kernels(path: Path, per_mille: int) -> None:
    """Make every kernel longer by ``per_mille`` thousandths."""
    _change_times(path, lambda t: t, kernel_per_mille=1000 + per_mille)


def _insertion(points: Ints, extra_ns: int) -> Callable[[Ints], Ints]:
    return lambda t: t + extra_ns * np.searchsorted(points, t, side="right")


def add_gap(path: Path, turn: int, extra_ns: int) -> int:
    """Let the host come later to one launch of every step; all that follows is later too.

    Args:
        path: The export, changed in place.
        turn: Which of the step's launches, from 0.
        extra_ns: By how much.

    Returns:
        In how many steps.
    """
    with closing(opened(path)) as connection:
        launches = find_launches(connection)
    points = launches.start[launches.turn == turn]
    _change_times(path, _insertion(points, extra_ns))
    return len(points)


def add_copy(path: Path, turn: int) -> int:
    """Issue one more H2D copy per step, right before one of its launches.

    Args:
        path: The export, changed in place.
        turn: Which of the step's launches, from 0.

    Returns:
        In how many steps.
    """
    with closing(opened(path)) as connection:
        launches = find_launches(connection)
    points = launches.start[launches.turn == turn]
    move = _insertion(points, COPY_CALL_NS)

    def insert(connection: sqlite3.Connection, old: Launches) -> None:
        template = connection.execute(f"SELECT * FROM {MEMCPY} WHERE copyKind = ? LIMIT 1", (H2D,))
        copy = dict(zip([c[0] for c in template.description], template.fetchone(), strict=True))
        template = connection.execute(
            f"SELECT * FROM {RUNTIME} WHERE correlationId = ? LIMIT 1", (copy["correlationId"],)
        )
        call = dict(zip([c[0] for c in template.description], template.fetchone(), strict=True))
        thread = dict(connection.execute(f"SELECT correlationId, globalTid FROM {RUNTIME}"))
        unused = connection.execute(f"SELECT MAX(correlationId) FROM {RUNTIME}").fetchone()[0] + 1
        chosen = old.correlation[old.turn == turn]
        for index, (point, launch) in enumerate(zip(move(points).tolist(), chosen.tolist(), strict=True)):
            # the time that was put before the launch is this call's
            times = {"start": point - COPY_CALL_NS, "end": point, "correlationId": unused + index}
            _insert(connection, RUNTIME, {**call, **times, "globalTid": thread[launch]})
            times |= {"start": point + 500, "end": point + 500 + COPY_NS}
            _insert(connection, MEMCPY, {**copy, **times, "bytes": COPY_BYTES})

    _change_times(path, move, extra=insert)
    return len(points)


def _insert(connection: sqlite3.Connection, table: str, row: dict[str, object]) -> None:
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


def drop_gpu(path: Path) -> None:
    """Take everything the GPU did out of an export, as a recording of a CPU-only run has it."""
    with closing(sqlite3.connect(path)) as connection:
        for table in _present(connection, GPU_TABLES):
            connection.execute(f"DROP TABLE {table}")
        connection.commit()


def edited(source: Path, target: Path, change: Callable[[Path], object]) -> Path:
    """Copy an export and change the copy.

    Returns:
        ``target``.
    """
    shutil.copyfile(source, target)
    change(target)
    return target
