"""Scripts in displays would run in the browser, outside the sandbox."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from cellblock.safe_output.bundle import CleanBundle, clean_bundle
from tests.kernel.live_kernel import LiveKernel, install, open_kernel

pytestmark = pytest.mark.kernel

_SHOW_SCRIPTS = (
    "from IPython.display import HTML, Javascript, display\n"
    "display(HTML('<b>shown</b><script>alert(1)</script>'))\n"
    "display(Javascript('alert(2)'))"
)
_SHOW_WIDGET = (
    "display({'text/plain': 'Slider', 'application/vnd.jupyter.widget-view+json': "
    "{'model_id': '1'}}, raw=True)"
)


def test_scripts_are_left_out_with_one_note(kernel: LiveKernel) -> None:
    reply = kernel.run(_SHOW_SCRIPTS)
    first, second = (content["data"] for content in reply.of_kind("display_data"))
    assert first["text/html"] == "<b>shown</b>"
    assert list(second) == ["text/plain"]
    assert reply.text("stderr").count("--allow-scripts") == 1


@pytest.mark.slow
def test_scripts_and_metadata_are_shown_on_request(kernels: Path) -> None:
    install("--allow-scripts", name="scripts")
    with open_kernel(kernels / "scripts", "scripts") as kernel:
        reply = kernel.run(_SHOW_SCRIPTS)
        first, second = (content["data"] for content in reply.of_kind("display_data"))
        assert "<script>" in first["text/html"]
        assert second["application/javascript"] == "alert(2)"
        assert reply.text("stderr") == ""
        reply = kernel.run(
            "display({'text/markdown': '<b>'}, raw=True, metadata={'text/markdown': {'a': 1}})"
        )
        (shown,) = reply.of_kind("display_data")
        assert shown["data"] == {"text/markdown": "<b>"}
        assert shown["metadata"] == {"text/markdown": {"a": 1}}
        # Widgets cannot be shown, with their own note.
        reply = kernel.run(_SHOW_WIDGET)
        assert reply.of_kind("display_data")[0]["data"] == {"text/plain": "Slider"}
        assert "Widgets" in reply.text("stderr")


@pytest.mark.slow
def test_tables_of_pandas_keep_their_form_and_colours(kernel: LiveKernel) -> None:
    reply = kernel.run("import pandas as pd\npd.DataFrame({'x': [1]})")
    html = reply.of_kind("execute_result")[0]["data"]["text/html"]
    assert 'class="dataframe"' in html
    assert "<td>1</td>" in html
    assert reply.text("stderr") == ""
    reply = kernel.run(
        "columns = pd.MultiIndex.from_product([['a', 'b'], ['c', 'd']], names=['x', 'y'])\n"
        "table = pd.DataFrame([[1, 2, 3, 4]], columns=columns)\n"
        "display(table, table.T, table.style)"
    )
    assert all("text/html" in shown["data"] for shown in reply.of_kind("display_data"))
    assert reply.text("stderr") == ""
    kernel.run("table = pd.DataFrame({'x': [1, 2]})")
    for style in ("highlight_max()", "bar()", "highlight_max(props='color: red;')"):
        reply = kernel.run(f"table.style.{style}")
        html = reply.of_kind("execute_result")[0]["data"]["text/html"]
        (found,) = re.findall(r'<td id="(T_\w+_row1_col0)"', html)
        assert f"#{found} {{" in html
        assert "red" in html or "yellow" in html or "linear-gradient(90deg" in html
        assert reply.text("stderr") == ""
    polars = "<style>.dataframe > thead > tr { white-space: pre-wrap; }</style><table></table>"
    assert _shown("text/html", polars).is_complete


def test_values_of_user_expressions_and_the_pager_are_cleaned(kernel: LiveKernel) -> None:
    kernel.run(
        "class Page:\n    def _repr_html_(self): return '<script>1</script>x'\npage = Page()"
    )
    values = kernel.run("0", user_expressions={"page": "page"}).content["user_expressions"]
    assert values["page"]["data"]["text/html"] == "x"
    reply = kernel.run(
        "get_ipython().payload_manager.write_payload("
        "{'source': 'page', 'data': {'text/html': '<script>1</script>'}})"
    )
    assert reply.content["payload"] == []


_ACTIVE_HTML = [
    "<img src=x onerror=alert(1)>",
    "<img src='https://example.org/?data=1'>",
    "<iframe srcdoc='<script>1</script>'></iframe>",
    "<a href='javascript:alert(1)'>x</a>",
    "<a href='data:text/html,<script>1</script>'>x</a>",
    "<svg><script>alert(1)</script></svg>",
    "<div style='background-image: url(https://example.org)'>x</div>",
    "<div style='position: fixed; color: red'>x</div>",
    "<style>@import 'https://example.org';</style>",
    "<form action='https://example.org'><input autofocus onfocus=alert(1)></form>",
    "<meta http-equiv=refresh content='0;url=https://example.org'>",
    "<img src=x style='background: u\\72l(https://example.org)'>",
    "<style>#T_1 { background: url(https://example.org) }</style>x",
    "<style>#T_1 { position: fixed } @media all { #T_1 { position: fixed } }</style>x",
    "<style>#T_1 { color: red; background: image-set('https://example.org') }</style>x",
    "<style>#T_1 { margin-left: -50px; color: rgb(1, 2, url(https://example.org)) }</style>x",
    "<svg><style><img src=x onerror=alert(1)></style></svg>x",
    "<svg><image href='https://example.org/x.png'/><a href='javascript:alert(1)'></a></svg",
    "<audio src='https://example.org/x.wav'></audio>x",
    "<video><source src='data:text/html;base64,YWxlcnQ='></video>x",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
]


def test_active_html_is_cleaned() -> None:
    parts = ("alert", "example.org", "script:", "data:", "position", "<form", "srcdoc")
    faults: list[tuple[str, str]] = []
    for html in _ACTIVE_HTML:
        cleaned = str(clean_bundle({"text/html": html}).data)
        cleaned = cleaned.replace('<img src="data:image/svg+xml;base64,', "")  # runs no scripts
        faults += [(html, part) for part in parts if part in cleaned]
    assert faults == []


def test_a_vector_graphic_becomes_an_image() -> None:
    svg = "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    html = clean_bundle({"image/svg+xml": svg}).data["text/html"]
    assert html.startswith('<img src="data:image/svg+xml;base64,')
    assert base64.b64decode(html.split(",")[1][:-2]).decode() == svg


def test_types_that_are_not_known_to_be_inert_are_left_out() -> None:
    given = {"text/plain": "x", "application/vnd.bokehjs_exec.v0+json": "", "image/png": "aGk="}
    bundle = clean_bundle(given)
    assert list(bundle.data) == ["text/plain", "image/png"]
    assert not bundle.is_complete


_FRAME = '<div style="overflow: auto; contain: content">'


_KEPT_CSS = {  # SCOPE is the element with the output
    "body { color: red }": "SCOPE { color: red }",
    "*, html .a:not(#main) { float: left }": ("SCOPE *, SCOPE .T_a:not(#T_main) { float: left }"),
    "#T_1 + div, a[b='c'] ~ p { color: red }": (
        'SCOPE #T_1 + div, SCOPE a[b="c"] ~ p { color: red }'
    ),
    ".dataframe .row1 { overflow-x: auto }": "SCOPE .dataframe .row1 { overflow-x: auto }",
    "@media print { p { margin: 0 !important } }": (
        "@media print {\nSCOPE p { margin: 0 !important }\n}"
    ),
    "p { width: calc(50% - 9px); z-index: 9 }": "SCOPE p { width: calc(50% - 9px) }",
    "p { --a: rgb(0 0 0 / 50%); color: var(--a) }": (
        "SCOPE p { --a: rgb(0 0 0 / 50%); color: var(--a) }"
    ),
    "p { margin: calc(2px * 3); position: initial }": (
        "SCOPE p { margin: calc(2px * 3); position: initial }"
    ),
    "p { /* } */ content: '}' }": 'SCOPE p { content: "}" }',
    "p/**/i,body/**/p { content: '  it\\'s \\a  ' }": (
        'SCOPE p i, SCOPE p { content: "  it\'s \\A  " }'
    ),
    "body:hover > p ~ q, :ROOT p + b { width: 2.5e1px }": (
        "SCOPE:hover > p ~ q, SCOPE p + b { width: 2.5e1px }"
    ),
    "@media (min-width: 9px) and (a>=1) { p:nth-child(2n) { color: #09f } }": (
        "@media (min-width: 9px) and (a>=1) {\nSCOPE p:nth-child(2n) { color: #09f }\n}"
    ),
}


def test_a_style_sheet_is_limited_to_its_output() -> None:
    dropped = (
        "@import 'x.css'; p { color: red }",
        "@font-face { src: url(x) } p { color: red }",
        "p { margin: -9em; color: red }",
        "p { --far: -9em; color: red }",
        "p { margin: calc(0px - 9em); color: red }",
        "p { position: fixed; color: red }",
        "p { posi\\74ion: fixed; color: red }",
        "p { background: u\\72l(x); color: red }",
        "p { background: image-set('x' 1x); color: red }",
        "p { transform: scale(99); color: red }",
        "p { content: '</sty\\6ce><b>'; color: red } < { color: red }",
        "p { content: '\\3c/style>'; color: red }",
    )
    for css, rules in _KEPT_CSS.items():
        bundle = _shown("text/html", f"<style>{css}</style><p class=a id=main>x</p>")
        html = bundle.data["text/html"]
        assert bundle.is_complete, css
        scope = html.removeprefix(_FRAME)[9:27]
        assert re.fullmatch("T_[0-9a-f]{16}", scope), html
        shown = f'<style>\n{rules}\n</style>\n<p class="T_a" id="T_main">x</p></div></div>'
        assert html == f'{_FRAME}<div id="{scope}">{shown.replace("SCOPE", f"#{scope}")}', html
    for css in dropped:
        bundle = _shown("text/html", f"<style>{css}</style><p>x</p>")
        rules, _, rest = bundle.data["text/html"].partition("</style>")
        assert not bundle.is_complete, css
        assert rest.strip() in ("<p>x</p></div></div>", ""), css
        assert rest or rules == "<p>x</p>", css
        assert not re.search(r"import|url|9em|99|fixed|<b>|scale|\(\(", rules), rules
    deep = f"color: {'(' * 9999}"
    html = _shown("text/html", f"<style>p {{ {deep} }}</style><p style='{deep}'>x</p>").data
    assert html == {"text/html": "<p>x</p>"}


def test_css_that_browsers_could_read_in_another_way_is_taken_out() -> None:
    faults = (
        """@media screen { "\n p { content: "} #x { color: url(x) } " } }""",
        """@media screen { a'\n b { content: '} body { display: none } /* ' } }""",
        """@media "\n { p { color: red } } p { content: ("\n"} i { color: url(x) } ") }""",
        "p { content: 'abc",
        "p[title='abc",
        "p) { color: red } p { color: red) }",
        "p url(a b( ) { color: red } :is(url(a b( )) { color: red }",
        'p { width: calc(url(a"b)) } p { color: {red} } p { color: (;) }',
        "p { content: '\\d800' } p { color: a\\;b } p { width: 1\\;x }",
        "p\\ { color: red } p\\ , + div { color: red } & { color: red } a|p { color: red }",
        "+ div { color: red } ~ * { color: red } /**/ + p, q { color: red }",
        "body + * { color: red } :root ~ div { color: red } HTML.a:not(p)/**/+p { color: red }",
        "p { width: calc(infinity * 1px) } p { margin: calc(1px / -0) }",
        "p { margin: calc(-Infinity * 1px) } p { height: calc(nan * 1px) } p { margin: -0px }",
    )
    for css in faults:
        bundle = _shown("text/html", f"<style>{css}</style><p>x</p>")
        assert (bundle.data, bundle.is_complete) == ({"text/html": "<p>x</p>"}, False), css


def test_what_styles_place_is_cut_off_at_the_edge_of_the_output() -> None:
    for text in ("<p style='display: flex'>x</p>", "<table dir='rtl'></table>"):
        html = _shown("text/html", text).data["text/html"]
        assert re.fullmatch(f"{_FRAME}.*</div>", html), html


def test_of_more_styles_than_are_read_the_rest_is_taken_out() -> None:
    long = f"color: {'a' * 60_000}"
    table = f"<style>p {{ {long} }}</style><p style='{long}'>x</p>"
    bundle = _shown("text/html", table)
    assert not bundle.is_complete
    assert bundle.data["text/html"].count("a" * 60_000) == 1
    assert bundle.data["text/html"].endswith("<p>x</p></div></div>")
    assert _shown("text/html", f"<style>{long * 2}</style>x").data == {"text/html": "x"}
    # Texts that are equal are read once.
    wide = f"width: calc({'1px + ' * 2000}1px)"
    assert _shown("text/html", f"<p style='{wide}'>x</p>" * 20).is_complete


def test_pictures_and_players_are_shown_if_they_load_nothing(kernel: LiveKernel) -> None:
    kernel.run("from IPython.display import *")
    tags = {
        'HTML(\'<svg width="9"><circle r="4"/></svg>\')': "<img src=",
        "Audio(b'abc')": "<audio",
        "Video(b'abc', embed=True, mimetype='video/mp4')": "<video",
        "ProgressBar(9)": "<progress",
    }
    for value, tag in tags.items():
        reply = kernel.run(value)
        assert tag in reply.of_kind("execute_result")[0]["data"]["text/html"]
        assert reply.text("stderr") == ""
    for value in ("IFrame('https://x', 9, 9)", "Image(url='https://x/y.png')"):
        reply = kernel.run(value)
        assert list(reply.of_kind("execute_result")[0]["data"]) == ["text/plain"]
        assert "left out" in reply.text("stderr")


def test_html_that_needs_its_style_sheet_is_shown_as_text() -> None:
    html = "<style>@import 'x'</style><div class=model><b>?</b>Model()</div>"
    bundle = clean_bundle({"text/plain": "Model()", "text/html": html})
    assert list(bundle.data) == ["text/plain"]
    bundle = clean_bundle({"text/plain": "<IPython.core.display.HTML object>", "text/html": html})
    assert "Model()" in bundle.data["text/html"]
    assert not bundle.is_complete


def test_widgets_are_shown_as_text_with_their_own_note(kernel: LiveKernel) -> None:
    reply = kernel.run(_SHOW_WIDGET)
    assert reply.of_kind("display_data")[0]["data"] == {"text/plain": "Slider"}
    assert "Widgets" in reply.text("stderr")
    assert "--allow-scripts" not in reply.text("stderr")


def test_a_chart_that_is_drawn_from_data_needs_no_script(kernel: LiveKernel) -> None:
    plot = "{'application/vnd.plotly.v1+json': {'data': []}, 'text/html': '<script>1</script>'}"
    loader = "{'text/html': '<script>1</script>'}"
    reply = kernel.run(f"display({loader}, raw=True)\ndisplay({plot}, raw=True)")
    (shown,) = reply.of_kind("display_data")
    assert list(shown["data"]) == ["application/vnd.plotly.v1+json"]
    assert reply.text("stderr") == ""
    assert "left out" in kernel.run(f"display({loader}, raw=True)").text("stderr")
    vega = kernel.run("display({'application/vnd.vegalite.v6.json': {}}, raw=True)")
    assert list(vega.of_kind("display_data")[0]["data"]) == ["application/vnd.vegalite.v6.json"]


def _shown(mime: str, content: object) -> CleanBundle:
    return clean_bundle({mime: content})


def test_markdown_is_shown_as_clean_html() -> None:
    text = "# T\n\n| a |\n|---|\n| *b* |\n\n~~c~~ $x_1 < y_2$ [d](https://example.org)\n"
    bundle = _shown("text/markdown", text)
    assert list(bundle.data) == ["text/html"]
    html = bundle.data["text/html"]
    for part in ("<h1>T</h1>", "<td><em>b</em></td>", "<s>c</s>", "$x_1 &lt; y_2$", "<a href="):
        assert part in html
    assert bundle.is_complete
    both = clean_bundle({"text/markdown": "a", "text/html": "b"})
    assert both.data == {"text/html": "b"}


def test_active_markdown_is_cleaned() -> None:
    faults: list[str] = []
    for text in (
        "<img src=x onerror=alert(1)>",
        "![x](https://example.org/x.png)",
        "![x][a]\n\n[a]: https://example.org/x.png",
        "<script>alert(1)</script>",
        "<div class=jp-Dialog data-commandlinker-command=x>alert</div>",
        "[x](javascript:alert(1))",
        '$<img src=x onerror="alert(1)">$',
        "\\begin{align}\n<img src=x onerror=alert(1)>\n\\end{align}",
    ):
        data = _shown("text/markdown", text).data
        active = re.search(
            '<img|<script|(?<!T_)jp-|data-|href="javascript', data.get("text/html", "")
        )
        faults += [text] if active or data.keys() - {"text/html"} else []
    assert faults == []


def test_long_markdown_does_not_hold_up_the_kernel() -> None:
    html = _shown("text/markdown", "![" * 1_000_000).data["text/html"]
    assert html.startswith("<pre>![![")


_COMMANDS = [
    r"\href{https://example.org}{x}",
    r"\url{https://example.org}",
    r"\style{background: red}{x}",
    r"\class{jp-Dialog}{x}",
    r"\cssId{main}{x}",
    r"\data{a}{x}",
    r"\htmlClass{jp-Dialog}{x}",
    r"\mmlToken{mi}[href='x']{x}",
    r"\bbox[border: 1px]{x}",
    r"\fcolorbox{a}{b}{x}",
    r"\enclose{box}[x]{x}",
    r"\unicode[x]{1}",
    r"\require{html}",
    r"\includegraphics{x}",
    r"\let\x\href \x{a}{b}",
    r"\csname href\endcsname",
    r"\begin{input}{x}\end{input}",
    r"\input{/etc/passwd}",
]


def test_commands_that_act_are_text_in_formulas() -> None:
    faults: list[tuple[str, str]] = []
    for command in _COMMANDS:
        name = re.findall(r"\\(?!let|x\b|endcs)(?:begin\{)?(\w+)", command)[0]
        found = re.compile(rf"\\(?:(?:begin|end)\{{)?{name}")
        assert found.search(f"${command}$")
        if found.search(_shown("text/latex", f"${command}$").data["text/latex"]):
            faults.append((command, "text/latex"))
        for mime in ("text/html", "text/markdown"):
            html = _shown(mime, f"<p>${command}$</p>").data["text/html"]
            # The text is the same for people.
            is_same = command.replace("&", "&amp;") in html.replace("<span></span>", "")
            faults += [(command, mime)] if found.search(html) or not is_same else []
    assert faults == []


def test_commands_cannot_be_put_together_from_parts_of_html() -> None:
    parts = [
        r"$\<wbr>href{x}{y}$",
        r"$\<!-- -->href{x}{y}$",
        r"$\<x-y>href{x}{y}$",
        r"$\hr&#101;f{x}{y}$",
        r"$&bsol;href{x}{y}$",
        r"$\hr<script></script>ef{x}{y}$",
        r'<b title=">">$\href{x}{y}$</b>',
    ]
    assert [html for html in parts if r"\href" in _shown("text/html", html).data["text/html"]] == []


def test_formulas_that_only_draw_stay_as_they_are_and_are_no_html() -> None:
    text = (
        r"$\displaystyle \int_0^1 \sqrt{\frac{1}{x}}\, dx \leq \begin{bmatrix}1 & 2\end{bmatrix}$"
    )
    assert _shown("text/latex", text).data == {"text/latex": text}
    assert _shown("text/html", text.replace("&", "&amp;")).data["text/html"].count("span") == 0
    tex = _shown("text/latex", "a<img src=x> &bsol;href ![x](https://example.org)").data
    assert tex == {"text/latex": "a< img src=x> & bsol;href ![x] (https://example.org)"}


def test_pictures_are_nothing_but_base64() -> None:
    for mime in ("image/png", "image/jpeg", "image/gif", "image/webp"):
        assert _shown(mime, "aGk=\n").data == {mime: "aGk=\n"}
        for content in ('aGk="onerror="alert(1)', "<svg>", {"a": 1}):
            bundle = _shown(mime, content)
            assert (bundle.data, bundle.is_complete) == ({}, False), (mime, content)


def test_only_sizes_and_flags_are_kept_of_metadata() -> None:
    given = {
        "image/png": {"width": 9, "height": '9" onerror=1', "needs_background": "dark", "x": 1},
        "text/html": {"isolated": True},
        "application/geo+json": {"url_template": "https://example.org"},
        "expanded": True,
        "embed_options": {"config": "https://example.org"},
    }
    bundle = clean_bundle({"image/png": "aGk=", "text/html": "a"}, given)
    known = {"width": 9, "needs_background": "dark"}
    assert bundle.metadata == {"image/png": known, "expanded": True}


def test_classes_and_ids_that_may_be_the_clients_have_other_names() -> None:
    for name, shown in (
        ("dataframe", "dataframe"),
        ("data row0 col1", "data row0 col1"),
        ("jp-Dialog modal", "T_jp-Dialog T_modal"),
        ("tex2jax_process", "T_tex2jax_process"),
    ):
        table = f"<table class='{name}' id='{name.split()[0]}'><tr><td>x</td></tr></table>"
        bundle = _shown("text/html", table)
        assert f'class="{shown}"' in bundle.data["text/html"]
        assert f' id="T_{name.split()[0]}"' in bundle.data["text/html"]
        assert bundle.is_complete


def test_displays_keep_their_names_and_colours_but_nothing_else(kernel: LiveKernel) -> None:
    reply = kernel.run(
        "get_ipython().display_pub.publish({'text/plain': 'x'}, "
        "transient={'display_id': 'one', 'other': '<b>'})"
    )
    assert reply.of_kind("display_data")[0]["transient"] == {"display_id": "one"}
    reply = kernel.run(
        "display({'text/plain': '\\x1b[31mred\\x1b]52;c;eA==\\x07 \\\\u001b'}, raw=True)"
    )
    (shown,) = reply.of_kind("display_data")
    assert shown["data"]["text/plain"] == "\x1b[31mred\ufffd]52;c;eA==\x07 \\u001b"


def test_values_of_user_expressions_have_known_fields_only(kernel: LiveKernel) -> None:
    kernel.run(
        "get_ipython().user_expressions = lambda names: {'x': {'status': 'ok', 'html': '<b>', "
        "'data': {'text/plain': 'x'}, 'metadata': {'text/plain': {'a': 1}}}, "
        "'y': {'status': 'error', 'ename': 1, 'evalue': 'v', 'data': {'text/html': '<script>'}}}"
    )
    values = kernel.run("0", user_expressions={"x": "x"}).content["user_expressions"]
    kernel.run("del get_ipython().user_expressions")
    assert values == {
        "x": {"status": "ok", "data": {"text/plain": "x"}, "metadata": {}},
        "y": {"status": "error", "ename": "", "evalue": "v", "traceback": []},
    }
