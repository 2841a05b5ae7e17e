"""Text of engines in Markdown and HTML: seen by a reader of each that we did not write."""

from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from harness.report import diff_pages, markdown
from harness.report.diff import compare
from tests.report.test_diff import FAIL, result, run

HOSTILE = [
    "a | b \\| c",
    "</td></tr></table><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "line\n\n# heading\n| --- |",
    "`code` **bold** _it_ ~~gone~~ $x$",
    "[link](https://example.org) ![i](x) <https://example.org>",
    "[link]: https://example.org",
    "&lt;b&gt; &#60;",
    "a\x00b\x1b[31mc\u202e\u2028d",
    "\\",
    "- item",
    "{{ 7 * 7 }} {% raw %}",
]


def rendered(text):
    """The cells of the only table, and the types of all tokens."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    inline = [child for token in tokens if token.type == "inline" for child in token.children]
    return [token for token in tokens if token.type == "inline"], {token.type for token in [*tokens, *inline]}


PLAIN = {f"{tag}_{end}" for tag in ("table", "thead", "tbody", "tr", "th", "td", "heading", "paragraph") for end in ("open", "close")}
PLAIN |= {"inline", "text", "text_special"}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_cell_holds_its_text_and_nothing_else(hostile):
    """One row of two cells, and no token but text."""
    inline, types = rendered("\n".join(markdown.table(["a", "b"], [[hostile, "end"]])))

    assert types <= PLAIN
    assert len(inline) == 4
    assert inline[3].content == "end"


@pytest.mark.parametrize("hostile", ["<b>", "a | b", "`x`", "**x**", "[x](y)"])
def test_a_renderer_would_see_it_if_it_were_not_escaped(hostile):
    """The twin: the same text as it is."""
    inline, types = rendered(f"| a | b |\n| --- | --- |\n| {hostile} | end |")

    assert not types <= PLAIN or inline[3].content != "end"


@pytest.mark.parametrize("plain", ["duplex/x:sdpa=efficient@gpu", "duplex.isolation.back_to_back", "1.5 ms (x2)"])
def test_names_of_ours_stay_readable(plain):
    assert markdown.text(plain) == plain


@pytest.mark.parametrize(
    ("call", "written"), [("see @torvalds", "see @&#8288;torvalds"), ("a@b.org", "a@&#8288;b.org"), ("www.x", "www&#8288;.x")]
)
def test_nobody_is_called_and_nothing_linked(call, written):
    assert markdown.text(call) == written


def test_a_long_text_and_a_long_table_are_cut():
    assert markdown.text("x" * 500) == "x" * 200 + "..."
    assert markdown.table(["a"], [[n] for n in range(60)])[-1] == "and 10 more"


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.said = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.said += data


def page(**fields):
    return diff_pages.to_html(compare([run(result())], [run(result(FAIL, **fields))]))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_adds_no_tag_to_the_page(hostile):
    """As reason, as replay and as version."""
    shown, harmless = Tags(page(reason=hostile, replay=hostile, version=hostile)), Tags(page(reason="x", replay="x", version="x"))

    assert shown.tags == harmless.tags


def test_the_page_shows_the_text_itself():
    assert "<script>alert(1)</script>" in Tags(page(reason="<script>alert(1)</script>")).said
