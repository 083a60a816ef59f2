"""Take everything private out of an Nsight Systems export.

A report stores the environment and command line of the profiled program, what it printed, and the names of every
process and thread of the machine. The export keeps what it needs and nothing else: strings are kept only where a
remaining row refers to them, since the environment sits in the string table even when the table that points to it
is empty.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

_EMPTIED = ("ANALYSIS_FILE", "ProcessStreams", "PROCESSES", "TARGET_INFO_NIC_INFO", "TARGET_INFO_NETWORK_DEVICES")
_KEPT_FACTS = ("CpuCores", "CpuArchitecture", "CpuDescription", "NvDriverVersion")
# Columns that refer to the string table; an id column of another kind may hold an equal number.
_STRING_COLUMNS = {
    "nameId", "textId", "jsonTextId", "demangledName", "shortName", "mangledName", "symbol", "module",
    "unresolvedSymbol", "name",
}  # fmt: skip
_PROCESS_MASK = ~0xFFFFFF  # a globalTid without its low 24 bits (the thread) is its globalPid
_PATH = re.compile(r"(?<![\w/])/[^\s,;]+")
_PRIVATE_KEY = re.compile(r"HOST|USER|DISPLAY_NAME|ENV|COMMAND|ARG|PATH|DIR|FILE", re.IGNORECASE)
_THREADED = (
    "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "OSRT_API", "SCHED_EVENTS", "COMPOSITE_EVENTS",
)  # fmt: skip


def clean_export(path: Path) -> None:
    """Remove what is private from an SQLite export, in place.

    Args:
        path: The export.
    """
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in _EMPTIED:
            if table in tables:
                database.execute(f'DELETE FROM "{table}"')
        _clean_facts(database, tables)
        _keep_threads_with_events(database, tables)
        _keep_referenced_strings(database, tables)
        database.commit()
        database.execute("VACUUM")


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]


def _clean_facts(database: sqlite3.Connection, tables: list[str]) -> None:
    if "TARGET_INFO_SYSTEM_ENV" in tables:
        marks = ",".join("?" * len(_KEPT_FACTS))
        database.execute(f"DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE name NOT IN ({marks})", _KEPT_FACTS)
    for table in ("META_DATA_CAPTURE", "META_DATA_EXPORT"):
        if table in tables:
            for rowid, name, value in database.execute(f"SELECT rowid, name, value FROM {table}").fetchall():
                if _PRIVATE_KEY.search(name) or "/" in str(value):
                    database.execute(f"UPDATE {table} SET value = '' WHERE rowid = ?", (rowid,))
    if "DIAGNOSTIC_EVENT" in tables:
        for rowid, text in database.execute("SELECT rowid, text FROM DIAGNOSTIC_EVENT").fetchall():
            if text and "/" in text:
                database.execute("UPDATE DIAGNOSTIC_EVENT SET text = ? WHERE rowid = ?", (_PATH.sub("…", text), rowid))
    if "TARGET_INFO_GPU" in tables and "uuid" in _columns(database, "TARGET_INFO_GPU"):
        database.execute("UPDATE TARGET_INFO_GPU SET uuid = ''")


def _keep_threads_with_events(database: sqlite3.Connection, tables: list[str]) -> None:
    """Drop the names of threads that belong to no recorded process."""
    if "ThreadNames" not in tables:
        return
    processes: set[int] = set()
    for table in _THREADED:
        if table in tables and "globalTid" in _columns(database, table):
            processes |= {
                tid & _PROCESS_MASK for (tid,) in database.execute(f'SELECT DISTINCT globalTid FROM "{table}"') if tid
            }
    for rowid, tid in database.execute("SELECT rowid, globalTid FROM ThreadNames").fetchall():
        if tid is None or tid & _PROCESS_MASK not in processes:
            database.execute("DELETE FROM ThreadNames WHERE rowid = ?", (rowid,))


def _keep_referenced_strings(database: sqlite3.Connection, tables: list[str]) -> None:
    if "StringIds" not in tables:
        return
    used: set[int] = set()
    for table in tables:
        if table == "StringIds" or table.startswith("ENUM_"):
            continue
        for column in _columns(database, table):
            if column in _STRING_COLUMNS:
                found = database.execute(f'SELECT DISTINCT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL')
                used |= {value for (value,) in found if isinstance(value, int)}
    stale = [(key,) for (key,) in database.execute("SELECT id FROM StringIds").fetchall() if key not in used]
    database.executemany("DELETE FROM StringIds WHERE id = ?", stale)
