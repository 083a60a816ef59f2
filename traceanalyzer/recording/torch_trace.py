"""One torch.profiler recording, started and stopped at step borders."""

from __future__ import annotations

import gzip
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_COPY_BYTES = 1 << 22
# Kineto ends the file with the path it was told to write to; keep the name, drop where it lay.
_TRACE_NAME = re.compile(rb'("traceName"\s*:\s*")(?:[^"\\]|\\.)*(")')
_HOST_NAME = re.compile(rb'("host_?[nN]ame"\s*:\s*")(?:[^"\\]|\\.)*(")')
_EDGE_BYTES = 65_536  # both stand in the header before the events or in the footer after them


@dataclass(frozen=True)
class TraceOptions:
    """What torch.profiler records besides operators, calls and kernels.

    Attributes:
        stacks: Python stacks of operators (code locations; slow).
        shapes: Input shapes of operators.
        memory: Allocator events.
    """

    stacks: bool = False
    shapes: bool = False
    memory: bool = False


class TorchTrace:
    """Records ``recorded`` steps after ``warm_up`` steps whose events are thrown away.

    Args:
        path: Where the trace goes, named ``*.pt.trace.json.gz``.
        first_step: Number the first warm-up step gets in the recording (``ProfilerStep#N``).
        warm_up: Warm-up steps, at least 1.
        recorded: Steps to record, at least 1.
        options: What to record.
    """

    def __init__(self, path: Path, first_step: int, warm_up: int, recorded: int, options: TraceOptions) -> None:
        from torch.profiler import ProfilerAction, ProfilerActivity, profile

        last = first_step + warm_up + recorded - 1

        def schedule(step: int) -> Any:
            if step < first_step + warm_up:
                # The object asks about step 0 before it is told where to start counting.
                return ProfilerAction.WARMUP
            if step < last:
                return ProfilerAction.RECORD
            return ProfilerAction.RECORD_AND_SAVE if step == last else ProfilerAction.NONE

        import torch

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self.path = path
        self.saved = False
        self._running = False
        self._first = first_step
        self._profile = profile(
            activities=activities,
            schedule=schedule,
            on_trace_ready=self._save,
            record_shapes=options.shapes,
            profile_memory=options.memory,
            with_stack=options.stacks,
        )

    def start(self) -> None:
        """Attach the profiler; the first warm-up step begins."""
        self._profile.step_num = self._first
        self._profile.start()
        self._running = True

    def step(self) -> None:
        """Tell the profiler that the next step begins; after the last recorded one this writes the file."""
        self._profile.step()

    def stop(self) -> None:
        """Detach. Steps recorded so far are written when the last one was not reached."""
        if self._running:
            self._running = False
            self._profile.stop()

    def _save(self, profile: Any) -> None:
        with tempfile.TemporaryDirectory(dir=self.path.parent, prefix=".trace-") as folder:
            plain = Path(folder) / self.path.name.removesuffix(".gz")
            profile.export_chrome_trace(str(plain))
            part = Path(folder) / self.path.name
            compress_trace(plain, part)
            part.replace(self.path)
        self.saved = True


def compress_trace(plain: Path, compressed: Path) -> None:
    """Gzip a trace, leaving out the host's name and the folder it was written to.

    Args:
        plain: The JSON file.
        compressed: Where to write.
    """
    size = plain.stat().st_size
    head_bytes = min(size, _EDGE_BYTES)
    tail_bytes = min(size - head_bytes, _EDGE_BYTES)
    name = plain.name.encode()

    def clean(block: bytes) -> bytes:
        block = _HOST_NAME.sub(rb"\1\2", block)
        return _TRACE_NAME.sub(lambda found: found[1] + name + found[2], block)

    # No clock or name in the header, so that equal traces give equal bytes.
    with (
        plain.open("rb") as source,
        compressed.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as target,
    ):
        target.write(clean(source.read(head_bytes)))
        remaining = size - head_bytes - tail_bytes
        while remaining:
            block = source.read(min(_COPY_BYTES, remaining))
            target.write(block)
            remaining -= len(block)
        target.write(clean(source.read()))
