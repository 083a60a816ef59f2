"""Damage by chance: of the structure of a recording, and of its bytes."""

from __future__ import annotations

import copy
import gzip
import json
import random
import sqlite3
from pathlib import Path
from typing import Any

from tests.robustness.recordings import kineto_document, kineto_events, nsys_export

HOSTILE_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    7,
    -5,
    0.4,
    1e-9,
    1e15,
    9.2e15,
    1e300,
    -1e300,
    2**31,
    2**32 - 1,
    2**53,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**30,
    float("nan"),
    float("inf"),
    float("-inf"),
    "",
    "0",
    "12",
    "1e3",
    "nan",
    "inf",
    "N/A",
    "stream 7",
    "\x00",
    "a\nb",
    "\u202egnp",
    "\ud800",
    "<script>alert(1)</script>",
    "x" * 5000,
    "aten::",
    "ProfilerStep#",
    "ProfilerStep#-1",
    "ProfilerStep#99999999999999999999",
    "cudaLaunchKernel",
    "cudaDeviceSynchronize",
    "Memcpy HtoD (Pinned -> Device)",
    "ncclDevKernel_AllReduce",
    [],
    {},
    [[]],
    {"a": {}},
    [1, 2],
    [None],
    [[[[[[1]]]]]],
)
CATEGORIES = (
    "kernel",
    "gpu_memcpy",
    "gpu_memset",
    "cuda_runtime",
    "cuda_driver",
    "cpu_op",
    "user_annotation",
    "python_function",
    "cuda_sync",
    "overhead",
    "Trace",
    "ac2g",
    "Kernel",
    "Memcpy",
    "Operator",
    "gpu_user_annotation",
    "cpu_instant_event",
    "?",
)
TOKENS = (
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"null",
    b"}",
    b"{",
    b"]",
    b"[",
    b",",
    b'"',
    b"\\",
    b"\\u",
    b"\\ud800",
    b"1e999",
    b"-0",
    b"\x00",
    b"\xff\xfe",
    b"99999999999999999999999",
    b"0",
    b'"ph": "X"',
    b'"dur": -1',
    b"]}",
    b"}, {",
    b'{"traceEvents": [',
)


def mutate_kineto(chance: random.Random, steps: int = 4) -> bytes:
    """Return a damaged Kineto file: now and then compressed, damaged in structure, bytes or both."""
    document = kineto_document(kineto_events(steps))
    how = chance.random()
    if how < 0.7:
        for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
            _mutate_document(document, chance)
    text = json.dumps(document).encode("utf-8", "surrogatepass")
    if how >= 0.6:
        text = mutate_bytes(text, chance)
    if chance.random() < 0.15:
        text = gzip.compress(text, compresslevel=1)
        if chance.random() < 0.7:
            text = mutate_bytes(text, chance)
    return text


def _mutate_document(document: dict[str, Any], chance: random.Random) -> None:
    events = document["traceEvents"]
    if not isinstance(events, list) or not events or chance.random() < 0.05:
        document[chance.choice((*document, "distributedInfo", "baseTimeNanoseconds"))] = chance.choice(HOSTILE_VALUES)
        return
    place = chance.randrange(len(events))
    event = events[place]
    if not isinstance(event, dict) or not event:
        return
    action = chance.randrange(10)
    if action == 0:
        events.insert(chance.randrange(len(events)), copy.deepcopy(event))
    elif action == 1:
        del events[place : place + chance.choice((1, 1, 5, 20))]
    elif action == 2:
        events[place] = chance.choice(HOSTILE_VALUES)
    elif action == 3:
        event["cat"] = chance.choice(CATEGORIES)
    elif action == 4 and isinstance(event.get("args"), dict) and event["args"]:
        event["args"][chance.choice(list(event["args"]))] = chance.choice(HOSTILE_VALUES)
    elif action == 5:
        chance.shuffle(events)
    elif action == 6:
        event.pop(chance.choice(list(event)), None)
    elif action == 7:
        shift = chance.choice((-500, 500, 1e6, -1e6, 1e12, 3.3e9))
        for other in events[place : place + chance.choice((1, 3, 30))]:
            if isinstance(other, dict) and isinstance(other.get("ts"), int | float):
                other["ts"] += shift
    elif action == 8:
        event["dur"] = chance.choice((0, 1e4, 1e9, 0.001, -0.001, 1e15))
    else:
        event[chance.choice(list(event))] = chance.choice(HOSTILE_VALUES)


def mutate_bytes(text: bytes, chance: random.Random) -> bytes:
    """Return the bytes with one to four places cut, doubled, flipped, overwritten or filled with hostile tokens."""
    data = bytearray(text)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        if not data:
            break
        place = chance.randrange(len(data))
        action = chance.randrange(7)
        length = chance.choice((1, 1, 2, 8, 64, 500))
        if action == 0:
            del data[place:]
        elif action == 1:
            del data[place : place + length]
        elif action == 2:
            data[place : place + length] = bytes(chance.randrange(256) for _ in range(length))
        elif action == 3:
            data[place] ^= 1 << chance.randrange(8)
        elif action == 4:
            data[place:place] = data[place : place + length]
        elif action == 5:
            data[place:place] = chance.choice(TOKENS)
        else:
            token = chance.choice(TOKENS)
            data[place : place + len(token)] = token
    return bytes(data)


def mutate_nsys(chance: random.Random, path: Path) -> None:
    """Write a damaged Nsight export in SQLite to ``path``."""
    path.unlink(missing_ok=True)
    nsys_export(chance.choice((1, 3, 3))).sqlite(path)
    if chance.random() < 0.8:
        connection = sqlite3.connect(path)
        for _ in range(chance.choice((1, 1, 2, 4))):
            _mutate_database(connection, chance)
        connection.commit()
        connection.close()
    else:
        path.write_bytes(mutate_bytes(path.read_bytes(), chance))


def _mutate_database(connection: sqlite3.Connection, chance: random.Random) -> None:
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if not tables:
        return
    table = chance.choice(tables)
    columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
    column = chance.choice(columns)
    action = chance.randrange(12)
    if action == 0:
        connection.execute(f'DROP TABLE "{table}"')
    elif action == 1 and len(columns) > 1:
        connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    elif action == 2:
        connection.execute(f'DELETE FROM "{table}" WHERE rowid % ? = 0', (chance.choice((1, 2, 3)),))
    elif action == 3:
        connection.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}"')
    elif action == 4:
        connection.execute(f'UPDATE "{table}" SET "{column}" = ?', (_cell(chance),))
    elif action == 5:
        connection.execute(f'ALTER TABLE "{table}" RENAME TO "{table}_V2"')
    else:
        row = chance.randrange(1, 8)
        connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (_cell(chance), row))


def _cell(chance: random.Random) -> Any:
    value = chance.choice(HOSTILE_VALUES)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return 2**63 - 1
    if isinstance(value, list | dict):
        return b"\xff\x00\xfe"
    return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if isinstance(value, str) else value
