"""The tables of an Nsight Systems export, whichever of its file formats they are stored in.

Three sources offer the same three questions (which tables, which columns, give me these columns), so everything
after them is one path and cannot differ between formats. Values arrive as Arrow columns; ``RawTable`` turns them into
numpy without a Python object per row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import adbc_driver_manager
import adbc_driver_sqlite
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet

from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.schema import IntArray

# Rows per Arrow batch. The driver infers a column's type from the first batch, so a large one also keeps a column
# that starts with NULLs from being guessed.
_BATCH_ROWS = 65_536

RE_EXPORT = "export the recording again with `nsys export --type sqlite --force-overwrite true FILE.nsys-rep`"


class TableSource(Protocol):
    """Where the tables of one export come from."""

    path: str
    """The input as the user named it."""

    def tables(self) -> frozenset[str]:
        """Names of the tables present."""

    def columns(self, table: str) -> tuple[str, ...]:
        """Column names of a table that is present."""

    def fetch(self, table: str, columns: Sequence[str]) -> Any:
        """Read columns of a table as a ``pyarrow.Table``; may be called from several threads at once.

        Raises:
            TraceFormatError: The table cannot be read.
        """


class SqliteTables:
    """Tables of a ``.sqlite`` export, opened without writing to it or waiting for anyone's lock.

    Args:
        file: The database.
        path: The input as the user named it.

    Raises:
        TraceFormatError: The file is not a readable SQLite database.
    """

    def __init__(self, file: Path, path: str) -> None:
        self.path = path
        # "immutable" ignores other programs' locks and needs no write access to the folder; it would also ignore a
        # write-ahead log, so where one holds rows the file is opened in the ordinary read-only way.
        log = file.with_name(file.name + "-wal")
        mode = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
        self._uri = f"file:{quote(str(file.resolve()))}?{mode}"
        try:
            connection = sqlite3.connect(self._uri, uri=True)
            try:
                names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                self._types = {
                    name: {
                        row[1]: str(row[2]).upper() for row in connection.execute(f"PRAGMA table_info({_quoted(name)})")
                    }
                    for name in names
                }
            finally:
                connection.close()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise TraceFormatError(path, f"not a readable SQLite database ({error})", RE_EXPORT) from None

    def tables(self) -> frozenset[str]:
        """Names of the tables present."""
        return frozenset(self._types)

    def columns(self, table: str) -> tuple[str, ...]:
        """Column names of a table that is present."""
        return tuple(self._types[table])

    def fetch(self, table: str, columns: Sequence[str]) -> Any:
        """Read columns of a table on a connection of its own, so that several threads may read at once."""
        # the driver takes a column whose first batch is all NULL for integers and then trips over text
        types = self._types[table]
        wanted = (f"COALESCE({_quoted(c)}, '')" if types[c] == "TEXT" else _quoted(c) for c in columns)
        query = f"SELECT {', '.join(wanted)} FROM {_quoted(table)}"
        try:
            # the driver's bare interface: its DB-API module imports pandas and polars where they are installed
            with (
                adbc_driver_sqlite.connect(self._uri) as database,
                adbc_driver_manager.AdbcConnection(database) as connection,
                adbc_driver_manager.AdbcStatement(connection) as statement,
            ):
                statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH_ROWS})
                statement.set_sql_query(query)
                stream, _ = statement.execute_query()
                return pa.RecordBatchReader.from_stream(stream).read_all().rename_columns(list(columns))
        except (adbc_driver_manager.Error, pa.ArrowException, UnicodeDecodeError) as error:
            problem = f"the table cannot be read ({_first_line(error)})"
            raise TraceFormatError(self.path, problem, RE_EXPORT, where=table) from None


class ArrowFolderTables:
    """Tables of a ``parquetdir`` or ``arrowdir`` export: one file per table.

    Args:
        folder: The export folder.
        path: The input as the user named it.
    """

    def __init__(self, folder: Path, path: str) -> None:
        self.path = path
        self._files = {
            file.stem: file for suffix in (".arrow", ".parquet") for file in sorted(folder.glob(f"*{suffix}"))
        }
        self._schemas: dict[str, tuple[str, ...]] = {}

    def tables(self) -> frozenset[str]:
        """Names of the tables present."""
        return frozenset(self._files)

    def columns(self, table: str) -> tuple[str, ...]:
        """Column names of a table that is present."""
        if table not in self._schemas:
            file = self._files[table]
            try:
                if file.suffix == ".parquet":
                    names = pyarrow.parquet.read_schema(file).names
                else:
                    with pa.memory_map(str(file)) as source:
                        names = pyarrow.ipc.open_stream(source).schema.names
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise self._unreadable(file, error) from None
            self._schemas[table] = tuple(names)
        return self._schemas[table]

    def fetch(self, table: str, columns: Sequence[str]) -> Any:
        """Read columns of a table."""
        file = self._files[table]
        try:
            if file.suffix == ".parquet":
                # not read_table: it goes through pyarrow.dataset, which takes long to import
                with pyarrow.parquet.ParquetFile(file, memory_map=True) as parquet:
                    return parquet.read(columns=list(columns))
            with pa.memory_map(str(file)) as source:
                # the map is closed on return, so the batches kept are copied out of it column by column
                batches = [_sound(batch.select(list(columns))) for batch in pyarrow.ipc.open_stream(source)]
                schema = pyarrow.ipc.open_stream(file.read_bytes()).schema if not batches else batches[0].schema
                return pa.Table.from_batches(batches, schema).combine_chunks() if batches else schema.empty_table()
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(file, error) from None

    def _unreadable(self, file: Path, error: Exception) -> TraceFormatError:
        problem = f"the file cannot be read ({_first_line(error)})"
        return TraceFormatError(self.path, problem, RE_EXPORT.replace("sqlite", "parquetdir"), where=file.name)


def _sound(batch: Any) -> Any:
    """Check every offset of a batch: Arrow maps what the file says into memory as it is, and would read beyond it.

    Text stays bytes, because a wrong one among them is shown as it is and no reason to refuse the table.

    Raises:
        pyarrow.ArrowInvalid: The batch points outside itself.
    """
    bare = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
    columns = [column.view(bare[column.type]) if column.type in bare else column for column in batch.columns]
    batch = pa.RecordBatch.from_arrays(columns, batch.schema.names)
    batch.validate(full=True)
    return batch


@dataclass(frozen=True, slots=True)
class RawTable:
    """Columns of one table as read, with conversions to numpy.

    Attributes:
        path: The input as the user named it.
        name: Table name in the export.
        data: The ``pyarrow.Table``.
    """

    path: str
    name: str
    data: Any

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def has(self, column: str) -> bool:
        """Whether the column exists in this export."""
        return column in self.data.column_names

    def nulls(self, column: str) -> npt.NDArray[np.bool_] | None:
        """Mask of missing values, or None where every value is present (also when the column is absent)."""
        if not self.has(column) or not self.data[column].null_count:
            return None
        return _values(pc.is_null(self.data[column]).cast(pa.uint8()), np.uint8).astype(np.bool_)

    def integers(self, column: str, default: int = -1) -> IntArray:
        """Return a column as int64, with ``default`` for missing values and for an absent column.

        Unsigned 64-bit values above the signed range keep their bit pattern.

        Raises:
            TraceFormatError: The column holds something that is not an integer.
        """
        if not self.has(column):
            return np.full(len(self), default, dtype=np.int64)
        values = self.data[column]
        try:
            if pa.types.is_null(values.type):
                return np.full(len(self), default, dtype=np.int64)
            if values.type != pa.int64():
                values = values.cast(pa.int64(), safe=not pa.types.is_unsigned_integer(values.type))
            if values.null_count:
                values = pc.fill_null(values, _scalar(default))
        except pa.ArrowException as error:
            problem = f"column {column!r} holds values that are not integers ({_first_line(error)})"
            raise TraceFormatError(self.path, problem, RE_EXPORT, where=self.name) from None
        return _values(values, np.int64)

    def texts(self, column: str) -> tuple[IntArray, list[str]]:
        """Return a text column as codes into its distinct values; -1 where a value is missing or empty.

        Raises:
            TraceFormatError: The column holds something that has no text, such as lists.
        """
        if not len(self) or not self.has(column) or pa.types.is_null(self.data[column].type):
            return np.full(len(self), -1, dtype=np.int64), []
        values = self.data[column]
        kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
        if not any(is_kind(values.type) for is_kind in kinds):
            try:
                values = values.cast(pa.large_string())
            except pa.ArrowException as error:
                problem = f"column {column!r} holds values that are no text ({_first_line(error)})"
                raise TraceFormatError(self.path, problem, RE_EXPORT, where=self.name) from None
        encoded = pc.dictionary_encode(values).combine_chunks()
        codes = _values(pc.fill_null(encoded.indices.cast(pa.int64()), _scalar(-1)), np.int64)
        raw = encoded.dictionary.cast(pa.large_binary()).to_pylist()
        texts = [value.decode("utf-8", "replace") for value in raw]
        if "" in texts:
            codes = np.where(codes == texts.index(""), -1, codes)
        return codes, texts

    def keep(self, mask: npt.NDArray[np.bool_]) -> RawTable:
        """Return the rows a mask selects."""
        return RawTable(self.path, self.name, self.data.filter(_flags(mask)))


def read_table(
    source: TableSource,
    table: str,
    needed: Iterable[str],
    optional: Iterable[str] = (),
    one_of: Sequence[Sequence[str]] = (),
) -> RawTable:
    """Read the columns wanted of a table, as far as this schema version has them.

    Args:
        source: The export.
        table: Table name, which must be present.
        needed: Columns without which the table means nothing.
        optional: Columns some schema versions lack.
        one_of: Groups of which at least one column must exist.

    Raises:
        TraceFormatError: A needed column is absent; the message names it.
    """
    present = source.columns(table)
    for group in [*((name,) for name in needed), *one_of]:
        if not any(name in present for name in group):
            problem = f"the needed column {' or '.join(group)} is absent"
            hint = f"this schema is not known; it has {', '.join(present[:12])}{' …' if len(present) > 12 else ''}"
            raise TraceFormatError(source.path, problem, hint, where=table)
    wanted = [*needed, *(name for group in one_of for name in group), *optional]
    columns = [name for name in dict.fromkeys(wanted) if name in present]
    return RawTable(source.path, table, source.fetch(table, columns))


def _values(column: Any, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """View a column of whole numbers without NULLs, copied only where it has several chunks.

    Arrow's own conversion (``to_numpy``) imports pandas where that is installed, for half a second.
    """
    size = np.dtype(dtype).itemsize
    chunks = [chunk for chunk in getattr(column, "chunks", [column]) if len(chunk)]
    parts = [np.frombuffer(chunk.buffers()[1], dtype, len(chunk), chunk.offset * size) for chunk in chunks]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype), *parts])


def _scalar(value: int) -> Any:
    """Make an int64 scalar out of its bytes, because ``pa.scalar`` imports pandas too."""
    return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(np.int64(value).tobytes())])[0]


def _flags(mask: npt.NDArray[np.bool_]) -> Any:
    """Make a boolean array out of its bits, because ``pa.array`` imports pandas too."""
    bits = np.packbits(mask, bitorder="little").tobytes()
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits)])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
