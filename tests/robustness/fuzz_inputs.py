"""Inputs damaged by chance, of every kind a user may name: each is made from its number alone."""

from __future__ import annotations

import copy
import functools
import gzip
import json
import lzma
import os
import pickle
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

import traceanalyzer
from tests.parsers import make_recording
from tests.readers.nsys_exports import Export
from tests.robustness.mutation import HOSTILE_VALUES, mutate_bytes, mutate_kineto, mutate_nsys
from tests.robustness.recordings import kineto_document, kineto_events, nsys_export, write_kineto
from tests.shared_data import ROOT
from tests.snapshots import MIB, History, block, segment, snapshot

ORIGIN_NS = 1_796_072_613_000_000_000
WITNESS = "executed"  # a folder that appears beside an input when a pickle runs what it asks for


@dataclass(frozen=True)
class Made:
    """An input on disk.

    Attributes:
        names: What is named on the command line.
        files: What it consists of.
        size_bytes: Its size, unpacked where it is compressed and sound.
    """

    names: tuple[Path, ...]
    files: tuple[Path, ...]
    size_bytes: int


def _made(*names: Path, unpacked: int = 0) -> Made:
    files = [file for name in names for file in ([name] if not name.is_dir() else sorted(name.rglob("*")))]
    return Made(names, tuple(files), max(unpacked, sum(file.stat().st_size for file in files if file.is_file())))


def kineto(chance: random.Random, folder: Path) -> Made:
    """A Kineto file with unusual members, damaged structure or damaged bytes."""
    path = folder / "input.json"
    path.write_bytes(make_recording(chance, steps=chance.choice((1, 1, 1, 2))))
    return _made(path)


def compressed_kineto(chance: random.Random, folder: Path) -> Made:
    """A Kineto file, perhaps damaged, in gzip (one member or several) or xz, whose bytes are then mostly damaged."""
    path = folder / "input.json.gz"
    text = make_recording(chance, steps=1)
    if chance.random() < 0.6:
        text = json.dumps(kineto_document(kineto_events(1))).encode()
    how = chance.random()
    if how < 0.15:
        packed = lzma.compress(text, preset=0)
    elif how < 0.35:
        place = chance.randrange(len(text) + 1)
        packed = gzip.compress(text[:place], 1, mtime=0) + gzip.compress(text[place:], 1, mtime=0)
    else:
        packed = gzip.compress(text, chance.choice((0, 1, 9)), mtime=0)
    path.write_bytes(mutate_bytes(packed, chance) if chance.random() < 0.8 else packed)
    return _made(path, unpacked=len(text))


def damaged_kineto(chance: random.Random, folder: Path) -> Made:
    """A Kineto file damaged in structure, bytes or both, now and then compressed."""
    path = folder / "input.json"
    path.write_bytes(mutate_kineto(chance, steps=chance.choice((1, 2, 4))))
    return _made(path)


def nsys_database(chance: random.Random, folder: Path) -> Made:
    """An Nsight export in SQLite with damaged tables, cells, schema or bytes."""
    path = folder / "input.sqlite"
    mutate_nsys(chance, path)
    if chance.random() < 0.05:
        packed = gzip.compress(path.read_bytes(), 1, mtime=0)
        path.write_bytes(mutate_bytes(packed, chance) if chance.random() < 0.5 else packed)
    return _made(path)


def nsys_folder(chance: random.Random, folder: Path) -> Made:
    """An Nsight export as a folder of Parquet or Arrow files with damaged tables, cells, types or bytes."""
    export = copy.deepcopy(_export(chance.choice((1, 2))))
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        _mutate_tables(export, chance)
    kind = chance.choice(("parquet", "arrow"))
    path = folder / f"input.{kind}dir"
    path.mkdir()
    for table, rows in {"StringIds": _strings(export), **export.tables}.items():
        name = path / f"{table}.{kind}"
        data = _columns(rows, chance)
        try:
            if kind == "parquet":
                pyarrow.parquet.write_table(data, name)
            else:
                with pa.ipc.new_stream(name, data.schema) as writer:
                    writer.write_table(data)
        except pa.ArrowException:
            name.write_bytes(b"")  # the format cannot hold these columns
    if chance.random() < 0.15:
        damaged = chance.choice(sorted(path.iterdir()))
        damaged.write_bytes(mutate_bytes(damaged.read_bytes(), chance))
    return _made(path)


def memory_snapshot(chance: random.Random, folder: Path) -> Made:
    """A pickled memory snapshot of any protocol, damaged in structure or bytes, or one that tries to run something."""
    history = History()
    for at in range(chance.choice((0, 2, 8))):
        history.add(10 * at, "alloc", 0x7000000 + MIB * at, MIB, chance.choice(("forward", "backward")))
        if chance.random() < 0.5:
            history.free(10 * at + 5, 0x7000000 + MIB * at, MIB)
    parts = [block(MIB, function="forward"), block(MIB, "inactive"), block(2 * MIB, "active_pending_free")]
    document: Any = snapshot([segment(0x7000000, parts), segment(0x9000000, [block(4 * MIB)], device=1)], history)
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        document = mutate_tree(document, chance)
    if chance.random() < 0.1:
        document = {"segments": [document, _Trap(str(folder / WITNESS))], "device_traces": []}
    data = pickle.dumps(document, chance.choice((0, 1, *(2, 3, 4, 5) * 4)))
    if chance.random() < 0.3:
        data = mutate_bytes(data, chance)
    path = folder / "input.pickle"
    if chance.random() < 0.15:
        packed = gzip.compress(data, 1, mtime=0)
        path.write_bytes(mutate_bytes(packed, chance) if chance.random() < 0.5 else packed)
    else:
        path.write_bytes(data)
    return _made(path, unpacked=len(data))


def run_folder(chance: random.Random, folder: Path) -> Made:
    """A run folder: a sound recording under a damaged ``run.json``."""
    path = folder / "run"
    path.mkdir()
    write_kineto(path / "a.json", kineto_events(2), baseTimeNanoseconds=ORIGIN_NS)
    document = copy.deepcopy(_run_document(chance.randrange(len(RUNS))))
    document["recordings"] = [{**document["recordings"][0], "file": "a.json"}]
    if chance.random() < 0.3:
        (path / "gpu.csv").write_text(_query_samples(chance))
        document["files"] = {"gpu_samples": "gpu.csv"}
    if chance.random() < 0.2:
        (path / "m.pickle").write_bytes(pickle.dumps(snapshot([segment(0x7000000, [block(MIB)])])))
        document["files"] = {**document["files"], "memory_snapshot": "m.pickle"}
    for _ in range(chance.choice((1, 1, 2, 4, 12))):
        mutated = mutate_tree(document, chance)
        document = mutated if isinstance(mutated, dict) or chance.random() < 0.1 else document
    text = json.dumps(document).encode("utf-8", "surrogatepass")
    (path / "run.json").write_bytes(mutate_bytes(text, chance) if chance.random() < 0.1 else text)
    return _made(path)


def gpu_samples(chance: random.Random, folder: Path) -> Made:
    """A sound recording and, beside it, damaged samples of nvidia-smi (a query, or dmon)."""
    recording = write_kineto(folder / "input.json", kineto_events(1), baseTimeNanoseconds=ORIGIN_NS)
    text = _query_samples(chance) if chance.random() < 0.6 else _dmon_samples(chance)
    lines = text.split("\n")
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        place = chance.randrange(len(lines))
        cells = lines[place].split(",") if "," in lines[place] else lines[place].split()
        if cells:
            value = chance.choice((*HOSTILE_VALUES, "[N/A]", "-", "99999999999999999999 %", "25:61:61", "1e999 W"))
            cells[chance.randrange(len(cells))] = str(value)
            lines[place] = (", " if "," in lines[place] else "  ").join(cells)
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    if chance.random() < 0.3:
        data = mutate_bytes(data, chance)
    if chance.random() < 0.1:
        data = b"\xff\xfe" + data.decode("utf-8", "replace").encode("utf-16-le")
    samples = folder / "gpu.csv"
    samples.write_bytes(data)
    return _made(recording, samples)


def document(chance: random.Random, folder: Path) -> Made:
    """A damaged Analysis in JSON, as ``analyze --json`` writes it."""
    path = folder / "input.json"
    tree = json.loads(_analysis())
    for _ in range(chance.choice((1, 1, 2, 4))):
        mutated = mutate_tree(tree, chance)
        tree = mutated if isinstance(mutated, dict) else tree
    text = json.dumps(tree).encode("utf-8", "surrogatepass")
    path.write_bytes(mutate_bytes(text, chance) if chance.random() < 0.3 else text)
    return _made(path)


def mutate_tree(tree: Any, chance: random.Random) -> Any:
    """Return a tree of dicts and lists with one place replaced, removed, doubled or moved."""
    path: list[tuple[Any, Any]] = []
    at = tree
    while isinstance(at, dict | list) and at and (not path or chance.random() < 0.88):
        key = chance.choice(list(at)) if isinstance(at, dict) else chance.randrange(len(at))
        path.append((at, key))
        at = at[key]
    if not path or chance.random() < 0.01:
        return chance.choice(HOSTILE_VALUES)
    holder, key = path[-1]
    action = chance.randrange(6)
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, list):
        holder.insert(chance.randrange(len(holder)), copy.deepcopy(at))
    elif action == 2 and isinstance(at, int | float):
        holder[key] = at * chance.choice((-1, 1000, 10**6, 0.5)) if not isinstance(at, bool) else "yes"
    elif action == 3:
        other, place = chance.choice(path)
        holder[key] = copy.deepcopy(other[place]) if len(path) < 6 else None
    else:
        holder[key] = copy.deepcopy(chance.choice(HOSTILE_VALUES))
    return tree


class _Trap:
    """Makes a folder when it is unpickled by a loader that allows it."""

    def __init__(self, witness: str) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (self.witness,)


RUNS = ("good", "no-persistence", "heavy-mosaic")


@functools.cache
def _run_document(number: int) -> dict[str, Any]:
    text = (ROOT / "sample_traces/labelled" / RUNS[number] / "run.json").read_text()
    document: dict[str, Any] = json.loads(text)
    return document


@functools.cache
def _export(steps: int) -> Export:
    return nsys_export(steps)


@functools.cache
def _analysis() -> str:
    folder = Path(os.environ.get("TMPDIR", "/tmp"), f"fuzzed-{os.getpid()}")
    folder.mkdir()
    try:
        text = traceanalyzer.analyze(write_kineto(folder / "sound.json")).to_json()
    finally:
        shutil.rmtree(folder)
    return text.decode() if isinstance(text, bytes) else text


def _strings(export: Export) -> list[dict[str, Any]]:
    return [{"id": number, "value": text} for text, number in export.strings.items()]


def _mutate_tables(export: Export, chance: random.Random) -> None:
    table = chance.choice(sorted(export.tables))
    rows = export.tables[table]
    column = chance.choice(sorted({name for row in rows for name in row}) or ["id"])
    action = chance.randrange(8)
    if action == 0:
        del export.tables[table]
    elif action == 1:
        for row in rows:
            row.pop(column, None)
    elif action == 2:
        export.tables[table] = rows[:: chance.choice((2, 3))]
    elif action == 3:
        export.tables[table] = rows * 2
    elif action == 4:
        value = chance.choice(HOSTILE_VALUES)
        for row in rows:
            row[column] = value
    elif action == 5:
        export.tables[f"{table}_V2"] = export.tables.pop(table)
    elif rows:
        chance.choice(rows)[column] = chance.choice(HOSTILE_VALUES)
    if len(export.tables) < 2:
        export.tables.setdefault("NVTX_EVENTS", [])


def _columns(rows: list[dict[str, Any]], chance: random.Random) -> pa.Table:
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        odd = chance.random() < 0.02
        columns[name] = _array(values, pa.float64() if odd else None)
    return pa.table(columns)


def _array(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """As the values' own type where they have one; else as 64-bit integers or text with what fits."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        numbers = [v if type(v) is int and -(2**63) <= v < 2**63 else None for v in values]
        if 2 * (len(values) - numbers.count(None)) >= len(values):
            return pa.array(numbers, pa.int64())
        return pa.array([None if v is None else str(v).encode("utf-8", "replace") for v in values], pa.large_binary())


def _query_samples(chance: random.Random) -> str:
    lines = ["timestamp, index, utilization.gpu [%], memory.used [MiB], clocks.sm [MHz], power.draw [W], pstate"]
    for second in range(chance.choice((1, 4, 9))):
        stamp = f"2026/11/30 {21 - chance.choice((0, 0, 0, 5))}:03:{31 + second:02d}.{chance.randrange(1000):03d}"
        lines.append(f"{stamp}, {second % 2}, {chance.randrange(101)} %, 2048 MiB, 1980 MHz, 210.55 W, P0")
    return "\n".join(lines) + "\n"


def _dmon_samples(chance: random.Random) -> str:
    lines = [
        "#Date       Time        gpu    pwr  gtemp     sm    mem",
        "#YYYYMMDD   HH:MM:SS    Idx      W      C      %      %",
    ]
    lines += [
        f" 20261130   21:03:{31 + s:02d}      0    210     40     {chance.randrange(101)}      9" for s in range(6)
    ]
    return "\n".join(lines) + "\n"
