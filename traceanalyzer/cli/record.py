"""``traceanalyzer record``: run an instrumented training loop and leave a run folder."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, Literal

import typer

from traceanalyzer.recording import command as recording
from traceanalyzer.recording.options import PROFILERS, RunOptions, ScriptOptions, YoloOptions, flag

app = typer.Typer(help="Run an instrumented training loop and leave a run folder for analyze.", no_args_is_help=True)


def _signature(kind: type[RunOptions], *extra: inspect.Parameter) -> inspect.Signature:
    """Turn the declared options into the signature typer reads, so that both front ends offer the same ones."""
    parameters = []
    for entry in fields(kind):
        about = entry.metadata
        if not about:
            continue
        value: Any = about["kind"]
        if about["choices"]:
            value = Literal[PROFILERS]
        if isinstance(entry.default, tuple):
            value = list[value]
        elif entry.default is None:
            value = value | None
        default = list(entry.default) if isinstance(entry.default, tuple) else entry.default
        names = (flag(entry.name),) if about["kind"] is not bool else (_switch(entry.name, entry.default),)
        parameters.append(
            inspect.Parameter(
                entry.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[value, typer.Option(*names, help=about["help"])],
            )
        )
    return inspect.Signature([*extra, *parameters])


def _switch(name: str, default: object) -> str:
    return flag(name) if default is False else f"{flag(name)}/--no-{name.replace('_', '-')}"


def _offer(
    name: str, about: str, kind: type[RunOptions], run: Callable[[Any], None], *extra: inspect.Parameter
) -> None:
    def command(**values: Any) -> None:
        run(recording.from_values(kind, values))

    signature = _signature(kind, *extra)
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {entry.name: entry.annotation for entry in signature.parameters.values()}
    app.command(name, help=about)(command)


_offer(
    "yolo",
    "Record Ultralytics' own detection trainer; without --data on a synthetic data set, without a GPU on the CPU.",
    YoloOptions,
    recording.run_yolo,
)
_offer(
    "script",
    "Record the training loop of a Python script: traceanalyzer record script --out RUN -- python train.py",
    ScriptOptions,
    recording.run_script,
    inspect.Parameter(
        "command",
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[list[str], typer.Argument(help="The script and its arguments, after --.")],
    ),
)


@app.command("faults")
def faults() -> None:
    """List the faults that record yolo --fault can reproduce, with the code each is the known answer for."""
    from traceanalyzer.recording.faults import catalogue

    for fault in catalogue().values():
        typer.echo(f"{fault.name:22} {fault.code}  {fault.about}")
