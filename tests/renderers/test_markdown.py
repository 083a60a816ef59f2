"""The Markdown report, read back with a Markdown parser (the one rich brings along)."""

from __future__ import annotations

import html
import re
from collections import Counter

import msgspec
import pytest
from markdown_it import MarkdownIt

from tests.sample_analysis import HOSTILE, cpu_only_analysis, hostile_analysis, sample_analysis
from traceanalyzer.renderers.markdown import code, escape, render_markdown
from traceanalyzer.results.analysis import Analysis, KernelTotal
from traceanalyzer.results.vocabulary import FindingKind, Status

# GitHub refuses longer comments
GITHUB_COMMENT = 65_536
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def tokens(text: str) -> Counter[tuple[str, str]]:
    """Count what a Markdown parser sees: element kinds, and raw HTML with its text; plain text is left out."""
    counted: Counter[tuple[str, str]] = Counter()
    for block in PARSER.parse(text):
        for token in [block, *(block.children or [])]:
            if token.type.startswith("html"):
                counted[token.type, re.sub(r">[^<]*", ">", token.content)] += 1
            elif token.type not in {"text", "inline", "softbreak", "text_special"}:
                counted[token.type, ""] += 1
    return counted


def test_headline_is_the_first_firing_fault() -> None:
    sample = sample_analysis()
    assert render_markdown(sample).startswith(f"## {sample.findings[0].title}\n")


def test_every_firing_finding_has_a_row_and_its_fixes() -> None:
    text = render_markdown(sample_analysis())
    firing = [f for f in sample_analysis().findings if f.status is Status.FAIL]
    assert len(firing) >= 3
    for finding in firing:
        assert f"| {finding.code} |" in text
        assert escape(finding.fix[0]) in text


def test_a_change_is_shown_as_code_before_and_after_with_the_commands_that_check_it() -> None:
    blocks = [token for token in PARSER.parse(render_markdown(sample_analysis())) if token.type == "fence"]
    assert [(token.info, token.content) for token in blocks] == [
        ("python", "for batch in loader:\n    train_step(batch)\n"),
        ("python", "for batch in prefetched(loader):\n    train_step(batch)\n"),
        ("sh", "traceanalyzer record script --out=AFTER -- python train.py\ntraceanalyzer compare BEFORE AFTER\n"),
    ]


def test_code_that_tries_to_end_its_block_stays_inside() -> None:
    blocks = [token for token in PARSER.parse(render_markdown(hostile_analysis())) if token.type == "fence"]
    assert [token.content for token in blocks] == [
        f"{HOSTILE}\n",
        f"```\n{HOSTILE}\\u202e\n",
        f"{HOSTILE}\n```\n",
    ]


def test_limiters_are_listed_apart_from_faults() -> None:
    text = render_markdown(sample_analysis())
    limiter = next(f for f in sample_analysis().findings if f.kind is FindingKind.LIMITER)
    assert text.index("Causes to fix") < text.index("What bounds the step") < text.index(f"| {limiter.code} |")


def test_everything_after_the_tables_is_folded_away() -> None:
    text = render_markdown(sample_analysis())
    visible = re.sub(r"<details.*?</details>", "", text, flags=re.S)
    assert len([line for line in visible.splitlines() if line]) < 25
    assert text.count("<details") == text.count("</details>")


def test_a_report_on_ten_thousand_kernels_and_places_fits_into_a_comment() -> None:
    sample = sample_analysis()
    rank = sample.ranks[0]
    kernels = msgspec.structs.replace(
        rank.kernels, top=[KernelTotal(name=f"kernel_{i}" * 60, count=1, time_ns=1) for i in range(10_000)]
    )
    findings = [msgspec.structs.replace(f, evidence=f.evidence * 2000) for f in sample.findings]
    big = msgspec.structs.replace(sample, ranks=[msgspec.structs.replace(rank, kernels=kernels)], findings=findings)
    assert len(render_markdown(big)) < GITHUB_COMMENT / 2


def test_step_shares_add_up_to_the_whole_step() -> None:
    shares = re.findall(r"^\| (?:busy|idle): [^|]+\|[^|]+\| ([\d.]+) % \|$", render_markdown(sample_analysis()), re.M)
    assert sum(map(float, shares)) == pytest.approx(100, abs=0.05 * len(shares))


def test_recording_without_gpu_activity_says_so() -> None:
    assert render_markdown(cpu_only_analysis()).startswith("## No GPU activity")


@pytest.mark.parametrize(
    "name",
    [
        "</details><img src=x onerror=alert(1)>",
        "<!-- hidden",
        "a | b | c",
        "`code` and ``more``",
        "[click](https://example.org)",
        "![image](https://example.org/x.png)",
        "*bold* _it_ ~~gone~~",
        "@everyone please #1",
        "line\n\n# heading\n| a | b |",
        "\u202ereversed\u202c",
        "&lt;script&gt;",
        "\\`escaped",
        "www.example.org",
    ],
)
def test_names_from_a_recording_stay_text(name: str) -> None:
    text = render_markdown(named(name))
    # a Markdown parser sees the same elements as with a harmless name: no link, image, heading, tag or cell more
    assert tokens(text) == tokens(render_markdown(named("harmless")))
    outside = re.sub(r"(`+)[^`].*?\1", "", text)
    assert not re.search(r"@(?!&#8203;)", outside)
    assert "://" not in outside
    assert "\u202e" not in text


def test_escaped_text_reads_as_itself() -> None:
    name = "a*b_c<d>[e](f)`g`|h&amp;~~i~~\\$j$"
    rendered = PARSER.render(escape(name))
    assert html.unescape(rendered) == f"<p>{name}</p>\n"


@pytest.mark.parametrize("name", ["`", "``", "a`b", "`a", "a`", "", " ", "a``b`c"])
def test_code_spans_survive_backticks(name: str) -> None:
    span = code(name)
    fence = re.match(r"`+", span)
    assert fence is not None
    length = len(fence.group())
    inside = span[length:-length]
    # the fence does not occur inside, and what is inside is the name, but for one space of padding on both sides
    assert length not in {len(run) for run in re.findall(r"`+", inside)}
    assert name in (inside, inside[1:-1])


def named(name: str) -> Analysis:
    sample = sample_analysis()
    first, *rest = sample.findings
    marked = msgspec.structs.replace(
        first,
        title=f"title {name}",
        message=f"message {name}",
        fix=[f"fix {name}"],
        evidence=[msgspec.structs.replace(e, what=name, where=name) for e in first.evidence],
    )
    rank = sample.ranks[0]
    return msgspec.structs.replace(
        sample,
        inputs=[msgspec.structs.replace(sample.inputs[0], path=name, producer=name)],
        findings=[marked, *rest],
        ranks=[
            msgspec.structs.replace(
                rank,
                kernels=msgspec.structs.replace(rank.kernels, top=[KernelTotal(name=name, count=1, time_ns=1)]),
                devices=[msgspec.structs.replace(device, name=name) for device in rank.devices],
                integrity=msgspec.structs.replace(rank.integrity, notes=[name]),
            )
        ],
    )
