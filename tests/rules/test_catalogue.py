"""Every rule, alike: registry, documentation, fires and quiet traces, evidence, and who fires beside whom."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

import traceanalyzer.rules as package
from tests.rules.support import empty, healthy
from tests.tools import rule_pages
from traceanalyzer.errors import UsageError
from traceanalyzer.measures import Measures
from traceanalyzer.results.finding import Finding
from traceanalyzer.results.vocabulary import FindingKind, Status
from traceanalyzer.rules import RULES, catalogue
from traceanalyzer.rules.base import RuleModule, thresholds_dict
from traceanalyzer.rules.evidence import MOST
from traceanalyzer.rules.run import check_all

FOLDER = Path(package.__file__).parent
GOLDEN = Path(__file__).parent / "golden"
UPDATE = "UPDATE_GOLDEN"
SLUGS = [rule.META.slug for rule in RULES]

every_rule = pytest.mark.parametrize("rule", RULES, ids=SLUGS)


def module_of(rule: RuleModule) -> ModuleType:
    return importlib.import_module(f"tests.rules.test_{rule.META.slug.replace('-', '_')}")


def raised(finding: Finding) -> bool:
    return finding.status is (Status.INFORMATIVE if finding.kind is FindingKind.NOTE else Status.FAIL)


def check_golden(path: Path, text: str) -> None:
    if os.environ.get(UPDATE):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{path.name} is out of date: run with {UPDATE}=1 and review"


def test_the_registry_lists_exactly_the_files_that_hold_a_rule() -> None:
    files = {p.stem for p in FOLDER.glob("*.py") if "\nMETA = " in p.read_text(encoding="utf-8")}
    assert files == {slug.replace("-", "_") for slug in SLUGS}


def test_codes_and_slugs_are_unique_and_in_code_order() -> None:
    codes = [rule.META.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert len(set(SLUGS)) == len(SLUGS)


@every_rule
def test_a_rule_file_is_named_by_its_slug_and_has_a_test_file(rule: RuleModule) -> None:
    name = rule.META.slug.replace("-", "_")
    assert rule.__name__ == f"traceanalyzer.rules.{name}"  # type: ignore[attr-defined]
    assert (Path(__file__).parent / f"test_{name}.py").exists()


@every_rule
def test_the_docstring_has_every_heading_in_order_and_text_under_each(rule: RuleModule) -> None:
    found = catalogue.sections(rule)
    assert tuple(found) == catalogue.HEADINGS
    assert all(found.values())


@every_rule
def test_titles_differ_between_pass_and_fail(rule: RuleModule) -> None:
    assert rule.META.fail_title != rule.META.pass_title


@every_rule
def test_every_threshold_has_a_comment_giving_its_source(rule: RuleModule) -> None:
    lines = Path(str(rule.__file__)).read_text(encoding="utf-8").splitlines()  # type: ignore[attr-defined]
    for name in thresholds_dict(rule.Thresholds()):
        at = next(i for i, line in enumerate(lines) if line.strip().startswith(f"{name}:"))
        assert lines[at - 1].strip().startswith("#"), f"{name} needs a comment above it"


@every_rule
def test_explain_prints_the_page_by_code_and_by_slug(rule: RuleModule) -> None:
    page = catalogue.explain(rule.META.code.lower())
    assert page == catalogue.explain(rule.META.slug)
    for heading in catalogue.HEADINGS:
        assert f"\n## {heading}\n" in page


def test_explain_refuses_an_unknown_rule_in_one_line() -> None:
    with pytest.raises(UsageError, match="no rule 'TA999'"):
        catalogue.explain("TA999")


def test_the_catalogue_and_every_rules_page_are_up_to_date() -> None:
    if os.environ.get(UPDATE):
        rule_pages.main()
    for path, text in rule_pages.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m tests.tools.rule_pages"
    assert rule_pages.strangers() == []


@every_rule
def test_a_page_gives_the_source_of_each_threshold(rule: RuleModule) -> None:
    page = catalogue.explain(rule.META.code)
    for name, value in thresholds_dict(rule.Thresholds()).items():
        line = next(line for line in page.splitlines() if line.startswith(f"- `{name}` = {value}: "))
        assert len(line.split(": ", 1)[1]) > 15


@every_rule
def test_fires_fires_and_quiet_is_quiet(rule: RuleModule) -> None:
    module = module_of(rule)
    code = [rule.META.code]
    assert raised(check_all(module.fires(), select=code)[0])
    assert check_all(module.quiet(), select=code)[0].status is Status.PASS


@every_rule
def test_evidence_lies_inside_the_recording_and_is_capped(rule: RuleModule) -> None:
    measures = module_of(rule).fires()
    finding = check_all(measures, select=[rule.META.code])[0]
    assert len(finding.evidence) <= min(MOST, finding.evidence_count)
    if finding.kind is not FindingKind.NOTE:
        assert finding.evidence
    last = max(int(measures.steps.end_ns.max()), *(d.span_end_ns for d in measures.devices))
    for place in finding.evidence:
        assert 0 <= place.start_ns < place.end_ns <= last
        assert place.what
    assert [p.start_ns for p in finding.evidence] == sorted(p.start_ns for p in finding.evidence)


@every_rule
def test_a_finding_survives_json(rule: RuleModule) -> None:
    for measures in (module_of(rule).fires(), module_of(rule).quiet(), empty()):
        finding = check_all(measures, select=[rule.META.code])[0]
        assert msgspec.json.decode(msgspec.json.encode(finding), type=Finding) == finding


@every_rule
def test_a_firing_rule_tells_numbers_thresholds_and_what_to_do(rule: RuleModule) -> None:
    finding = check_all(module_of(rule).fires(), select=[rule.META.code])[0]
    assert finding.title == rule.META.fail_title
    assert finding.observed
    assert finding.fix
    assert any(ch.isdigit() for ch in finding.message)
    assert set(thresholds_dict(rule.Thresholds())) <= set(finding.thresholds)


@every_rule
def test_what_a_rule_says_is_the_same_every_time(rule: RuleModule) -> None:
    code = [rule.META.code]
    assert check_all(module_of(rule).fires(), select=code) == check_all(module_of(rule).fires(), select=code)


def test_an_empty_recording_raises_no_fault_no_limiter_and_no_error() -> None:
    assert {f.status for f in check_all(empty())} <= {Status.NOT_APPLICABLE, Status.PASS}


def test_a_healthy_loop_raises_nothing_but_the_note_that_it_is_healthy() -> None:
    assert [f.code for f in check_all(healthy()) if raised(f)] == ["TA903"]


def test_who_fires_beside_whom_is_known() -> None:
    matrix = {}
    for rule in RULES:
        measures: Measures = module_of(rule).fires()
        findings = check_all(measures)
        assert not [f for f in findings if f.status is Status.ERROR]
        matrix[rule.META.code] = [f.code for f in findings if raised(f)]
    check_golden(GOLDEN / "co_firing.json", json.dumps(matrix, indent=1) + "\n")
