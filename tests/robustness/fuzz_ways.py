"""What a damaged input goes through, and what may come of it: an answer, or a refusal on one line."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.parsers import read_with
from tests.robustness import fuzz_inputs as inputs
from tests.robustness.fuzz_inputs import Made
from tests.robustness.invariants import assert_plausible
from traceanalyzer import cli
from traceanalyzer.errors import TraceAnalyzerError
from traceanalyzer.readers.inputs import open_inputs
from traceanalyzer.readers.kineto_msgspec import MsgspecParser
from traceanalyzer.readers.kineto_scanner import ScannerParser
from traceanalyzer.results.analysis import Analysis

BLOCKS = (None, 2000, None, None, 2000, None, None, 300)  # bytes; None is what the reader uses
HTML_EVERY = 20


class DisagreementError(AssertionError):
    """The two Kineto parsers read one input differently."""


class ExecutionError(AssertionError):
    """A pickle ran what it asked for."""


def both_parsers(made: Made, number: int) -> str:
    """Read with both Kineto parsers, in blocks of a size that depends on the number."""
    (path,) = made.names
    block = BLOCKS[number // 100 % len(BLOCKS)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scanned = read_with(ScannerParser, path, block)
        tolerant = read_with(MsgspecParser, path, block)
    if scanned != tolerant:
        raise DisagreementError(f"{scanned!r:.2000} instead of {tolerant!r:.2000}")
    return _one_line(tolerant) if isinstance(tolerant, str) else "equal"


def reader(made: Made, number: int) -> str:
    """Read as ``analyze`` does."""
    del number
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            open_inputs([str(name) for name in made.names])
        except TraceAnalyzerError as error:
            return _one_line(str(error))
    return "read"


def command(made: Made, number: int) -> str:
    """Run ``analyze`` with a JSON (now and then also an HTML and a Markdown) report and check what it says."""
    folder = made.names[0].parent
    target = folder / "answer.json"
    target.unlink(missing_ok=True)
    words = ["analyze", *map(str, made.names), "--json", str(target)]
    if number // 100 % HTML_EVERY == 0:
        words += ["--html", str(folder / "answer.html"), "--markdown", str(folder / "answer.md")]
    code, error = _run(words)
    if code == 2:
        return _refusal(error)
    assert (code, error) == (0, "")
    analysis = Analysis.from_json(target.read_bytes())
    assert_plausible(analysis)
    return analysis.ranks[0].integrity.verdict


def report(made: Made, number: int) -> str:
    """Run ``report``, or ``compare`` with itself, on an Analysis."""
    target = made.names[0].parent / "answer.md"
    words = ["report", str(made.names[0])] if number // 100 % 4 else ["compare", *[str(made.names[0])] * 2]
    code, error = _run([*words, "--markdown", str(target)])
    return _refusal(error) if code == 2 else f"exit {_among(code, (0, 1))}"


@dataclass(frozen=True)
class Way:
    """A kind of input and what it goes through.

    Attributes:
        name: The kind, as the table of counts names it.
        through: What it goes through, in words.
        make: Writes an input.
        answer: Answers it.
        share: Of 100 numbers in a row.
    """

    name: str
    through: str
    make: Callable[[random.Random, Path], Made]
    answer: Callable[[Made, int], str]
    share: int


PARSERS = "both Kineto parsers, compared byte by byte"
READER = "the reader"
COMMAND = "`analyze` (parse, measure, rules, replay, reports)"
WAYS = (
    Way("Kineto JSON", PARSERS, inputs.kineto, both_parsers, 55),
    Way("Kineto in gzip or xz", PARSERS, inputs.compressed_kineto, both_parsers, 12),
    Way("Kineto JSON", COMMAND, inputs.damaged_kineto, command, 7),
    Way("Nsight SQLite", READER, inputs.nsys_database, reader, 4),
    Way("Nsight SQLite", COMMAND, inputs.nsys_database, command, 2),
    Way("Nsight Parquet or Arrow folder", READER, inputs.nsys_folder, reader, 3),
    Way("Nsight Parquet or Arrow folder", COMMAND, inputs.nsys_folder, command, 1),
    Way("memory snapshot (pickle)", READER, inputs.memory_snapshot, reader, 5),
    Way("memory snapshot (pickle)", COMMAND, inputs.memory_snapshot, command, 2),
    Way("run folder (run.json)", READER, inputs.run_folder, reader, 1),
    Way("run folder (run.json)", COMMAND, inputs.run_folder, command, 2),
    Way("GPU samples (nvidia-smi)", READER, inputs.gpu_samples, reader, 3),
    Way("GPU samples (nvidia-smi)", COMMAND, inputs.gpu_samples, command, 1),
    Way("Analysis document", "`report` and `compare`", inputs.document, report, 2),
)
_TURNS = [way for way in WAYS for _ in range(way.share)]
assert len(_TURNS) == 100


def way_of(number: int) -> Way:
    """Return what the input of a number goes through: every hundred numbers in a row hold every kind in its share."""
    return _TURNS[number * 37 % 100]


def make(number: int, folder: Path) -> Made:
    """Write the input of a number into an empty folder."""
    return way_of(number).make(random.Random(number), folder)


@contextlib.contextmanager
def made_in(folder: Path, number: int) -> Iterator[Made]:
    """Write the input of a number into a folder that is emptied afterwards."""
    folder.mkdir(exist_ok=True)
    try:
        yield make(number, folder)
    finally:
        shutil.rmtree(folder)


def answer(made: Made, number: int) -> str:
    """Answer the input of a number.

    Returns:
        What came of it; ``refused`` where that was a line that says why.

    Raises:
        Exception: The answer is none.
    """
    found = way_of(number).answer(made, number)
    if (made.names[0].parent / inputs.WITNESS).exists():
        raise ExecutionError("the pickle ran what it asked for")
    return found


def _run(words: list[str]) -> tuple[int, str]:
    error = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
        warnings.simplefilter("error")
        return cli.main(words), error.getvalue()


def _refusal(error: str) -> str:
    assert error.startswith("traceanalyzer: "), error
    return _one_line(error.removesuffix("\n"))


def _one_line(error: str) -> str:
    if "\n" in error:
        raise AssertionError(f"the refusal is more than one line: {error}")
    return "refused"


def _among(code: int, codes: tuple[int, ...]) -> int:
    assert code in codes, code
    return code
