"""``demo``: the whole way from a recording to a report, on a recording that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import traceanalyzer
from traceanalyzer.errors import UsageError

SAMPLE = "single-process-loader"


def demo(
    html: Annotated[Path, typer.Option("--html", metavar="FILE", readable=False, help="Where the report goes.")] = Path(
        "report.html"
    ),
) -> None:
    """Analyse a sample recording: a YOLO11n training whose loader runs in the training process."""
    from traceanalyzer.cli.output import ReadProgress, show, write_reports
    from traceanalyzer.pipeline import analyze

    path = sample_path()
    typer.echo(
        f"Analysing {path.name}: a few training steps of YOLO11n on an NVIDIA H200, recorded with torch.profiler by\n"
        "'traceanalyzer record yolo --fault=single-process-loader'.\n"
    )
    with ReadProgress() as progress:
        analysis = analyze(path, progress=progress.update)
    written = write_reports(analysis, html=html)
    show(analysis, written)
    typer.echo(f"Open {html.resolve()} in a browser. Your own: traceanalyzer analyze YOUR_TRACE.json.gz")


def sample_path() -> Path:
    """Return the sample run folder: inside the installed package, or in the checkout it runs from.

    Raises:
        UsageError: It is in neither place.
    """
    package = Path(traceanalyzer.__file__).parent
    for folder in (package / "samples", package.parent / "sample_traces" / "labelled"):
        if (folder / SAMPLE).is_dir():
            return folder / SAMPLE
    raise UsageError(f"the sample recording {SAMPLE} is not installed; reinstall traceanalyzer")
