"""The command line: one file per command; the only place that prints or exits.

A command is a module with one function, and one line in ``COMMANDS``. Modules here import nothing heavy at their top,
so that ``--help`` answers at once.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Words after the program's name; those of the process by default.

    Returns:
        The exit code: 0 done, 1 a gate fired, 2 no usable input or wrong usage, 130 interrupted.
    """
    words = list(arguments) if arguments is not None else sys.argv[1:]
    owns_process = arguments is None and bool(words) and words[0] in _ANALYSING
    if owns_process:
        # numba looks for SciPy's linear algebra when the first loop is loaded, which takes a tenth of an analysis;
        # none of these commands calculates with it, and the process is theirs alone
        sys.modules.setdefault(_SCIPY_BLAS, None)  # type: ignore[arg-type]
        # what an analysis makes lives until it ends, so that looking for garbage in it is in vain
        gc.set_threshold(1_000_000, 50, 50)
    try:
        code = _run(words)
        sys.stdout.flush()
    except TraceAnalyzerError as error:
        return fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # the reader (head, less) has gone; nobody is left to tell, and the interpreter must not flush again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return fail(f"{place}{error.strerror or error}", UNUSABLE)
    finally:
        if owns_process:
            # the interpreter looks for garbage once more when it ends; the system takes the memory back in any case
            gc.freeze()
    return code


def _run(words: list[str]) -> int:
    if words[:1] == ["compare"]:
        from traceanalyzer.cli.judging import judge, read_words

        request = read_words(words[1:])
        if request is not None:
            return judge(request)
    from traceanalyzer.cli.app import run

    return run(words)


def fail(message: str, code: int) -> int:
    """Say on one line of standard error why nothing came of it.

    Args:
        message: What, where, what to do.
        code: The exit code, which is returned.
    """
    from traceanalyzer.renderers.text import visible

    print(f"traceanalyzer: {visible(message)}", file=sys.stderr)
    return code
