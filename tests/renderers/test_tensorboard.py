"""TensorBoard event files, read back by TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.sample_analysis import sample_analysis
from traceanalyzer import cli
from traceanalyzer.renderers import tensorboard as renderer
from traceanalyzer.results.analysis import Analysis, MemoryCurve

pytest.importorskip("tensorboard")


def with_rank(**changes: object) -> Analysis:
    analysis = sample_analysis()
    [rank] = analysis.ranks[:1]
    return msgspec.structs.replace(analysis, ranks=[msgspec.structs.replace(rank, **changes)])


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path_factory.mktemp("logs")
    for name, content in renderer.render_tensorboard(with_rank()).items():
        (folder / name).write_bytes(content)
    return EventAccumulator(str(folder), size_guidance={"images": 0, "scalars": 0}).Reload()


def values(events, tag: str) -> list[float]:
    return [event.value for event in events.Scalars(tag)]


def test_every_step_has_its_busy_share_and_its_idle_time_by_cause(events) -> None:
    series = sample_analysis().ranks[0].per_step
    busy = [100 * (window - idle) / window for window, idle in zip(series.window_ns, series.idle_ns, strict=True)]
    assert values(events, "gpu/busy_percent") == pytest.approx(busy)
    for cause, expected in series.idle_by_cause_ns.items():
        assert values(events, f"idle_by_cause_ms/{cause}") == pytest.approx([value / 1e6 for value in expected])


def test_causes_of_a_step_add_up_to_its_idle_time(events) -> None:
    tags = [tag for tag in events.Tags()["scalars"] if tag.startswith("idle_by_cause_ms/")]
    sums = [sum(parts) for parts in zip(*(values(events, tag) for tag in tags), strict=True)]
    assert sums == pytest.approx(values(events, "gpu/idle_ms"))


def test_copies_under_kernels_are_one_share_of_the_run(events) -> None:
    h2d = sample_analysis().ranks[0].copies.h2d
    assert values(events, "h2d/overlap_percent") == pytest.approx([100 * h2d.overlapped_ns / h2d.time_ns])
    assert values(events, "h2d/exposed_ms") == pytest.approx(
        [value / 1e6 for value in sample_analysis().ranks[0].per_step.exposed_h2d_ns]
    )


def test_every_figure_of_the_report_is_a_png(events) -> None:
    from traceanalyzer.renderers.figures import draw_figures

    for figure in draw_figures(sample_analysis().ranks[0]):
        [event] = events.Images(f"report/{figure.key}")
        png = event.encoded_image_string
        assert png.startswith(b"\x89PNG")
        # a PNG's size is in its first chunk
        assert (int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")) == (event.width, event.height)


def test_an_event_happens_when_its_step_began(events) -> None:
    rank = sample_analysis().ranks[0]
    times = [event.wall_time for event in events.Scalars("step/time_ms")]
    assert times == pytest.approx([(int(rank.origin_ns) + start) / 1e9 for start in rank.per_step.start_ns])


def test_memory_of_a_step_is_the_highest_of_its_time() -> None:
    gib = 1024**3
    series = sample_analysis().ranks[0].per_step
    one, two = series.start_ns[0], series.start_ns[1]
    curve = MemoryCurve(
        time_ns=[one, one + 1, one + 2, two - 1], allocated_bytes=[gib, 3 * gib, gib, 2 * gib], reserved_bytes=[]
    )
    rank = with_rank(series=msgspec.structs.replace(sample_analysis().ranks[0].series, memory=curve)).ranks[0]
    found = [number for tag, _, number in renderer.step_scalars(rank) if tag == "memory/allocated_gib"]
    assert found == [3.0] + [2.0] * (len(series.start_ns) - 1)  # later steps hold what the last point left


def test_equal_documents_give_equal_bytes() -> None:
    assert renderer.render_tensorboard(with_rank()) == renderer.render_tensorboard(with_rank())


def test_each_rank_is_a_run_of_its_own() -> None:
    [rank] = with_rank().ranks
    both = msgspec.structs.replace(sample_analysis(), ranks=[rank, msgspec.structs.replace(rank, rank=1)])
    assert [name.split("/")[0] for name in renderer.render_tensorboard(both)] == ["rank0", "rank1"]


def test_a_missing_package_is_one_line_before_the_recording_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(renderer, "find_spec", lambda name: None)
    assert cli.main(["analyze", "no-such-file", "--tensorboard", "logs"]) == 2
    assert capsys.readouterr().err == (
        "traceanalyzer: --tensorboard needs the tensorboard package: pip install tensorboard\n"
    )


def test_a_log_directory_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    from traceanalyzer.cli.output import write_folder
    from traceanalyzer.errors import UsageError

    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="could not be written to"):
        write_folder(tmp_path / "file", {"events": b""})
