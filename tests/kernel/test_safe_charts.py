"""Charts are shown if they are drawn from data alone."""

from __future__ import annotations

from typing import Any

from cellblock.safe_output.bundle import CleanBundle, clean_bundle


def _shown(mime: str, content: object) -> CleanBundle:
    return clean_bundle({mime: content})


_VEGA = {"data": {"values": [{"a": 1, "url": "https://example.org"}]}, "mark": "point"}
_VEGA_LITE = "application/vnd.vegalite.v5+json"
_PLOTLY = "application/vnd.plotly.v1+json"


_SAFE_PARTS: list[dict[str, Any]] = [
    {},
    {"usermeta": {"embedOptions": {"config": "https://example.org"}}},
    {"encoding": {"x": {"field": "a", "type": "quantitative", "axis": {"labelAngle": 9}}}},
    {"params": [{"name": "grid", "select": "interval", "bind": "scales"}]},
    {"params": [{"name": "p", "bind": {"input": "range", "min": 0, "max": 9}}]},
    {"params": [{"name": "p", "select": {"type": "point", "on": "pointerover"}}]},
    {"transform": [{"filter": {"field": "a", "gt": 0}}]},
    {"data": {"name": "d"}, "datasets": {"d": [{"any key": '"'}]}},
    {"data": {"values": [{"t": "1"}], "format": {"parse": {"t": "number"}}}},
    {"config": {"style": {"group-title": {"fontSize": 9}}}},
]


def test_charts_of_vega_lite_are_drawn_from_data() -> None:
    for part in _SAFE_PARTS:
        bundle = _shown(_VEGA_LITE, {**_VEGA, **part})
        spec = {name: value for name, value in {**_VEGA, **part}.items() if name != "usermeta"}
        assert (bundle.data, bundle.is_complete) == ({_VEGA_LITE: spec}, True)


_ACTIVE_PARTS: list[dict[str, Any]] = [
    {"data": {"url": "https://example.org"}},
    {"data": {"values": {"signal": "alert(1)"}}},
    {"datasets": {"d": {"signal": "alert(1)"}}},
    {"transform": [{"calculate": "1", "as": "b"}]},
    {"transform": [{"filter": "datum.a > 0"}]},
    {"transform": [{"filter": {"and": ["datum.a > 0"]}}]},
    {"transform": [{"filter": {"not": "datum.a > 0"}}]},
    {"transform": [{"lookup": "a", "from": {"data": {"url": "x"}, "key": "a"}}]},
    {"encoding": {"href": {"field": "url"}}},
    {"encoding": {"url": {"field": "url"}}},
    {"encoding": {"x": {"field": "a", "axis": {"labelExpr": "1"}}}},
    {"encoding": {"x": {"field": "a", "axis": {"values": {"expr": "1"}}}}},
    {"encoding": {"color": {"condition": {"test": "1", "value": "red"}}}},
    {"encoding": {"tooltip": {"field": "a", "title": '\\": 1, "b'}}},
    {"encoding": {"tooltip": {"field": "url", "title": "image"}}},
    {"mark": {"type": "image", "url": "https://example.org"}},
    {"mark": {"type": "point", "tooltip": {"content": "data"}}},
    {"mark": {"type": "point", "cursor": "url(https://example.org)"}},
    {"params": [{"name": "p", "expr": "1"}]},
    {"params": [{"name": "p", "select": {"type": "point", "toggle": "event.shiftKey"}}]},
    {"params": [{"name": "p", "select": {"type": "point", "on": "click[event.x]"}}]},
    {"params": [{"name": "p", "bind": {"input": "text", "onfocus": "alert(1)"}}]},
    {"params": [{"name": "p", "bind": {"input": "image", "min": 1}}]},
    {"params": [{"name": "p", "bind": {"element": "body", "event": "x"}}]},
    {"config": {"customFormatTypes": True}},
    {"title": {"text": {"signal": "1"}}},
    {"title": {"expr": "1"}},
    {"__proto__": {"a": 1}},
    {"new": 1},
]


def test_charts_of_vega_lite_that_can_act_are_left_out() -> None:
    bundles = [(part, _shown(_VEGA_LITE, {**_VEGA, **part})) for part in _ACTIVE_PARTS]
    assert [part for part, bundle in bundles if bundle.data or bundle.is_complete] == []


_PIXEL = "data:image/png;base64,aGk="
_DRAWN: list[dict[str, Any]] = [
    {"data": [{"y": [1]}], "layout": {"title": {"text": "<b>a</b>"}}},
    {"data": [{"type": "bar", "x": ["https://example.org"], "customdata": ["https://a"]}]},
    {"data": [{"type": "sankey", "link": {"source": [0], "target": [1]}}]},
    {"data": [{"type": "image", "source": _PIXEL}], "layout": {"images": [{"source": _PIXEL}]}},
    {"data": [], "layout": {"updatemenus": [{"buttons": [{"args": ["type", "heatmap"]}]}]}},
    {"data": [], "frames": [{"name": "1", "data": [{"y": [2]}], "layout": {}}]},
]


def test_charts_of_plotly_are_drawn_from_data() -> None:
    for chart in _DRAWN:
        bundle = _shown(_PLOTLY, chart)
        whole: dict[str, Any] = {_PLOTLY: {"layout": {}, "config": {}, **chart}}
        assert (bundle.data, bundle.is_complete) == (whole, True)


def test_options_and_maps_of_plotly_are_taken_out() -> None:
    layout: dict[str, Any] = {"geo": {"scope": "x"}, "map": {"style": "y"}, "height": 9}
    template: dict[str, Any] = {"layout": layout, "data": {"bar": [{}], "scattergeo": [{}]}}
    chart: dict[str, Any] = {
        "data": [],
        "layout": {**layout, "template": template},
        "config": {"displaylogo": False, "plotlyServerURL": "https://example.org"},
    }
    cleaned: dict[str, Any] = {
        "height": 9,
        "template": {"layout": {"height": 9}, "data": {"bar": [{}]}},
    }
    shown: dict[str, Any] = {
        _PLOTLY: {"data": [], "layout": cleaned, "config": {"displaylogo": False}}
    }
    assert _shown(_PLOTLY, chart).data == shown


_LOADING: list[dict[str, Any]] = [
    {"data": [{"type": "scattermap"}]},
    {"data": [{"type": "choropleth", "geojson": "https://example.org"}]},
    {"data": [{"type": "image", "source": "https://example.org"}]},
    {"data": [{"type": "unknown"}]},
    {"data": [{"y": [1], "text": "<span style='fill: red'>x</span>"}]},
    {"data": [{"y": [1], "marker": {"color": "url(https://example.org)"}}]},
    {"data": [], "layout": {"images": [{"source": "https://example.org"}]}},
    {"data": [], "layout": {"images": [{"source": "h\nttps:example.org"}]}},
    {"data": [], "layout": {"images": [{"source": "\\/example.org"}]}},
    {"data": [], "layout": {"template": {"layout": {"imagedefaults": {"source": "//a"}}}}},
    {"data": [], "frames": [{"layout": {"images": [{"source": "//example.org"}]}}]},
    {"data": [], "frames": [{"data": [{"type": "scattermapbox"}]}]},
    {"data": [], "layout": {"sliders": [{"steps": [{"args": [{"map.style": "x"}]}]}]}},
    {"data": [], "layout": {"updatemenus": [{"buttons": [{"args": ["type", "choropleth"]}]}]}},
    {"data": [], "layout": {"a": "__proto__"}},
]


def test_charts_of_plotly_that_load_something_are_left_out() -> None:
    bundles = [(chart, _shown(_PLOTLY, chart)) for chart in _LOADING]
    assert [chart for chart, bundle in bundles if bundle.data or bundle.is_complete] == []
