"""Exports of every year, format and state of damage give the same answer or one clear line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

from tests.readers.nsys_exports import MAIN, Export, as_values, small_export, texts
from traceanalyzer.errors import TraceFormatError
from traceanalyzer.model.schema import ActivityKind
from traceanalyzer.model.trace import Trace
from traceanalyzer.readers import nsys_arrow, nsys_sqlite


def read(export: Export, folder: Path) -> Trace:
    (trace,) = nsys_sqlite.read(export.sqlite(folder / "export.sqlite")).traces
    return trace


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_every_format_gives_the_same_trace(tmp_path: Path, kind: str) -> None:
    export = small_export()
    database = nsys_sqlite.read(export.sqlite(tmp_path / "a.sqlite"))
    folder = export.folder(tmp_path / "folder", kind)
    assert nsys_arrow.sniff(folder, b"")
    assert as_values(nsys_arrow.read(folder)) == as_values(database)


@pytest.mark.parametrize(("suffix", "opener"), [("gz", gzip.open), ("xz", lzma.open), ("bz2", bz2.open)])
def test_compressed_databases_are_read_under_any_name(tmp_path: Path, suffix: str, opener: object) -> None:
    plain = small_export().sqlite(tmp_path / "plain")
    packed = tmp_path / "meaningless.bin"
    with opener(packed, "wb") as file:  # type: ignore[operator]
        file.write(plain.read_bytes())
    assert as_values(nsys_sqlite.read(packed)) == as_values(nsys_sqlite.read(plain))


def test_the_first_schema_without_metadata_enums_or_text_ids_is_read(tmp_path: Path) -> None:
    export = Export()
    export.kernel("k(int)", 3000, 3600, call=(2600, 2700))
    export.add("NVTX_EVENTS", start=1000, end=9000, eventType=59, text="step", globalTid=MAIN)
    trace = read(export, tmp_path)
    assert texts(trace, trace.slices.name) == ["step"]
    assert trace.origin_ns == 0
    assert texts(trace, trace.activities.name) == ["k(int)"]


@pytest.mark.parametrize("table", ["NVTX_EVENTS_V2", "NVTX_EVENTS_V3"])
def test_ranges_in_renamed_tables_are_found(tmp_path: Path, table: str) -> None:
    export = small_export()
    export.tables[table] = export.tables.pop("NVTX_EVENTS")
    trace = read(export, tmp_path)
    assert texts(trace, trace.slices.name) == ["step", "forward"]


def test_bad_times_are_left_out_and_counted_by_reason(tmp_path: Path) -> None:
    export = small_export()
    for start, end in ((4000, None), (4000, 3990), (0, 0), (0, 9000), (4000, 9_000_000), (-5, 2**63 - 1)):
        export.kernel("bad", start, end)
    trace = read(export, tmp_path)
    assert len(trace.activities) == 3
    counts = {reason: dropped.count for reason, dropped in trace.integrity.dropped.items()}
    assert counts == {
        "kernels without an end": 1,
        "kernels that end before they start": 1,
        "kernels whose time was never taken (start 0)": 2,
        "kernels longer than the capture (20.0 µs)": 2,
    }


def test_a_recording_whose_first_kernel_starts_at_zero_keeps_it(tmp_path: Path) -> None:
    export = Export()
    export.kernel("a", 0, 1000)
    export.kernel("b", 1010, 2000)
    assert len(read(export, tmp_path).activities) == 2


def test_dangling_string_ids_are_named_and_noted(tmp_path: Path) -> None:
    export = small_export()
    export.kernel("x", 7000, 7100, demangledName=9999, shortName=9999)
    trace = read(export, tmp_path)
    assert texts(trace, trace.activities.name)[-1] == "<unknown string 9999>"
    assert any("StringIds does not hold" in note for note in trace.integrity.notes)


def test_a_dangling_full_name_falls_back_to_the_short_one(tmp_path: Path) -> None:
    export = small_export()
    export.kernel("relu(int)", 7000, 7100, demangledName=9999)
    trace = read(export, tmp_path)
    assert texts(trace, trace.activities.name)[-1] == "relu"


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "end"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId"),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"),
        ("NVTX_EVENTS", "eventType"),
    ],
)
def test_a_renamed_needed_column_is_an_error_that_names_it(tmp_path: Path, table: str, column: str) -> None:
    export = small_export()
    for row in export.tables[table]:
        row[column + "Renamed"] = row.pop(column)
    with pytest.raises(TraceFormatError, match=rf"{table}: the needed column {column} is absent"):
        read(export, tmp_path)


def test_without_a_kernel_table_the_launches_are_counted_and_idle_is_not_judged(tmp_path: Path) -> None:
    export = small_export()
    del export.tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    trace = read(export, tmp_path)
    assert trace.activities.kind.tolist() == [ActivityKind.COPY]
    assert any("2 kernel launches are recorded but not one kernel" in note for note in trace.integrity.notes)
    assert any("kernels (--trace=cuda)" in note for note in trace.integrity.notes)


def test_missing_tables_are_named_with_the_option_that_records_them(tmp_path: Path) -> None:
    (note,) = [n for n in read(small_export(), tmp_path).integrity.notes if n.startswith("Not in the recording")]
    assert note == (
        "Not in the recording: OS calls (--trace=osrt), thread scheduling (--cpuctxsw=process-tree), "
        "device memory usage (--cuda-memory-usage=true)."
    )


def test_environment_command_lines_users_and_hosts_never_reach_the_trace(tmp_path: Path) -> None:
    export = small_export()
    for name in ("Hostname", "ENVIRONMENT", "NvDriverVersion"):
        export.add("TARGET_INFO_SYSTEM_ENV", name=name, value="SECRET" if name != "NvDriverVersion" else "580.1")
    for name in ("PROCESS_0:USER_NAME", "PROCESS_0:ENVIRONMENT_VARIABLES", "PROCESS_0:ARGUMENTS", "EXPORT_HOST"):
        export.add("META_DATA_CAPTURE", name=name, value="SECRET")
    trace = read(export, tmp_path)
    assert trace.metadata["driver"] == "580.1"
    everything = f"{trace.metadata} {trace.integrity} {list(trace.names)} {trace.threads}"
    assert "SECRET" not in everything


@pytest.mark.parametrize("content", [b"", b"just some text\n" * 100])
def test_a_file_that_is_no_database_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "export.sqlite"
    path.write_bytes(content)
    with pytest.raises(TraceFormatError, match=r"the file is empty|not an SQLite database") as caught:
        nsys_sqlite.read(path)
    assert "\n" not in str(caught.value)


def test_half_a_database_is_one_clear_line(tmp_path: Path) -> None:
    export = small_export()
    for i in range(3000):
        export.kernel(f"kernel {i}", 7000 + i, 7001 + i)
    whole = export.sqlite(tmp_path / "whole.sqlite").read_bytes()
    half = tmp_path / "half.sqlite"
    half.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceFormatError, match=r"half\.sqlite") as caught:
        nsys_sqlite.read(half)
    assert "\n" not in str(caught.value)


def test_half_a_compressed_database_is_one_clear_line(tmp_path: Path) -> None:
    packed = gzip.compress(small_export().sqlite(tmp_path / "a.sqlite").read_bytes())
    path = tmp_path / "half.sqlite.gz"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(TraceFormatError, match="the gzip data is cut off"):
        nsys_sqlite.read(path)


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    folder = small_export().folder(tmp_path / "export", "parquet")
    kernel = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    kernel.write_bytes(kernel.read_bytes()[:100])
    with pytest.raises(TraceFormatError, match=r"CUPTI_ACTIVITY_KIND_KERNEL\.parquet"):
        nsys_arrow.read(folder)


def test_half_an_arrow_file_is_named(tmp_path: Path) -> None:
    folder = small_export().folder(tmp_path / "export", "arrow")
    kernel = folder / "CUPTI_ACTIVITY_KIND_KERNEL.arrow"
    kernel.write_bytes(kernel.read_bytes()[:700])
    with pytest.raises(TraceFormatError, match=r"CUPTI_ACTIVITY_KIND_KERNEL\.arrow"):
        nsys_arrow.read(folder)


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE people (id INTEGER)")
    connection.close()
    with pytest.raises(TraceFormatError, match="none of the tables of an Nsight Systems export"):
        nsys_sqlite.read(path)


def test_an_export_that_recorded_nothing_is_an_error_not_an_empty_result(tmp_path: Path) -> None:
    export = Export()
    export.string("only a string")
    with pytest.raises(TraceFormatError, match="holds no kernel, call, range or OS-call rows"):
        read(export, tmp_path)


def test_a_database_another_program_holds_locked_is_read(tmp_path: Path) -> None:
    path = small_export().sqlite(tmp_path / "locked.sqlite")
    holder = sqlite3.connect(path, isolation_level=None)
    try:
        holder.execute("BEGIN EXCLUSIVE")
        assert len(nsys_sqlite.read(path).traces[0].activities) == 3
    finally:
        holder.close()


def test_a_read_only_database_in_a_read_only_folder_is_read_and_nothing_is_left_behind(tmp_path: Path) -> None:
    folder = tmp_path / "folder with ?odd# name%20"
    folder.mkdir()
    path = small_export().sqlite(folder / "a b.sqlite")
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        assert len(nsys_sqlite.read(path).traces[0].activities) == 3
        assert list(folder.iterdir()) == [path]
    finally:
        folder.chmod(0o755)


def test_text_where_numbers_belong_names_the_column(tmp_path: Path) -> None:
    export = small_export()
    for row in export.tables["CUPTI_ACTIVITY_KIND_MEMCPY"]:
        row["bytes"] = "many"
    with pytest.raises(TraceFormatError, match="CUPTI_ACTIVITY_KIND_MEMCPY: column 'bytes' holds values"):
        read(export, tmp_path)


@pytest.mark.parametrize("value", [[[1]], [], {"a": 1}])
def test_lists_where_text_belongs_name_the_column(tmp_path: Path, value: object) -> None:
    folder = small_export().folder(tmp_path / "export", "parquet")
    path = folder / "StringIds.parquet"
    table = pyarrow.parquet.read_table(path)
    lists = pa.array([value] * len(table))
    pyarrow.parquet.write_table(table.set_column(table.column_names.index("value"), "value", lists), path)
    with pytest.raises(TraceFormatError, match="StringIds: column 'value' holds values that are no text"):
        nsys_arrow.read(folder)


def test_the_database_is_recognised_by_content_not_by_name(tmp_path: Path) -> None:
    path = small_export().sqlite(tmp_path / "whatever.bin")
    assert nsys_sqlite.sniff(path, path.read_bytes()[:65536])
    assert not nsys_sqlite.sniff(tmp_path / "a.sqlite", b'{"traceEvents": []}')


def test_an_arrow_file_whose_text_lies_outside_it_is_named(tmp_path: Path) -> None:
    folder = small_export().folder(tmp_path / "export", "arrow")
    strings = folder / "StringIds.arrow"
    with pa.ipc.open_stream(strings) as stream:
        (text,) = stream.read_all().column("value").chunks
    offsets = text.buffers()[1].to_pybytes()
    wrong = offsets[:4] + (1 << 30).to_bytes(4, "little") + offsets[8:]
    whole = strings.read_bytes()
    assert whole.count(offsets) == 1
    strings.write_bytes(whole.replace(offsets, wrong))
    with pytest.raises(TraceFormatError, match=r"StringIds\.arrow.*cannot be read") as caught:
        nsys_arrow.read(folder)
    assert "\n" not in str(caught.value)


def test_wrong_text_in_an_arrow_file_is_shown_and_refuses_nothing(tmp_path: Path) -> None:
    export = small_export()
    export.kernel("caf_", 7000, 7001)
    folder = export.folder(tmp_path / "export", "arrow")
    strings = folder / "StringIds.arrow"
    strings.write_bytes(strings.read_bytes().replace(b"caf_", b"caf\xe9"))
    (trace,) = nsys_arrow.read(folder).traces
    assert "caf�" in trace.names


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_column_name_that_is_no_text_is_one_clear_line(tmp_path: Path, kind: str) -> None:
    folder = small_export().folder(tmp_path / "export", kind)
    file = folder / f"StringIds.{kind}"
    file.write_bytes(file.read_bytes().replace(b"value", b"val\xe9e"))
    with pytest.raises(TraceFormatError, match=rf"StringIds\.{kind}") as caught:
        nsys_arrow.read(folder)
    assert "\n" not in str(caught.value)
