"""Record a Python script's training loop without changing the script.

A step is one batch the script takes from a DataLoader while gradients are enabled: validation loops, which turn them
off, are not steps. Phases are named from outside: the loader's ``next``, ``Tensor.backward`` and optimizer steps.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from traceanalyzer.errors import UsageError
from traceanalyzer.recording.facts import environment_rank
from traceanalyzer.recording.loader_timing import time_loader
from traceanalyzer.recording.options import ScriptOptions
from traceanalyzer.recording.recorder import Recorder, RecordingComplete, default_command
from traceanalyzer.recording.run_folder import prepare_folder

_PYTHONS = ("python", "python3", "py")


def script_words(command: tuple[str, ...]) -> list[str]:
    """Return the script (or ``-m module``) and its arguments, without the interpreter.

    Args:
        command: What stood after ``--``.

    Raises:
        UsageError: There is no script in it.
    """
    words = list(command)
    if words and Path(words[0]).name.rstrip("0123456789.") in _PYTHONS:
        words = words[1:]
        while words and words[0].startswith("-") and words[0] != "-m":
            words = words[1:]
    if not words or (words[0] == "-m" and len(words) < 2):
        raise UsageError("record script needs a script: traceanalyzer record script --out RUN -- python train.py")
    if words[0] == "torchrun":
        raise UsageError(
            "start every rank with the recorder instead: "
            "torchrun … -m traceanalyzer.recording script --out RUN -- train.py"
        )
    if words[0] != "-m" and not Path(words[0]).is_file():
        raise UsageError(f"{words[0]}: no such script")
    return words


def record_script(options: ScriptOptions, *, profiler: str | None = None, append: bool = False) -> Path:
    """Run a script as ``__main__`` in this process and record its training loop.

    Args:
        options: What to run.
        profiler: Profiler of this pass, where it differs from ``options.profiler``.
        append: Add a pass to the run in ``options.out``.

    Returns:
        The run folder.

    Raises:
        UsageError: There is no script, or no PyTorch to run it with.
    """
    try:
        import torch
    except ImportError:
        raise UsageError(
            "record script needs PyTorch in this environment: install the script's own requirements here, "
            "or traceanalyzer with its record extra"
        ) from None

    words = script_words(options.command)
    chosen = profiler or options.profiler
    out = options.out.resolve()
    if not append and environment_rank() == 0:
        prepare_folder(out, overwrite=options.overwrite)
    recorder = Recorder(
        out,
        schedule=replace(options, profiler=chosen).schedule(cuda=torch.cuda.is_available(), head_start=16),
        profiler="none" if chosen == "none" else ("nsys" if chosen == "nsys" else "torch"),
        options=options.trace_options,
        append=append,
        overwrite=options.overwrite,
        command=default_command(["record", "script", "--", *words]),
        stop_when_done=not options.run_to_end,
    )
    with recorder:
        watch_loop(recorder)
        _run(words)
    if recorder.step_number == 0:
        recorder.folder.note("the script took no batch from a DataLoader with gradients enabled: no steps were found")
        recorder.folder.save()
    return out


def watch_loop(recorder: Recorder) -> None:
    """Turn every training batch of this process into a step, until the recorder finishes.

    Args:
        recorder: Where steps and phases go.
    """
    import torch
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )
    from torch.utils.data import dataloader

    base = dataloader._BaseDataLoaderIter
    fetch: Callable[[Any], Any] = base.__next__
    start: Callable[[Any], Any] = dataloader.DataLoader.__iter__

    def iterate(loader: Any) -> Any:
        if torch.is_grad_enabled() and not recorder.done:
            problem = time_loader(loader, recorder.loader_clock)
            if problem:
                recorder.folder.note(problem)
            recorder.configure(**loader_configuration(loader))
        return start(loader)

    def step(iterator: Any) -> Any:
        if not torch.is_grad_enabled():
            return fetch(iterator)
        recorder.end_step()
        if not recorder.begin_step():
            raise RecordingComplete
        recorder.push("data")
        try:
            batch = fetch(iterator)
        except StopIteration:
            recorder.abandon_step()
            raise
        recorder.pop()
        return batch

    dataloader.DataLoader.__iter__ = iterate
    base.__next__ = step
    before = register_optimizer_step_pre_hook(lambda *_: recorder.push("optimizer"))
    after = register_optimizer_step_post_hook(lambda *_: recorder.pop())
    recorder.undo_later(lambda: setattr(dataloader.DataLoader, "__iter__", start))
    recorder.undo_later(lambda: setattr(base, "__next__", fetch))
    recorder.undo_later(before.remove)
    recorder.undo_later(after.remove)
    recorder.instrument_backward()


def loader_configuration(loader: Any) -> dict[str, Any]:
    """Return a DataLoader's settings that matter for speed."""
    return {
        "batch": loader.batch_size,
        "workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(loader.persistent_workers),
    }


def _run(words: list[str]) -> None:
    arguments, path = sys.argv, list(sys.path)
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            sys.path.insert(0, str(Path(words[0]).resolve().parent))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as leaving:
        if leaving.code not in (None, 0):
            raise RuntimeError(f"the script ended with exit code {leaving.code}") from None
    finally:
        sys.argv, sys.path[:] = arguments, path
