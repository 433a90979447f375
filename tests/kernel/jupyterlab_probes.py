"""Cells that reach for `URL` from the browser, and cells that show the same without effect.

`show` displays a MIME bundle with one type; the names of `IPython.display` are imported.
"""

from __future__ import annotations

import json
from typing import Any

_ROWS = {"values": [{"a": 1}]}
_CHART: dict[str, Any] = {"data": _ROWS, "mark": "point", "encoding": {}}
_IMAGE_CHART = {
    "data": _ROWS,
    "transform": [{"calculate": "'URL'", "as": "u"}],
    "mark": {"type": "image", "width": 9, "height": 9},
    "encoding": {"url": {"field": "u"}},
}
_FORM = {"input": "image", "src": "x", "onerror": "fetch('URL')"}
_TRACE = {"y": [1, 2]}
_MERMAID = "flowchart TD\nA[\"<img src='URL'>\"] --> B"


def _vega(spec: dict[str, Any], mime: str = "vegalite", **metadata: Any) -> str:
    mime = f"application/vnd.{mime}.v5+json"
    return f"show({mime!r}, {spec!r}, **{ {mime: metadata}!r})"


def _plotly(layout: dict[str, Any], **trace: Any) -> str:
    chart = {"data": [{**_TRACE, **trace}], "layout": layout}
    return f"show('application/vnd.plotly.v1+json', {chart!r})"


def _html(text: str) -> str:
    return f"HTML({text!r})"


def _markdown(text: str) -> str:
    return f"Markdown({text!r})"


# Each requests its URL as soon as JupyterLab shows it.
PROBES = {
    "script": _html("<script>fetch('URL')</script>"),
    "handler": _html("<img src=x onerror=\"fetch('URL')\">"),
    "image": _html("<img src='URL'>"),
    "style": _html("<div style=\"background: url('URL')\">x</div>"),
    "sheet": _html("<style>@import 'URL';</style>x"),
    "rule": _html("<style>.x { --a: 0; background: url('URL') }</style><p class=x>x"),
    "frame": _html("<iframe src='URL'></iframe>"),
    "frame-source": _html("<iframe srcdoc=\"<img src='URL'>\"></iframe>"),
    "link": _html("<link rel=stylesheet href='URL'>"),
    "object": _html("<object data='URL'></object>"),
    "poster": _html("<video poster='URL'></video>"),
    "vector": _html("<svg><image href='URL'/></svg>"),
    "javascript": "Javascript(\"fetch('URL')\")",
    "representation": "class Page:\n    def _repr_html_(self): return '<img src=\"URL\">'\nPage()",
    "bundle": "class Page:\n    def _repr_mimebundle_(self, **_):\n"
    "        return {'text/markdown': '![x](URL)'}, {}\nPage()",
    "update": "handle = display('x', display_id='one')\nhandle.update(Markdown('![x](URL)'))",
    "markdown-handler": _markdown("<img src=x onerror=\"fetch('URL')\">"),
    "markdown-image": _markdown("![x](URL)"),
    "markdown-reference": _markdown("![x][a]\n\n[a]: URL"),
    "markdown-table": _markdown("| a |\n|---|\n| ![x](URL) |"),
    "mermaid": _markdown(f"```mermaid\n{_MERMAID}\n```"),
    "vega-data": _vega({**_CHART, "data": {"url": "URL"}}),
    "vega-lookup": _vega(
        {
            **_CHART,
            "transform": [
                {"lookup": "a", "from": {"data": {"url": "URL"}, "key": "a", "fields": ["b"]}}
            ],
        }
    ),
    "vega-image": _vega(_IMAGE_CHART),
    "vega-form": _vega({**_CHART, "params": [{"name": "p", "value": "1", "bind": _FORM}]}),
    "vega-options": _vega({**_CHART, "usermeta": {"embedOptions": {"config": "URL"}}}),
    "vega-metadata": _vega(_CHART, embed_options={"config": "URL"}),
    "vega": _vega({"data": [{"name": "t", "url": "URL"}], "marks": []}, "vega"),
    "plotly-image": _plotly({"images": [{"source": "URL", "sizex": 1, "sizey": 1}]}),
    "plotly-style": _plotly({"title": {"text": "<span style='mask-image: url(URL)'>x</span>"}}),
    "plotly-shape": _plotly({}, type="choropleth", geojson="URL", locations=["a"], z=[1]),
    "plotly-map": _plotly({"map": {"style": "URL"}}, type="scattermap", lat=[1], lon=[1]),
}
_NOTHING = "<img src='URL'><script>fetch('URL')</script>"
# JupyterLab shows these as text, or without what acts; other clients need not.
INERT = {
    "stream": f"print({_NOTHING!r})",
    "error": f"raise ValueError({_NOTHING!r})",
    "plain": f"show('text/plain', {_NOTHING!r})",
    "json": f"JSON({json.dumps({_NOTHING: _NOTHING})})",
    "picture": "show('image/png', 'x\" onerror=\"fetch(`URL`)')",
    "svg": 'SVG(\'<svg xmlns="http://www.w3.org/2000/svg"><image href="URL"/></svg>\')',
    "latex": r"Latex(r'$\style{background: url(URL)}{x} \href{URL}{x} \class{jp-Dialog}{x}$')",
    "formula": _html(r"<p>$\href{URL}{x}$</p>"),
    "markdown-formula": _markdown(r"$\href{URL}{x}$"),
    "widget": "show('application/vnd.jupyter.widget-view+json', {'model_id': '1'})",
    "geojson": "show('application/geo+json', {}, **{'application/geo+json': "
    "{'url_template': 'URL'}})",
    # Without anything to take out.
    "vega-chart": _vega(_CHART),
    "plotly-chart": _plotly({}),
    "table": "import pandas\npandas.DataFrame({'a': [1]})",
    "inert": _html("<p class='dataframe'>$x^2$</p>"),
}
