"""Reading one Kineto recording with each of the two parsers, and saying whether they agree to the byte."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.robustness.mutation import HOSTILE_VALUES, mutate_bytes, mutate_kineto
from tests.robustness.recordings import kineto_events
from traceanalyzer.errors import TraceFormatError
from traceanalyzer.readers import kineto, kineto_chunks
from traceanalyzer.readers.kineto_msgspec import MsgspecParser
from traceanalyzer.readers.kineto_scanner import ScannerParser

# what a fast reader gets wrong first, as text of members
MEMBERS = (
    '"ts": 1000300.1235', '"ts": 1000300.12349999', '"ts": 0.0005', '"ts": -1.5', '"ts": 1e3', '"ts": 01', '"ts": 1.',
    '"ts": .5', '"ts": "12.5"', '"ts": 123456789012345', '"ts": 1234567890123456', '"ts": 12345678901234567.5',
    '"ts": 9223372036854775.807', '"ts": 1000300.' + "1" * 40, '"ts": true', '"ts": -0', '"dur": -0.0',
    '"dur": 0', '"dur": null', '"dur": 5.0004', '"dur": 5.0005', '"dur": 9007199254740993', '"dur": 00',
    '"pid": -1', '"pid": "4242"', '"tid": "stream 7"', '"tid": null', '"tid": 18446744073709551616', '"tid": 7.5',
    '"tid": 999999999999999999', '"tid": 9223372036854775807', '"pid": true', '"pid": [1]', '"pid": {}',
    '"name": "caf\u00e9"', '"name": "a\\\\b"', '"name": "a\\/b"', '"name": "\\u0041"', '"name": "\\ud83d\\ude00"',
    '"name": "\\ud83d"', '"name": ""', '"name": null', '"name": "a\\"b"', '"name": "' + "n" * 200 + '"',
    '"name": "[memory]"', '"na\\u006de": "escaped key"', '"ph": "i"', '"ph": "I"', '"ph": "B"', '"ph": ""',
    '"ph": "s"', '"ph": "t"', '"ph": "XX"', '"ph": null', '"cat": "Kernel"', '"cat": "KERNEL"', '"cat": "cpu_op"',
    '"cat": null', '"cat": ""', '"cat": "python_function"', '"cat": "gpu_memcpy"', '"cat": "ac2g"', '"cat": "x"',
    '"args": null', '"args": {}', '"args": []', '"args": {"stream": 7}', '"args": {"device": 0, "stream": 7}',
    '"args": {"device": 3000000000, "stream": 7, "grid": [2147483647, 65535, 65535], "block": [1, 1, 1]}',
    '"args": {"device": 0, "stream": 7, "grid": [1, 2], "block": [0, 1, 1], "registers per thread": 99999999999}',
    '"args": {"device": "0", "stream": "7", "correlation": 0, "bytes": 5.5}',
    '"args": {"device": 0, "stream": 7, "toDevice": 1, "fromDevice": 0, "bytes": 12, "correlation": -3}',
    '"args": {"Input Dims": [ [1,  2], [] ], "Concrete Inputs": ["", "[1, 2]", true, null, -1.5e-3]}',
    '"args": {"Input Dims": [["\\u0041"], ["a b"]]}', '"args": {"Input Dims": {}}', '"args": {"Input Dims": [}',
    '"args": {"Python id": 5, "Python parent id": null}', '"args": {"Python id": "x", "x": {"y": [{"z": tru}]}}',
    '"args": {"correlation": 5, "correlation": 6}, "args": {"correlation": 7}', '"args": {"x": [1,]}',
    '"args": {"dst": 1, "size": 64, "correlation": 21}', '"x": [' * 70 + "]" * 70, '"x": {"a": }', '"x": 1 2',
    '"x": "tab\there"', '"x": "\\q"', '"x": 1.e5', '"x": 1e+', '"x": -', '"x": nul', '"x": 0x10', '"x": +1',
    '"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": 1', '"x"  :\r\n 1',
    '"args": {"Addr": 18446744073709551615, "Bytes": -512, "Device Type": 0, "Total Allocated": 1}',
    '"args": {"wait_on_cuda_event_record_corr_id": "\udcff"}', '"args": {"Ev Idx": 1, "name": "\udcff"}',
)  # fmt: skip


def make_recording(chance: random.Random, steps: int = 4) -> bytes:
    """Return a Kineto file with one to three unusual members or damaged places, in any layout."""
    if chance.random() < 0.3:
        return mutate_kineto(chance, steps)
    events = kineto_events(steps)
    if chance.random() < 0.2:
        values = chance.choice(events).setdefault("args", {})
        values[chance.choice([*values, "Python id"])] = chance.choice(HOSTILE_VALUES)
    layout: dict[str, Any] = chance.choice(
        ({}, {"indent": 1}, {"indent": 4}, {"separators": (",", ":")}, {"indent": "\t"}, {"ensure_ascii": False})
    )
    texts = [json.dumps(event, **layout) for event in events]
    for _ in range(chance.choice((1, 1, 2, 3))):
        place = chance.randrange(len(texts))
        member = chance.choice(MEMBERS)
        text = texts[place]
        if chance.random() < 0.5:
            texts[place] = text[:-1].rstrip() + ", " + member + "}"  # the last of its name counts
        else:
            texts[place] = "{" + member + ", " + text[1:].lstrip()
    between = chance.choice((",", ", ", ",\n  ", " ,\r\n\t"))
    after = chance.choice(("]}", "]", '], "x": [{"ph": 1}, {"name": 2}]}', "\n ]\n}\n", ", ]}", ""))
    data = ('{"schemaVersion": 1, "traceEvents": [' + between.join(texts) + after).encode("utf-8", "surrogatepass")
    return mutate_bytes(data, chance) if chance.random() < 0.3 else data


def read_with(parser: type[Any], path: Path, block_bytes: int | None = None) -> Any:
    """Read a recording with one of the parsers into something that compares byte by byte; the message of a refusal."""
    with (
        patch.object(kineto, "choose_parser", lambda _, integrity: parser(integrity)),
        patch.object(kineto_chunks, "BLOCK_BYTES", block_bytes or kineto_chunks.BLOCK_BYTES),
        # one file has one fingerprint, and to make it takes long beside reading a small file
        patch.object(kineto, "fingerprint", lambda path: path.name),
    ):
        try:
            return _contents(kineto.read(path).traces[0])
        except TraceFormatError as error:
            return str(error)


def difference(path: Path, block_bytes: int | None = None) -> str:
    """Say in what the two parsers differ on a recording; empty where they agree."""
    scanned = read_with(ScannerParser, path, block_bytes)
    tolerant = read_with(MsgspecParser, path, block_bytes)
    if scanned == tolerant:
        return ""
    if isinstance(scanned, dict) and isinstance(tolerant, dict):
        return "; ".join(
            f"{name}: {scanned[name]!r:.2000} instead of {value!r:.2000}"
            for name, value in tolerant.items()
            if scanned[name] != value
        )
    return f"{scanned!r:.300} instead of {tolerant!r:.300}"


def _contents(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes() if len(value) > 400 else value.tolist()
    if isinstance(value, list | tuple):
        return [_contents(each) for each in value]
    if dataclasses.is_dataclass(value):
        return {each.name: _contents(getattr(value, each.name)) for each in dataclasses.fields(value)}
    return value
