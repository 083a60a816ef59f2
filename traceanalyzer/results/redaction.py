"""Taking people and machines out of text: user and host names, folders, containers; numbers stay as they are."""

from __future__ import annotations

import contextlib
import getpass
import re
import socket
from collections.abc import Iterable
from typing import Any

import msgspec

from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.baseline import Baseline
from traceanalyzer.results.comparison import Comparison
from traceanalyzer.results.vocabulary import CAUSES, PHASES, StepClass

# absolute, and without brackets, because the rules tell code from interpreter frames (``<built-in …>``) by them
FOLDER = "/redacted"
USER = "redacted-user"
HOST = "redacted-host"
CONTAINER = "redacted-container"

# names come from both kinds of home folders; a component may hold spaces
_HOME = re.compile(r"(?:/home|/Users|[A-Za-z]:[\\/]+(?:Users|Documents and Settings))[\\/]+([^\\/:*?\"<>|\r\n]{1,100})")
# torch.profiler names its files host_pid.time
_TRACE_FILE = re.compile(
    r"(?:^|[\\/\"])([^\\/\"\s]{1,100})_\d+\.\d+\.pt\.trace\.json"
)  # how torch.profiler names files: host_pid.time
_MEMBER = re.compile(r'"(?:host_?name|node_?name|user_?name|user|host)"\s*:\s*"([^"\\]+)"', re.IGNORECASE)
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>|]+")
_WINDOWS_PATH = re.compile(r"(?<![A-Za-z])[A-Za-z]:[\\/](?:[^\\/:*?\"<>|\r\n]+[\\/]+)*")
_UNIX_PATH = re.compile(r"(?<![\w/.<>*&)\]])(?:~|\.\.)?/(?:[^\s/\\:\"'<>|(),;=]+/)+")
_HOME_WITH_SPACES = re.compile(r"/(?:home|Users)/[^/:\"<>|\r\n]+/")
_PACKAGES = re.compile(r"(?:site-packages|dist-packages|lib[\\/]python\d[\d.]*)[\\/]")
# a Docker id, short or whole, and the name of a pod of a deployment
_CONTAINER = re.compile(
    r"\b(?:(?=\d*[a-f])(?=[a-f]*\d)(?:[0-9a-f]{64}|[0-9a-f]{12})|[a-z][a-z0-9-]*-[0-9a-f]{8,10}-[a-z0-9]{5})\b"
)
# words that name nobody, or that the analysis itself uses
_COMMON = frozenset(
    {"root", "user", "users", "home", "admin", "ubuntu", "runner", "data", "train", "training", "test", "tmp", "work",
     "workspace", "model", "models", "local", "localhost", "main", "python", "torch", "cuda", "nvidia", "gpu", "cpu",
     "host", "kernel", "step", "steps", "shared", "public", "app", "default", "none", "unknown", "redacted"}
)  # fmt: skip
_OWN = frozenset(word for term in (*CAUSES, *PHASES, *StepClass) for word in (term.value, *term.value.split("_")))
_SHORTEST = 3

# members of a document whose words are the tool's own
_FIXED = frozenset(
    {"schema", "tool", "format", "fingerprint", "verdict", "source", "class", "code", "slug", "kind", "status",
     "severity", "basis", "cause", "phase", "origin_ns", "family", "thresholds", "id"}
)  # fmt: skip


class Redactor:
    """Replaces what identifies a person or a machine.

    Home folders, file names and members such as ``hostname`` of the texts it learns from tell it the names to look
    for; the names of this user and this machine are known without.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self._done: dict[str, str] = {}
        self._learn(socket.gethostname(), HOST)
        with contextlib.suppress(OSError, KeyError):  # a user without a name has none to hide
            self._learn(getpass.getuser(), USER)

    def learn(self, texts: Iterable[str]) -> None:
        """Find the names of users and hosts in texts."""
        for text in texts:
            for match in _HOME.finditer(text):
                self._learn(match.group(1), USER)
            for pattern in (_TRACE_FILE, _MEMBER):
                for match in pattern.finditer(text):
                    self._learn(match.group(1), HOST)

    def _learn(self, name: str, stand_in: str) -> None:
        name = name.strip()
        if len(name) < _SHORTEST or name.lower() in _COMMON | _OWN or name.isdigit():
            return
        if name not in self._names:
            self._names[name] = stand_in
            ordered = sorted(self._names, key=len, reverse=True)
            self._pattern = re.compile(
                r"(?<![A-Za-z0-9])(?:" + "|".join(map(re.escape, ordered)) + r")(?![A-Za-z0-9])", re.IGNORECASE
            )
            self._done.clear()

    def text(self, text: str) -> str:
        """Return a text without names, folders, addresses and containers."""
        done = self._done.get(text)
        if done is None:
            done = self._done[text] = self._redact(text)
        return done

    def _redact(self, text: str) -> str:
        if "/" in text or "\\" in text:
            text = _URL.sub(lambda match: f"{FOLDER}/{match.group().rsplit('/', 1)[-1]}", text)
            text = _HOME_WITH_SPACES.sub("/home/_/", text)
            for pattern in (_WINDOWS_PATH, _UNIX_PATH):
                text = pattern.sub(_without_folder, text)
        text = _ADDRESS.sub(f"{USER}@{HOST}", text) if "@" in text else text
        if self._pattern is not None:
            text = self._pattern.sub(self._stand_in, text)
        return _CONTAINER.sub(CONTAINER, text)

    def _stand_in(self, match: re.Match[str]) -> str:
        found = match.group().lower()
        return next(stand_in for name, stand_in in self._names.items() if name.lower() == found)


def _without_folder(match: re.Match[str]) -> str:
    # which file of a library it is says nothing about anybody, and the rules read it
    folder = match.group()
    packages = list(_PACKAGES.finditer(folder))
    return f"{FOLDER}/{folder[packages[-1].start() :]}" if packages else f"{FOLDER}/"


def redact_analysis(analysis: Analysis) -> Analysis:
    """Return the document without user names, host names, folders and containers; every number is the same.

    Args:
        analysis: Any analysis; tables that need the recording are no longer reachable from the result.
    """
    document = msgspec.to_builtins(analysis)
    redactor = Redactor()
    redactor.learn(_texts(document))
    return msgspec.convert(_walk(document, redactor), Analysis)


def redact_comparison(comparison: Comparison) -> Comparison:
    """Return the document without user names, host names, folders and containers; every number is the same.

    Args:
        comparison: Any comparison.
    """
    document = msgspec.to_builtins(comparison)
    redactor = Redactor()
    redactor.learn(_texts(document))
    return msgspec.convert(_walk(document, redactor), Comparison)


def redact_baseline(baseline: Baseline) -> Baseline:
    """Return the baseline without user names, host names, folders and containers; every number is the same.

    Args:
        baseline: Any baseline.
    """
    document = msgspec.to_builtins(baseline)
    redactor = Redactor()
    redactor.learn(_texts(document))
    return msgspec.convert(_walk(document, redactor), Baseline)


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield key
            yield from _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)


def _walk(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, dict):
        return {key: member if key in _FIXED else _walk(member, redactor) for key, member in value.items()}
    if isinstance(value, list):
        return value if value and isinstance(value[0], int | float) else [_walk(member, redactor) for member in value]
    return value
