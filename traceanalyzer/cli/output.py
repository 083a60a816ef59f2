"""Writing reports (whole or not at all), the summary on the terminal and the progress bar."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import time
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from traceanalyzer.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from traceanalyzer.results.analysis import Analysis

STDOUT = Path("-")


class ReadProgress:
    """A progress bar on stderr while recordings are read; silent where stderr is not a terminal."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TaskProgressColumn(),  # no amounts: some readers count bytes, others tables
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, name: str, done: int, total: int) -> None:
        """Move the bar of one input; ``total`` 0 means unknown."""
        if self._bar is None:
            return
        if name not in self._tasks:
            from traceanalyzer.renderers.text import shorten, visible

            self._tasks[name] = self._bar.add_task(
                f"reading {shorten(visible(Path(name).name), 30)}", total=total or None
            )
        self._bar.update(self._tasks[name], completed=done, total=total or None)
        if total and done >= total:
            self._bar.update(self._tasks[name], description="measuring (compiles on first use)")


def write_reports(
    analysis: Analysis,
    *,
    html: Path | None = None,
    json: Path | None = None,
    markdown: Path | None = None,
    perfetto: Path | None = None,
    sarif: Path | None = None,
    github: Path | None = None,
    tensorboard: Path | None = None,
    timings: MutableMapping[str, float] | None = None,
) -> list[Path]:
    """Render and write the reports asked for; ``-`` is standard output.

    Returns:
        What was written, in the order html, json, markdown, perfetto, sarif, github, TensorBoard's log directory.

    Raises:
        UsageError: Two reports were given one name, or one cannot be written.
    """
    wanted = [path for path in (html, json, markdown, perfetto, sarif, github) if path is not None]
    check_names(wanted)
    begun = time.perf_counter()
    if html is not None:
        from traceanalyzer.renderers.html import render_html

        write_report(html, render_html(analysis))
    if json is not None:
        from traceanalyzer.renderers.json import render_json

        write_report(json, render_json(analysis))
    if markdown is not None:
        from traceanalyzer.renderers.markdown import render_markdown

        write_report(markdown, render_markdown(analysis))
    if perfetto is not None:
        from traceanalyzer.renderers.perfetto import render_perfetto

        write_report(perfetto, render_perfetto(analysis))
    if sarif is not None or github is not None:
        from traceanalyzer.cli.source_tree import SourceTree
        from traceanalyzer.renderers import code_findings

        relative = SourceTree(Path.cwd()).relative
        if sarif is not None:
            write_report(sarif, code_findings.render_sarif(analysis, relative))
        if github is not None:
            write_report(github, code_findings.render_annotations(analysis, relative))
    if tensorboard is not None:
        from traceanalyzer.renderers.tensorboard import render_tensorboard

        write_folder(tensorboard, render_tensorboard(analysis))
        wanted.append(tensorboard)
    if timings is not None:
        timings["render"] = time.perf_counter() - begun
    return wanted


def check_names(wanted: Sequence[Path]) -> None:
    """Refuse two reports of one name.

    Raises:
        UsageError: Two of the names are one file.
    """
    if len({path if path == STDOUT else path.resolve() for path in wanted}) < len(wanted):
        raise UsageError("two reports were given the same name; each needs its own file")


def show(analysis: Analysis, written: Sequence[Path], timings: Mapping[str, float] | None = None) -> None:
    """Print the summary and where the reports are; nothing where a report itself went to standard output."""
    if STDOUT in written:
        return
    from rich.text import Text

    from traceanalyzer.cli.console import Terminal
    from traceanalyzer.renderers.messages import say
    from traceanalyzer.renderers.terminal import print_summary
    from traceanalyzer.renderers.text import visible

    console = Terminal(highlight=False)
    print_summary(analysis, console)
    if written:
        console.print(Text(say("\nReports: ") + ", ".join(visible(str(path)) for path in written)), soft_wrap=True)
    if timings:
        console.print(Text("Seconds: " + ", ".join(f"{stage} {spent:.2f}" for stage, spent in timings.items())))


def write_report(path: Path, text: str) -> None:
    """Replace ``path`` by a file holding ``text``; a failure leaves what was there before.

    Args:
        path: Where the report goes. ``/dev/stdout`` and the like are written directly.
        text: The report.

    Raises:
        UsageError: The report cannot be written there.
    """
    if path == STDOUT:
        sys.stdout.write(text)
        return
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open(
                "w", encoding="utf-8", errors="backslashreplace"
            ) as stream:  # a device or a pipe cannot be renamed over
                stream.write(text)
            return
        _replace(path.resolve(), text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UsageError(f"{path}: the report could not be written: {error.strerror or error}") from error


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a folder, made where it is missing; files of other names stay.

    Args:
        folder: The folder.
        files: Contents by path relative to it.

    Raises:
        UsageError: They cannot be written there.
    """
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path.resolve(), content)
    except OSError as error:
        raise UsageError(f"{folder}: could not be written to: {error.strerror or error}") from error


def _replace(path: Path, content: bytes) -> None:
    # resolve() above: a report behind a symbolic link is replaced, not the link
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if path.exists() and not os.access(path, os.W_OK):
        # renaming over it would work all the same, which is not what a read-only file asks for
        raise PermissionError(errno.EACCES, "it is read-only")
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        Path(aside).chmod(mode)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def _umask() -> int:
    # the only way to read it is to set it
    mask = os.umask(0)
    os.umask(mask)
    return mask
