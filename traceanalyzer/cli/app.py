"""The typer application: every command with its options, and what their wrong use is turned into."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer

from traceanalyzer import __version__
from traceanalyzer.cli import COMMANDS, INTERRUPTED, UNUSABLE, fail

# typer 0.26 and later bring their own copy of click, so its exception is reached through typer
_ClickError: type[Any] = typer.BadParameter.__mro__[2]


def make_app(only: str | None = None) -> typer.Typer:
    """Build the application from the registry.

    Args:
        only: Leave out every other command: importing them all takes longer than some commands run.
    """
    app = typer.Typer(
        name="traceanalyzer",
        help="Why was the GPU idle? Reads PyTorch-profiler and Nsight Systems recordings and names the root causes.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_top)
    for name, target in COMMANDS.items():
        if only is not None and name != only:
            continue
        module, function = target.split(":")
        command: Callable[..., None] | typer.Typer = getattr(import_module(module), function)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def run(words: list[str]) -> int:
    """Run one command.

    Args:
        words: The command and its arguments.

    Returns:
        The exit code.

    Raises:
        TraceAnalyzerError: What a user can act on.
        OSError: A file or stream failed.
        KeyboardInterrupt: The user interrupted.
    """
    try:
        # not app(): that turns interrupts and closed pipes into exit codes of its own before they can be told apart
        command = typer.main.get_command(make_app(words[0] if words and words[0] in COMMANDS else None))
        with command.make_context("traceanalyzer", words) as context:
            command.invoke(context)
    except typer.Exit as exit_:
        return exit_.exit_code
    except _ClickError as error:
        return _usage(error)
    except typer.Abort:
        return fail("interrupted", INTERRUPTED)
    return 0


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"traceanalyzer {__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass  # options of the program itself; everything else is a command's


def _usage(error: Any) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "traceanalyzer"
    message = error.format_message().rstrip(".")
    if not message or type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message())
        return UNUSABLE
    # typer words a refused choice as pydantic does
    message = message.replace(": Value error, ", ": ")
    return fail(f"{message}; see '{command} --help'", UNUSABLE)
