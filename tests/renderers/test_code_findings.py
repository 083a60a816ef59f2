"""Findings on lines of code: SARIF that follows the standard, annotations that cannot be broken out of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import msgspec
import pytest

from tests.renderers.sarif_subset import SCHEMA
from tests.sample_analysis import HOSTILE, cpu_only_analysis, hostile_analysis, sample_analysis
from tests.shared_data import ROOT, shared
from traceanalyzer import cli
from traceanalyzer.cli.source_tree import SourceTree
from traceanalyzer.pipeline import analyze
from traceanalyzer.renderers.code_findings import render_annotations, render_sarif
from traceanalyzer.renderers.github import annotation
from traceanalyzer.results.analysis import Analysis
from traceanalyzer.results.answer import firing
from traceanalyzer.results.places import CodePlace, code_place, code_places
from traceanalyzer.results.vocabulary import FindingKind

VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
COMMAND = re.compile(r"::(error|warning|notice) (?:file=([^,:]+),)?(?:line=(\d+),)?title=([^,:]*)::(.*)")


def here(path: str) -> str | None:
    """A repository in which every relative path is a file."""
    return None if path.startswith("/") else path


def nowhere(_: str) -> str | None:
    return None


def run_of(analysis: Analysis, relative: Any = here) -> Any:
    log = json.loads(render_sarif(analysis, relative))
    VALIDATOR.validate(log)
    (run,) = log["runs"]
    return run


def moved(where: str | None) -> Analysis:
    """The sample with all evidence of its first finding at one place, and none of the others' in the code."""
    sample = sample_analysis()
    findings = [
        msgspec.structs.replace(
            finding,
            evidence=[msgspec.structs.replace(e, where=None if number else where) for e in finding.evidence],
        )
        for number, finding in enumerate(sample.findings)
    ]
    return msgspec.structs.replace(sample, findings=findings)


def fired(analysis: Analysis) -> list[str]:
    return [f.code for kind in (FindingKind.FAULT, FindingKind.LIMITER) for f in firing(analysis, kind)]


def test_the_schema_used_here_is_one_and_refuses_a_misspelt_property() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    log = json.loads(render_sarif(sample_analysis(), here))
    log["runs"][0]["result"] = []
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(log)


@pytest.mark.parametrize("make", [sample_analysis, hostile_analysis, cpu_only_analysis])
@pytest.mark.parametrize("relative", [here, nowhere])
def test_sarif_follows_the_standard_and_names_every_finding_that_fires_once(make: Any, relative: Any) -> None:
    analysis = make()
    run = run_of(analysis, relative)
    results, (invocation,) = run["results"], run["invocations"]
    notes = invocation["toolExecutionNotifications"]
    said = [result["ruleId"] for result in results] + [note["associatedRule"]["id"] for note in notes]
    assert sorted(said) == sorted(fired(analysis))
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in results)
    assert all(rules[n["associatedRule"]["index"]]["id"] == n["associatedRule"]["id"] for n in notes)
    assert relative is here or not results


def test_a_result_points_to_the_line_and_function_relative_to_the_repository() -> None:
    (result,) = run_of(moved("src/my train.py(41): main"))["results"]
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "src/my%20train.py", "uriBaseId": "SRCROOT"},
        "region": {"startLine": 41},
    }
    assert location["logicalLocations"] == [{"name": "main", "kind": "function"}]
    assert result["level"] == "error"
    assert result["message"]["text"].startswith(f"{sample_analysis().findings[0].title.rstrip('.')}. ")


def test_the_fingerprint_survives_moved_lines_and_changes_with_file_and_function() -> None:
    def fingerprint(where: str) -> str:
        (result,) = run_of(moved(where))["results"]
        return str(result["partialFingerprints"]["findingFileFunction/v1"])

    kept = fingerprint("train.py(41): main")
    assert fingerprint("train.py(77): main") == kept
    assert len({kept, fingerprint("other.py(41): main"), fingerprint("train.py(41): other")}) == 3


def test_other_lines_of_a_finding_are_related_to_its_first() -> None:
    sample = moved(None)
    first, *rest = sample.findings
    places = [
        msgspec.structs.replace(first.evidence[0], start_ns=0, end_ns=length, where=where)
        for where, length in (("a.py(1): f", 5), ("b.py(2): g", 9), ("a.py(1): f", 5), ("backward", 50))
    ]
    analysis = msgspec.structs.replace(sample, findings=[msgspec.structs.replace(first, evidence=places), *rest])
    (result,) = run_of(analysis)["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "a.py"
    assert [r["physicalLocation"]["artifactLocation"]["uri"] for r in result["relatedLocations"]] == ["b.py"]


def test_equal_documents_give_equal_sarif() -> None:
    again = Analysis.from_json(sample_analysis().to_json())
    assert render_sarif(again, here) == render_sarif(sample_analysis(), here)


def test_an_annotation_carries_file_and_line_where_they_are_known_and_stays_without() -> None:
    lines = render_annotations(moved("src/train.py(41): main"), here).splitlines()
    commands = [COMMAND.fullmatch(line) for line in lines]
    assert all(commands)
    assert [(c[1], c[2], c[3]) for c in commands if c] == [
        ("error", "src/train.py", "41"),
        ("notice", None, None),
        ("notice", None, None),
    ]


def test_a_document_in_which_nothing_fires_is_one_notice() -> None:
    assert render_annotations(cpu_only_analysis(), here) == "::notice title=traceanalyzer::No finding fires.\n"


@pytest.mark.parametrize(
    "name",
    ["a\n::error::forged", "a\r::set-output name=x::y", "100%0A::error::x", "t,line=1::x", "\u202e::error::x", HOSTILE],
)
def test_names_cannot_start_a_command_or_end_a_property(name: str) -> None:
    sample = moved(f"{name}.py(3): {name}")
    first, *rest = sample.findings
    analysis = msgspec.structs.replace(
        sample, findings=[msgspec.structs.replace(first, title=name, slug=name, message=name, fix=[name]), *rest]
    )
    text = render_annotations(analysis, here)
    assert len(text.splitlines()) == len(fired(analysis))
    assert all(COMMAND.fullmatch(line) for line in text.splitlines())
    assert "\u202e" not in text
    run_of(analysis)


def test_escapes_are_those_the_runner_undoes() -> None:
    line = annotation("error", "a:b,c%", "x\ny%: z,", file="a,b.py", line=3)
    assert line == "::error file=a%2Cb.py,line=3,title=a%3Ab%2Cc%25::x%0Ay%25: z,"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("train.py(12): main", CodePlace("train.py", 12, "main")),
        ("C:\\code\\train.py(12): <module>", CodePlace("C:/code/train.py", 12, "<module>")),
        ("a dir/x.py:7", CodePlace("a dir/x.py", 7)),
        ("/home/u/x.py(1): f(int)", CodePlace("/home/u/x.py", 1, "f(int)")),
        ("phase backward", None),
        ("x.py(0): <module>", None),
        ("<built-in method run>", None),
        ("Optimizer.step#SGD.step", None),
        ("torch::autograd(12): x", None),
        ("", None),
    ],
)
def test_a_place_in_the_code_is_told_from_the_name_of_a_range(text: str, place: CodePlace | None) -> None:
    assert code_place(text) == place


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "home" / "repo"
    for name in ("train.py", "src/pkg/loop.py", "tools/run.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("pass\n")
    (root / ".git").mkdir()
    (tmp_path / "home" / "outside.py").write_text("pass\n")
    (root / "link.py").symlink_to(tmp_path / "home" / "outside.py")
    return root


@pytest.mark.parametrize(
    ("recorded", "found"),
    [
        ("train.py", "train.py"),
        ("pkg/loop.py", "src/pkg/loop.py"),
        ("run.py", "tools/run.py"),  # below the current folder
        ("/somewhere/else/repo/src/pkg/loop.py", "src/pkg/loop.py"),
        ("/redacted/train.py", "train.py"),
        ("C:/Users/u/repo/train.py", "train.py"),
        ("torch/nn/modules/module.py", None),
        ("/usr/lib/python3/site-packages/train.py", None),
        ("../outside.py", None),
        ("/x/../outside.py", None),
        ("link.py", None),
        ("missing.py", None),
        ("src", None),
        ("x" * 5000 + ".py", None),
        ("a\0.py", None),
    ],
)
def test_a_recorded_file_is_found_in_the_repository_or_not_at_all(
    repository: Path, recorded: str, found: str | None
) -> None:
    assert SourceTree(repository / "tools").relative(recorded) == found


def test_without_a_repository_the_folder_itself_is_the_root(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("pass\n")
    assert SourceTree(tmp_path).relative("/elsewhere/train.py") == "train.py"


@pytest.mark.parametrize("command", ["analyze", "report"])
def test_both_formats_come_from_both_commands(
    command: str, repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = repository / "analysis.json"
    document.write_bytes(moved("/recorded/elsewhere/train.py(41): main").to_json())
    monkeypatch.chdir(repository)
    assert cli.main([command, str(document), "--sarif", "out.sarif", "--github", "-"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("::error file=train.py,line=41,title=")
    log = json.loads((repository / "out.sarif").read_text(encoding="utf-8"))
    VALIDATOR.validate(log)
    (result,) = log["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "train.py"
    assert not (repository / "report.html").exists()


@pytest.mark.shared
def test_stacks_of_a_real_recording_lead_to_its_lines() -> None:
    analysis = analyze(shared("traces/h200/stack_mem.pt.trace.json.gz"))
    found = {result["ruleId"]: result for result in run_of(analysis)["results"]}
    limiter = next(f for f in analysis.findings if f.code == "TA201")
    first = code_place(code_places(limiter)[0])
    assert first is not None
    location = found["TA201"]["locations"][0]["physicalLocation"]
    assert unquote(location["artifactLocation"]["uri"]) == first.file
    assert location["region"]["startLine"] == first.line
    assert first.file.startswith("ultralytics/")
    # those files are Ultralytics', not this repository's
    assert run_of(analysis, SourceTree(ROOT).relative)["results"] == []
