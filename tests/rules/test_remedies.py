"""What to change, as code: it is Python, its names exist in the libraries, and the commands that check it work."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from tests.rules.test_catalogue import module_of, raised
from tests.shared_data import ROOT
from traceanalyzer.cli.app import make_app
from traceanalyzer.pipeline import analyze
from traceanalyzer.results.answer import reaches
from traceanalyzer.results.finding import Evidence, Finding
from traceanalyzer.results.vocabulary import FindingKind, Severity, Status
from traceanalyzer.rules import RULES, catalogue
from traceanalyzer.rules.base import Remedy, RuleModule
from traceanalyzer.rules.remedies import snippet, verify, with_remedies
from traceanalyzer.rules.run import check_all

WITH_CODE = [rule for rule in RULES if rule.META.remedy is not None]
LABELLED = ROOT / "sample_traces" / "labelled"
MODULES = ("torch", "gc", "os", "threading", "time", "cv2")
CLASSES = {
    "DataLoader": "torch.utils.data",
    "DistributedSampler": "torch.utils.data",
    "DistributedDataParallel": "torch.nn.parallel",
}


def codes(rule: RuleModule) -> Iterator[tuple[str, str]]:
    remedy = rule.META.remedy
    assert remedy is not None
    yield "before", snippet(remedy, remedy.before, {})
    yield "after", snippet(remedy, remedy.after, {})


def dotted(node: ast.expr) -> str:
    """Write ``torch.cuda.Stream`` for the expression of it; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (head := dotted(node.value)):
        return f"{head}.{node.attr}"
    return ""


def resolved(name: str) -> Any:
    head, *rest = name.split(".")
    found: Any = getattr(importlib.import_module(CLASSES[head]), head) if head in CLASSES else None
    found = found if found is not None else importlib.import_module(head)
    for part in rest:
        found = getattr(found, part)
    return found


def commands() -> dict[str, Any]:
    return typer.main.get_command(make_app()).commands  # type: ignore[attr-defined, no-any-return]


def test_every_rule_but_those_that_point_to_another_has_an_example() -> None:
    without = {rule.META.code for rule in RULES} - {rule.META.code for rule in WITH_CODE}
    # follow the cause that grew (TA804, TA805), and nothing to change (TA903)
    assert without == {"TA804", "TA805", "TA903"}


@pytest.mark.parametrize("rule", WITH_CODE, ids=lambda rule: rule.META.code)
def test_snippets_are_python_differ_and_fit_beside_each_other(rule: RuleModule) -> None:
    texts = dict(codes(rule))
    for text in texts.values():
        compile(text, rule.META.code, "exec")
        assert max(len(line) for line in text.splitlines()) <= 110
        assert "$" not in text
    assert texts["before"] != texts["after"]
    assert rule.META.remedy is not None
    assert rule.META.remedy.settings


@pytest.mark.parametrize("rule", WITH_CODE, ids=lambda rule: rule.META.code)
def test_names_and_options_of_libraries_in_snippets_exist(rule: RuleModule) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("cv2")
    for _, text in codes(rule):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute | ast.Name):
                name = dotted(node)
                if name.split(".")[0] in (*MODULES, *CLASSES):
                    resolved(name)
            if isinstance(node, ast.Call) and dotted(node.func).split(".")[0] in (*MODULES, *CLASSES):
                function = resolved(dotted(node.func))
                try:
                    known = inspect.signature(function).parameters
                except ValueError:  # written in C
                    continue
                takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
                named = {keyword.arg for keyword in node.keywords if keyword.arg}
                # torch.Event(enable_timing=…) and the like take what their documentation names
                assert takes_any or "args" in known or named <= set(known), dotted(node.func)


@pytest.mark.parametrize("rule", WITH_CODE, ids=lambda rule: rule.META.code)
def test_ultralytics_settings_in_snippets_exist(rule: RuleModule) -> None:
    known = set(pytest.importorskip("ultralytics.cfg").DEFAULT_CFG_DICT)
    remedy = rule.META.remedy
    assert remedy is not None
    named = {word for text in remedy.settings if text.startswith("Ultralytics: ") for word in text[13:].split(", ")}
    for _, text in codes(rule):
        for call in re.findall(r"model\.train\((data=.*)\)", text):
            named |= {keyword.arg or "" for keyword in ast.parse(f"f({call})", mode="eval").body.keywords}  # type: ignore[attr-defined]
    named |= {word.split("=")[1] for word in remedy.yolo if word.startswith("--set=")}
    assert named <= known


@pytest.mark.parametrize("rule", WITH_CODE, ids=lambda rule: rule.META.code)
def test_an_after_snippet_uses_no_name_that_python_or_before_would_not_know(rule: RuleModule) -> None:
    # names a training script has anyway
    usual = {"model", "loader", "dataset", "optimizer", "criterion", "images", "targets", "batch", "boxes", "epochs"}
    usual |= {"train_step", "train_epoch", "validate", "writer", "validation_set", "rank", "local_rank", "schedule"}
    usual |= {"model", "loss", *MODULES, *CLASSES, *dir(builtins)}
    for _, text in codes(rule):
        tree = ast.parse(text)
        bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        bound |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        bound |= {a.arg for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) for a in n.args.args}
        used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        assert used <= usual | bound


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.META.code)
def test_commands_that_verify_exist_with_their_options(rule: RuleModule) -> None:
    for command in ("record yolo --workers=0 --fault=few-workers --set=nbs=16 --no-amp --out=X", None):
        for line in verify(rule.META, command, {}):
            program, name, *words = shlex.split(line.split(" -- ")[0])
            assert program == "traceanalyzer"
            found = commands()[name]
            if hasattr(found, "commands"):
                found = found.commands[words[0]]
            known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
            assert {word.split("=")[0] for word in words if word.startswith("-")} <= known


def test_a_finding_carries_the_change_with_its_own_numbers() -> None:
    findings = analyze(LABELLED / "single-process-loader").findings
    remedy = findings[0].remedy
    assert remedy is not None
    assert findings[0].observed["workers_needed"] == 2
    assert "num_workers=2," in remedy.after
    # recorded with: record yolo --steps=4 --workers=0 --fault=single-process-loader --set=nbs=16
    assert remedy.verify == [
        "traceanalyzer record yolo --steps=4 --set=nbs=16 --workers=2 --out=AFTER",
        "traceanalyzer analyze AFTER --select TA101 --fail-on low",
        "traceanalyzer compare BEFORE AFTER --allow-different",
    ]
    assert all(f.remedy is None for f in findings if f.status is Status.PASS)


@pytest.mark.parametrize(
    ("sample", "code"),
    [("single-process-loader", "TA101"), ("pageable", "TA301"), ("empty-cache", "TA402"), ("anomaly-mode", "TA207")],
)
def test_the_second_command_tells_the_recording_with_the_cause_from_the_one_without(sample: str, code: str) -> None:
    assert reaches(analyze(LABELLED / sample, select=[code]), Severity.LOW)
    assert not reaches(analyze(LABELLED / "good", select=[code]), Severity.LOW)


def test_options_that_make_the_change_replace_those_that_made_the_cause() -> None:
    amp = next(rule.META for rule in RULES if rule.META.code == "TA601")
    line = verify(amp, "record yolo --no-amp --batch=4 --fault=amp-off --trial-seconds=5 --overwrite", {})[0]
    assert line == "traceanalyzer record yolo --batch=4 --amp --out=AFTER"
    mosaic = next(rule.META for rule in RULES if rule.META.code == "TA105")
    line = verify(mosaic, "record yolo --set=mixup=1.0 --set=mosaic=1", {})[0]
    assert line == (
        "traceanalyzer record yolo --set=mosaic=1 --set=mixup=0 --set=degrees=0 --set=shear=0 --set=perspective=0 "
        "--out=AFTER"
    )


@pytest.mark.parametrize(
    "command",
    [
        "record yolo --data=$(rm -rf ~)",
        "record yolo --name=a b",
        "record script -- python t.py --key=secret",
        7,
        "",
        "x",
    ],
)
def test_a_command_that_is_not_plainly_one_of_ours_is_not_repeated(command: object) -> None:
    line = verify(WITH_CODE[0].META, command, {})[0]
    assert line == "traceanalyzer record script --out=AFTER -- python train.py"


def test_rules_about_memory_ask_for_a_recording_of_memory() -> None:
    for rule in RULES:
        if rule.META.category == "memory" and rule.META.code != "TA402":
            assert " --memory " in verify(rule.META, None, {})[0]


def test_the_line_with_most_time_in_evidence_is_named() -> None:
    def place(where: str | None, length: int) -> Evidence:
        return Evidence(start_ns=0, end_ns=length, what="x", where=where)

    finding = Finding(
        code="TA501",
        slug="sync-in-step",
        kind=FindingKind.FAULT,
        status=Status.FAIL,
        title="t",
        message="m",
        evidence=[
            place("train.py(7): main", 3),
            place("a/loss.py:12", 2),
            place("a/loss.py:12", 2),
            place("backward", 9),
        ],
    )
    (changed,) = with_remedies([finding], {})
    assert changed.remedy is not None
    assert changed.remedy.where == "a/loss.py:12"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.META.code)
def test_explain_shows_example_and_commands_after_how_to_fix(rule: RuleModule) -> None:
    page = catalogue.explain(rule.META.code)
    headings = re.findall(r"^## (.*)$", page, re.M)
    assert ("Example" in headings) == (rule.META.remedy is not None)
    assert ("Verify" in headings) == (rule.META.kind is not FindingKind.NOTE)
    if rule.META.remedy is not None:
        assert headings[headings.index("How to fix") + 1] == "Example"
        for _, text in codes(rule):
            assert f"```python\n{text}\n```" in page


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.META.code)
def test_what_fires_has_a_remedy_and_only_that(rule: RuleModule) -> None:
    for finding in with_remedies(check_all(module_of(rule).fires()), {}):
        if finding.code == "TA903":
            continue
        assert (finding.remedy is not None) == raised(finding)


def test_numbers_that_were_not_observed_have_a_stand_in() -> None:
    remedy = Remedy(settings=("x",), before="x = 1", after="x = $wanted", stand_ins={"wanted": 8})
    assert snippet(remedy, remedy.after, {}) == "x = 8"
    assert snippet(remedy, remedy.after, {"wanted": 3}) == "x = 3"
    assert snippet(remedy, remedy.after, {"wanted": None}) == "x = 8"
    assert snippet(remedy, remedy.after, {"wanted": "; import os"}) == "x = 8"
