"""Copies of recordings that are safe to hand on: no names, folders, environment or program output, the same numbers."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from traceanalyzer.errors import TraceFormatError, UsageError
from traceanalyzer.readers import find_reader, kineto, memory_snapshot, nsys_arrow, nsys_rep, nsys_sqlite, run_folder
from traceanalyzer.readers.files import Stream
from traceanalyzer.readers.nsys_facts import KEPT_FACTS, WARNING
from traceanalyzer.readers.nsys_normalise import wanted_columns
from traceanalyzer.readers.nsys_processes import LOADER_WORKER
from traceanalyzer.readers.nsys_tables import ArrowFolderTables, SqliteTables, TableSource
from traceanalyzer.readers.redacted_folder import copy_run, copy_snapshot
from traceanalyzer.results.redaction import Redactor

_LITERAL = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_FACT_TABLES = ("META_DATA_EXPORT", "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV")
_STRING_IDS = ("nameId", "textId", "demangledName", "shortName")
_TEXT_COLUMNS = ("name", "value", "text")
_ROWS = 50_000


def write_redacted_copy(source: Path, target: Path) -> list[str]:
    """Write a copy of a recording that names nobody and analyses to the same numbers.

    Kineto traces keep every event; strings that name people, machines or folders are replaced. Of Nsight exports only
    the tables and columns the analysis reads are copied, so that environment, command lines and program output stay
    behind.

    Args:
        source: A Kineto trace, an Nsight export (SQLite, parquetdir, arrowdir), a memory snapshot, or a run folder with
            such recordings.
        target: The copy; must not exist. A ``.gz`` name compresses it.

    Returns:
        Tables and files that were left behind.

    Raises:
        TraceFormatError: The source is not such a recording.
        UsageError: The target exists.
    """
    if target.exists():
        raise UsageError(f"{target}: exists already; name a new file for the copy")
    if source.is_dir() and target.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"{target}: lies in what is to be redacted; name a place outside {source}")
    try:
        if run_folder.sniff(source):
            return copy_run(source, target, _copy_recording)
        return _copy_recording(source, target, Redactor())
    except BaseException:
        # half a copy might be taken for a whole one
        shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
        raise


def _copy_recording(source: Path, target: Path, redactor: Redactor) -> list[str]:
    reader = find_reader(source)
    if reader is nsys_rep:
        raise TraceFormatError(
            str(source),
            "a .nsys-rep file cannot be redacted: its format is closed, and it holds the whole environment",
            "export it with `nsys export --type sqlite` and redact that",
        )
    if reader is memory_snapshot:
        copy_snapshot(source, target, redactor)
        return []
    if reader is kineto:
        _copy_trace(source, target, redactor)
        return []
    if reader is nsys_sqlite:
        with nsys_sqlite.plain_database(source) as plain:
            return _copy_database(SqliteTables(plain, str(source)), target, redactor)
    if reader is nsys_arrow:
        return _copy_folder(
            ArrowFolderTables(source, str(source)), target, redactor, is_parquet=any(source.glob("*.parquet"))
        )
    raise TraceFormatError(str(source), f"{reader.NAME} recordings cannot be redacted", "export to sqlite first")


def _copy_trace(source: Path, target: Path, redactor: Redactor) -> None:
    redactor.learn([source.name])
    for block in _blocks(source):
        redactor.learn([block.decode("utf-8", "replace").replace("\\\\", "\\").replace("\\/", "/")])
    done: dict[bytes, bytes] = {}

    def replace(match: re.Match[bytes]) -> bytes:
        literal = match.group()
        made = done.get(literal)
        if made is None:
            made = done[literal] = _redacted_literal(literal, redactor)
        return made

    is_compressed = target.suffix == ".gz"
    with target.open("xb") as plain, gzip.GzipFile("", "wb", 6, plain, 0) if is_compressed else plain as file:
        for block in _blocks(source):
            file.write(_LITERAL.sub(replace, block))


def _redacted_literal(literal: bytes, redactor: Redactor) -> bytes:
    try:
        text = json.loads(literal, strict=False)
    except ValueError:  # a broken escape or encoding: replaced as it stands, so that the damage stays what it is
        text = literal[1:-1].decode("utf-8", "surrogateescape")
        made = redactor.text(text)
        return literal if made == text else b'"' + made.encode("utf-8", "surrogateescape") + b'"'
    made = redactor.text(text)
    return literal if made == text else json.dumps(made).encode()


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield the text in pieces that end between lines, where no string can be open; a file of one line is one piece."""
    with Stream(path) as stream:
        waiting: list[bytes] = []
        while block := stream.read():
            cut = block.rfind(b"\n") + 1
            if cut:
                yield b"".join((*waiting, block[:cut]))
                waiting = [block[cut:]]
            else:
                waiting.append(block)
        yield b"".join(waiting)


def _copy_database(source: TableSource, target: Path, redactor: Redactor) -> list[str]:
    if target.suffix == ".gz":
        with tempfile.TemporaryDirectory(prefix="traceanalyzer-") as folder:
            plain = Path(folder) / "copy.sqlite"
            left = _copy_database(source, plain, redactor)
            with plain.open("rb") as file, gzip.GzipFile(target, "wb", 6, mtime=0) as compressed:
                shutil.copyfileobj(file, compressed)
        return left
    connection = sqlite3.connect(target)
    try:
        for name, table in _redacted_tables(source, redactor):
            columns = ", ".join(
                f'"{field.name}" {"TEXT" if field.name in _TEXT_COLUMNS else "INTEGER"}' for field in table.schema
            )
            connection.execute(f'CREATE TABLE "{name}" ({columns})')
            marks = ", ".join("?" * table.num_columns)
            for batch in table.to_batches(max_chunksize=_ROWS):
                rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
                connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
        connection.commit()
    finally:
        connection.close()
    return sorted(source.tables() - set(wanted_columns(source)))


def _copy_folder(source: TableSource, target: Path, redactor: Redactor, *, is_parquet: bool) -> list[str]:
    target.mkdir()
    for name, table in _redacted_tables(source, redactor):
        if is_parquet:
            pyarrow.parquet.write_table(table, target / f"{name}.parquet")
        else:
            with pyarrow.ipc.new_stream(target / f"{name}.arrow", table.schema) as stream:
                stream.write_table(table)
    return sorted(source.tables() - set(wanted_columns(source)))


def _redacted_tables(source: TableSource, redactor: Redactor) -> Iterator[tuple[str, Any]]:
    """Yield the tables the analysis reads, their texts redacted, and of the strings only those that are used."""
    wanted = wanted_columns(source)
    used: set[int] = set()
    tables = {name: source.fetch(name, columns) for name, columns in wanted.items() if name != "StringIds"}
    strings = source.fetch("StringIds", wanted["StringIds"]) if "StringIds" in wanted else None
    for table in (*tables.values(), *([strings] if strings is not None else [])):
        for field in table.schema:
            if not pa.types.is_integer(field.type):
                redactor.learn(_text(value) for value in table[field.name].unique().to_pylist() if value is not None)
    for name, table in tables.items():
        table = _needed_rows(name, table)
        for column in _STRING_IDS:
            if column in table.column_names:
                used |= {value for value in table[column].unique().to_pylist() if isinstance(value, int)}
        yield name, _redacted_table(table, redactor)
    if strings is not None:
        kept = strings.filter(pa.array([value in used for value in strings["id"].to_pylist()], pa.bool_()))
        yield "StringIds", _redacted_table(kept, redactor)


def _needed_rows(name: str, table: Any) -> Any:
    """Leave behind the rows of descriptive tables that tell about the host: variables, commands, other processes."""
    if name in _FACT_TABLES:
        kept = [_text(value) in KEPT_FACTS for value in table["name"].to_pylist()]
    elif name == "PROCESSES":
        kept = [_text(value).startswith(LOADER_WORKER) for value in table["name"].to_pylist()]
    elif name == "DIAGNOSTIC_EVENT":
        kept = [isinstance(value, int) and value >= WARNING for value in table["severity"].to_pylist()]
    else:
        return table
    return table.filter(pa.array(kept, pa.bool_()))


def _redacted_table(table: Any, redactor: Redactor) -> Any:
    for place, field in enumerate(table.schema):
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_null(field.type):
            continue
        values = [None if value is None else redactor.text(_text(value)) for value in table[field.name].to_pylist()]
        table = table.set_column(place, field.name, pa.array(values, pa.large_string()))
    return table


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
