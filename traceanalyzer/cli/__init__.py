"""The command line: one file per command; the only place that prints or exits.

A command is a module with one function, and one line in ``COMMANDS``. Modules here import nothing heavy at their top,
so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from traceanalyzer import __version__
from traceanalyzer.errors import TraceAnalyzerError

INTERRUPTED = 130
UNUSABLE = 2

# name on the command line → module:function (or module:app, where it has commands of its own), as --help lists them
COMMANDS: dict[str, str] = {
    "record": "traceanalyzer.cli.record:app",
    "analyze": "traceanalyzer.cli.analyze:analyze",
    "report": "traceanalyzer.cli.report:report",
    "compare": "traceanalyzer.cli.compare:compare",
    "redact": "traceanalyzer.cli.redact:redact",
    "baseline": "traceanalyzer.cli.baseline:app",
    "trend": "traceanalyzer.cli.trend:trend",
    "explain": "traceanalyzer.cli.explain:explain",
    "rules": "traceanalyzer.cli.rules:rules",
    "demo": "traceanalyzer.cli.demo:demo",
    "schema": "traceanalyzer.cli.schema:schema",
}

# commands that load compiled loops and run nothing of the user's own
_ANALYSING = frozenset({"analyze", "compare", "baseline", "redact", "trend"})
_SCIPY_BLAS = "scipy.linalg.cython_blas"

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Words after the program's name; those of the process by default.

    Returns:
        The exit code: 0 done, 1 a gate fired, 2 no usable input or wrong usage, 130 interrupted.
    """
    words = list(arguments) if arguments is not None else sys.argv[1:]
    if arguments is None and words and words[0] in _ANALYSING:
        # numba looks for SciPy's linear algebra when the first loop is loaded, which takes a tenth of an analysis;
        # none of these commands calculates with it, and the process is theirs alone
        sys.modules.setdefault(_SCIPY_BLAS, None)  # type: ignore[arg-type]
    try:
        # not app(): that turns interrupts and closed pipes into exit codes of its own before they can be told apart
        command = typer.main.get_command(make_app(words[0] if words and words[0] in COMMANDS else None))
        with command.make_context("traceanalyzer", words) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as exit_:
        return exit_.exit_code
    except TraceAnalyzerError as error:
        return _fail(str(error), error.exit_code)
    except _ClickError as error:
        return _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # the reader (head, less) has gone; nobody is left to tell, and the interpreter must not flush again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{error.strerror or error}", UNUSABLE)
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
    return _fail(f"{message}; see '{command} --help'", UNUSABLE)


def _fail(message: str, code: int) -> int:
    from traceanalyzer.renderers.text import visible

    typer.echo(f"traceanalyzer: {visible(message)}", err=True)
    return code
