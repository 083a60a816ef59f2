"""Analyse recordings damaged by chance until one is answered wrongly.

    python -m tests.tools.fuzz --inputs 20000 --seed 1 --keep FOLDER
    python -m tests.tools.fuzz --oracle --inputs 20000

With ``--oracle`` every input is a Kineto file that both parsers read, and what fails is that they differ in a byte.

Every input is made from its number, so that a failure can be made again: ``--seed N --inputs 1``. What fails (another
error than the tool's own, a warning, a contradiction between numbers, ten seconds of processor time without an answer)
is kept in the folder under its number, with the traceback beside it.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from types import FrameType

import traceanalyzer
from tests.parsers import difference, make_recording
from tests.robustness.invariants import assert_plausible
from tests.robustness.mutation import mutate_kineto, mutate_nsys
from traceanalyzer.errors import TraceAnalyzerError
from traceanalyzer.renderers.html import render_html
from traceanalyzer.renderers.markdown import render_markdown

LONGEST_SECONDS = 10
HTML_EVERY = 100
BLOCKS = (None, 300, None, 4000, None)  # bytes; None is what the reader uses


class DisagreementError(AssertionError):
    """The two Kineto parsers read one input differently."""


class HangError(Exception):
    """An input took longer than any may."""


def make_input(number: int, folder: Path) -> Path:
    """Write the input of a number: three of four are Kineto files, the others Nsight databases."""
    chance = random.Random(number)
    path = folder / ("input.sqlite" if number % 4 == 0 else "input.json")
    if number % 4 == 0:
        mutate_nsys(chance, path)
    else:
        path.write_bytes(mutate_kineto(chance))
    return path


def answer(path: Path, *, html: bool = False) -> str:
    """Analyse an input and check the answer.

    Returns:
        The verdict of the first rank, or ``refused``.

    Raises:
        Exception: The answer is none.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            analysis = traceanalyzer.analyze(path)
        except TraceAnalyzerError as error:
            if "\n" in str(error):
                raise AssertionError("the refusal is more than one line") from error
            return "refused"
        assert_plausible(analysis)
        render_markdown(analysis)
        if html:
            render_html(analysis)
    return analysis.ranks[0].integrity.verdict


def make_oracle_input(number: int, folder: Path) -> Path:
    """Write the Kineto file of a number."""
    path = folder / "input.json"
    path.write_bytes(make_recording(random.Random(number)))
    return path


def compare_parsers(path: Path, number: int) -> str:
    """Read an input with both Kineto parsers, in blocks of a size that depends on its number.

    Raises:
        DisagreementError: They differ.
    """
    if found := difference(path, BLOCKS[number % len(BLOCKS)]):
        raise DisagreementError(found)
    return "equal"


def run(
    first: int, count: int, keep: Path | None, seconds: float | None = None, *, oracle: bool = False
) -> tuple[Counter[str], list[int]]:
    """Answer inputs ``first`` to ``first + count - 1``, or as many as the seconds allow.

    Args:
        first: Number of the first input.
        count: How many.
        keep: Folder for what fails.
        seconds: Stop early after so long.
        oracle: Compare the two Kineto parsers instead of analysing.

    Returns:
        How many inputs met which answer, and the numbers of those that failed.
    """
    answers: Counter[str] = Counter()
    failed: list[int] = []
    begun = time.monotonic()

    def hang(_: int, frame: FrameType | None) -> None:
        raise HangError(f"no answer after {LONGEST_SECONDS} s of processor time, at {frame}")

    before = signal.signal(signal.SIGPROF, hang)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(first, first + count):
                if seconds is not None and time.monotonic() - begun > seconds:
                    break
                path = (make_oracle_input if oracle else make_input)(number, Path(folder))
                # processor time: other work on the machine is no fault of the input
                signal.setitimer(signal.ITIMER_PROF, LONGEST_SECONDS)
                try:
                    if oracle:
                        answers[compare_parsers(path, number)] += 1
                    else:
                        answers[answer(path, html=number % HTML_EVERY == 0)] += 1
                except Exception:  # whatever it is, it is the finding
                    failed.append(number)
                    answers["failed"] += 1
                    _keep(keep, number, path)
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)
    finally:
        signal.signal(signal.SIGPROF, before)
    return answers, failed


def _keep(folder: Path | None, number: int, path: Path) -> None:
    if folder is None:
        traceback.print_exc()
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number}{path.suffix}").write_bytes(path.read_bytes())
    (folder / f"{number}.txt").write_text(traceback.format_exc())


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1, help="number of the first input")
    parser.add_argument("--keep", type=Path, help="folder for the inputs that fail")
    parser.add_argument("--oracle", action="store_true", help="compare the two Kineto parsers")
    options = parser.parse_args()
    begun = time.monotonic()
    answers, failed = run(options.seed, options.inputs, options.keep, oracle=options.oracle)
    lines = [f"{sum(answers.values())} inputs in {time.monotonic() - begun:.0f} s: {dict(answers)}"]
    if failed:
        lines.append(f"failed: {failed[:50]}")
    sys.stdout.write("\n".join(lines) + "\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
