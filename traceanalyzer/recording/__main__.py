"""Run the recording commands: ``python -m traceanalyzer.recording yolo --out RUN``."""

from __future__ import annotations

import sys

from traceanalyzer.recording.command import main

if __name__ == "__main__":
    sys.exit(main())
