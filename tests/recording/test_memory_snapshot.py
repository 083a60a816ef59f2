"""Snapshots do not say where on the machine the code lay."""

from __future__ import annotations

from typing import Any

import pytest

from traceanalyzer.recording.memory_snapshot import short_path, shorten_paths


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/home/a/env/lib/python3.12/site-packages/torch/nn/modules/module.py", "torch/nn/modules/module.py"),
        ("/usr/lib/python3.12/threading.py", "threading.py"),
        ("/home/a/project/train.py", "train.py"),
        ("??", "??"),
    ],
)
def test_a_path_keeps_what_names_the_code(path: str, short: str) -> None:
    assert short_path(path) == short


def test_every_stack_of_a_snapshot_is_shortened_once() -> None:
    shared = [{"filename": "/home/a/train.py", "line": 3, "name": "main"}]
    snapshot: dict[str, Any] = {
        "segments": [{"frames": [], "blocks": [{"frames": shared, "history": [{"frames": shared}]}]}],
        "device_traces": [[{"action": "alloc", "frames": shared}, {"action": "oom"}]],
    }
    shorten_paths(snapshot)
    assert shared == [{"filename": "train.py", "line": 3, "name": "main"}]
