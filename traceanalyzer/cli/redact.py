"""``redact``: a copy of a recording that is safe to hand on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def redact(
    recording: Annotated[Path, typer.Argument(metavar="RECORDING", help="A recording or a run folder.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="COPY", help="The copy; must not exist.")],
) -> None:
    """Copy a recording without names of users, hosts, folders and containers; it analyses to the same numbers.

    Takes Kineto traces (.json, .json.gz), Nsight exports (.sqlite, also compressed, parquetdir, arrowdir), memory
    snapshots and run folders. Of an export only the tables the analysis reads are copied: environment, command lines
    and program output stay behind, and so do files of a run folder that run.json does not name. Kernel, range and
    function names are kept; look through them where they are secret.
    """
    from traceanalyzer.readers.redacted_copy import write_redacted_copy
    from traceanalyzer.renderers.text import visible

    left = write_redacted_copy(recording, output)
    typer.echo(f"{visible(str(output))}: written")
    if left:
        typer.echo(f"left behind: {', '.join(map(visible, left))}")
