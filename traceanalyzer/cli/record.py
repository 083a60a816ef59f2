"""``traceanalyzer record``: run an instrumented training loop and leave a run folder."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, Literal

import typer

from traceanalyzer.cli.judging import Request, judge
from traceanalyzer.errors import UsageError
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


def _option(name: str, default: Any, value: Any, about: str, metavar: str | None = None) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[value, typer.Option(flag(name), help=about, metavar=metavar)],
    )


# options of several runs in one command; a process that records one run does not know them
_REPETITION = (
    _option("runs", 1, int, "Record so many runs (of each side with --ab), each into a folder of its own below --out."),
    _option(
        "ab", None, tuple[str, str] | None,
        "Record two things in turn: two commands, two sets of yolo options, or two checkouts to run the command in.",
        "A B",
    ),
    _option("resume", False, bool, "With --runs or --ab: keep the complete runs found there, record the missing ones."),
    _option("compare", False, bool, "With --ab: compare the sides at once; exit codes are those of compare."),
)  # fmt: skip


def _offer(
    name: str, about: str, kind: type[RunOptions], run: Callable[[Any], None], *extra: inspect.Parameter
) -> None:
    def command(*, runs: int, ab: tuple[str, str] | None, resume: bool, compare: bool, **values: Any) -> None:
        values["command"] = values.get("command") or ()
        options = recording.from_values(kind, values)
        if compare and ab is None:
            raise UsageError("--compare needs two sides: --ab A B")
        if runs == 1 and ab is None and not resume:
            run(options)
            return
        from traceanalyzer.recording.repeated import Repetition, next_command, record_repeatedly

        first, second = record_repeatedly(name, options, Repetition(runs=runs, ab=ab, resume=resume))
        typer.echo(f"\n{next_command(first, second)}")
        if compare and (code := judge(Request([str(f) for f in first], [str(f) for f in second]))):
            raise typer.Exit(code)

    signature = _signature(kind, *_REPETITION, *extra)
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
        default=None,
        annotation=Annotated[list[str] | None, typer.Argument(help="The script and its arguments, after --.")],
    ),
)


@app.command("faults")
def faults() -> None:
    """List the faults that record yolo --fault can reproduce, with the code each is the known answer for."""
    from traceanalyzer.recording.faults import catalogue

    for fault in catalogue().values():
        typer.echo(f"{fault.name:22} {fault.code}  {fault.about}")
