"""Let charts through that clients draw only from data. Pure: no I/O.

The languages of charts can load files, evaluate expressions, and make links, forms and HTML. What
is kept of them can only draw:

- Vega-Lite: charts all of whose keys are known. So they have no URL, expression, picture, link or
  element of the page. Their texts cannot end the texts of the expressions that Vega-Lite makes of
  them. Rows of data are free, because nothing of them is evaluated or loaded.
- Plotly: charts all of whose traces are of known types, which load nothing. Maps and options are
  taken out. No text has a style, and none of the layout is an address, but for embedded pictures.

Other charts are left out: all of Vega, whose signals are expressions, and maps, which load tiles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

_VEGA_LITE = re.compile(r"application/vnd\.vegalite\.v\d+[+.]json")
_PLOTLY = "application/vnd.plotly.v1+json"
# In any text: a resource, a style, and the way to what all objects of the page share.
_ACTS = re.compile(
    r"url\(|image-set\(|style(?:\s|\\[a-z0-9]+)*=|__proto__|prototype|constructor", re.IGNORECASE
)


def clean_chart(mime: str, content: object) -> dict[str, Any] | None:
    """Return the inert part of a chart; None if nothing can be drawn from it."""
    chart = _mapping(content)
    try:
        if _ACTS.search(json.dumps(chart, ensure_ascii=False)):
            return None
        if mime == _PLOTLY:
            return _clean_plotly(chart)
        if _VEGA_LITE.fullmatch(mime):
            chart.pop("usermeta", None)  # options of the client
            return chart if _is_inert_vega_lite("", chart) else None
    except RecursionError:
        pass
    return None


def _mapping(value: object) -> dict[str, Any]:
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


# Vega-Lite

_KEYS = re.compile(
    r"(?!labelExpr)"  # of these families, the only expression
    r"(?:axis|band|corner|domain|fill|gradient|grid|header|label|legend|max|min|stroke|subtitle"
    r"|symbol|tick|title|group-|guide-)[a-zA-Z]\w*"
)
_WORDS = set(
    """
    $schema aggregate align anchor and angle arc area argmax argmin aria as aspect autosize axis
    background bar base baseline bin binSpacing binned bins blend bottom bounds box boxplot category
    center circle clamp clip clipHeight color column columnPadding columns concat condition config
    constant continuousHeight continuousWidth count counts cumulative data datum day default density
    description detail dir direction disable discreteHeight discreteWidth diverging domain dx dy
    ellipsis empty encoding encodings endAngle equal errorband errorbar exponent extent facet
    feature field fields fill filled fit flatten fold font fontSize fontStyle fontWeight format from
    geoshape gradient graticule grid groupby gt gte hconcat header heatmap height hours ignorePeers
    impute innerRadius interpolate interval invalid joinaggregate key keyvals label labels latitude
    latitude2 layer layout left legend limit line lineBreak lineHeight loess longitude longitude2
    lookup lt lte mark max maxbins median mesh method min minutes month name nearest nice
    numberFormat offset oneOf op opacity order ordinal orient outerRadius outliers padAngle padding
    paddingInner paddingOuter parallels param params pivot point pointRadius projection property
    quantile quarter radius radius2 radius2Offset radiusOffset ramp range rangeMax rangeMin rect
    regression repeat resolve reverse right rotate round row rowPadding rule sample scale scheme
    seconds select sequence shape size sort spacing spec sphere square stack start startAngle step
    stop stops stroke style subtitle symbol tension text theta theta2 theta2Offset thetaOffset
    thickness tick ticks timeFormat timeUnit title tooltip top trail transform type unit
    unselectedOpacity utc valid value values vconcat view views width window x x2 x2Offset xError
    xError2 xOffset y y2 y2Offset yError yError2 yOffset year zero zindex
    """.split()
)
_PREDICATES = {"filter", "test", "not", "or", "and"}  # also expressions, if they are text
_EVENTS = {"on", "clear", "translate", "zoom", "toggle"}  # also, but for one word
_INPUT_KEYS = {"input", "name", "min", "max", "step", "options", "labels", "debounce"}
_INPUTS = {"checkbox", "number", "radio", "range", "select", "text"}


def _is_inert_vega_lite(key: str, value: object) -> bool:
    """Return True if the value of `key` neither loads nor evaluates anything."""
    match value:
        case str():
            return _is_inert_text(key, value)
        case list():
            return all(_is_inert_vega_lite(key, part) for part in cast("list[object]", value))
        case Mapping():
            parts = _mapping(cast("object", value))
            return all(_is_inert_entry(key, name, part) for name, part in parts.items())
        case _:
            return True


def _is_inert_entry(parent: str, key: str, value: object) -> bool:
    if parent == "parse":  # names of fields
        return _is_inert_text(key, key) and _is_inert_vega_lite("", value)
    if parent == "datasets":
        return _is_inert_text(key, key) and _is_rows(value)
    if parent == "data" and key == "values":
        return _is_rows(value)
    if key == "bind" and isinstance(value, Mapping):  # Vega makes attributes of the keys
        fields = _mapping(cast("object", value))
        is_known = fields.keys() <= _INPUT_KEYS and fields.get("input") in _INPUTS
        return is_known and all(_is_inert_vega_lite("", field) for field in fields.values())
    is_known = key in _WORDS | _PREDICATES | _EVENTS or key in ("bind", "datasets", "parse")
    return (is_known or _KEYS.fullmatch(key) is not None) and _is_inert_vega_lite(key, value)


def _is_rows(value: object) -> bool:
    """Return True for rows of data, or a map; an object with a signal is an expression."""
    return isinstance(value, list | str) or (isinstance(value, Mapping) and "signal" not in value)


def _is_inert_text(key: str, text: str) -> bool:
    """Return False for expressions, for pictures, and for what could end a text in quotes."""
    if key in _PREDICATES or (key in _EVENTS and not text.isalpha()):
        return False
    # A tooltip of this name shows the picture at the address that is its value.
    return not any(part in text for part in ('"', "\\", "image"))


# Plotly

_TRACES = set(
    """
    bar barpolar box candlestick carpet cone contour contourcarpet funnel funnelarea heatmap
    heatmapgl histogram histogram2d histogram2dcontour icicle image indicator isosurface mesh3d ohlc
    parcats parcoords pie sankey scatter scatter3d scattercarpet scattergl scatterpolar
    scatterpolargl scattersmith scatterternary splom streamtube sunburst surface table treemap
    violin volume waterfall
    """.split()
)
_FLAGS = ("displayModeBar", "displaylogo", "responsive", "scrollZoom", "staticPlot")
_MAP = re.compile(r"(?:geo|map|mapbox)\d*")
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*")
_ADDRESS = re.compile(r"(?:https?|wss?|ftp|file|blob|data|javascript):|[/\\]{2}", re.IGNORECASE)
_UNSEEN = re.compile(r"[\x00-\x20]+")  # browsers ignore them in addresses
# What buttons and sliders could set.
_LOADING = re.compile(
    r"images|imagedefaults|source|geo|mapbox|\bmap\d*\b|scattermap|densitymap|choropleth"
)


def _clean_plotly(chart: dict[str, Any]) -> dict[str, Any] | None:
    config = _mapping(chart.get("config"))
    flags = {name: config[name] for name in _FLAGS if isinstance(config.get(name), bool)}
    frames = [_clean_figure(_mapping(frame)) for frame in _list(chart.get("frames"))]
    figures = [_clean_figure(chart), *frames]
    if not all(_is_inert_figure(figure) for figure in figures):
        return None
    return {**figures[0], "config": flags, **({"frames": frames} if frames else {})}


def _clean_figure(figure: dict[str, Any]) -> dict[str, Any]:
    """Return a chart or a frame of one without maps and options."""
    names = ("name", "group", "baseframe", "traces")
    kept = {name: figure[name] for name in names if name in figure}
    layout = _without_maps(figure.get("layout"))
    if template := _mapping(layout.get("template")):
        traces = _mapping(template.get("data"))
        layout["template"] = {
            "layout": _without_maps(template.get("layout")),
            "data": {kind: traces[kind] for kind in traces.keys() & _TRACES},
        }
    return {**kept, "data": figure.get("data", []), "layout": layout}


def _without_maps(layout: object) -> dict[str, Any]:
    return {name: part for name, part in _mapping(layout).items() if not _MAP.fullmatch(name)}


def _is_inert_figure(figure: dict[str, Any]) -> bool:
    return all(
        _mapping(trace).get("type", "scatter") in _TRACES and _is_inert_trace(trace)
        for trace in _list(figure["data"])
    ) and _is_inert_layout("", figure["layout"])


def _is_inert_trace(trace: object) -> bool:
    """Return True if all sources are embedded. Other texts of a trace are data."""
    if isinstance(trace, list):
        return all(map(_is_inert_trace, cast("list[object]", trace)))
    parts = _mapping(trace)
    source = parts.get("source")
    is_embedded = not isinstance(source, str) or _PICTURE.fullmatch(source) is not None
    return is_embedded and all(map(_is_inert_trace, parts.values()))


def _is_inert_layout(place: str, value: object) -> bool:
    """Return True if no text is an address, and buttons and sliders set nothing that has one.

    `place` is the key of the value, or `args` anywhere in what a button or slider sets.
    """
    match value:
        case str():
            if place == "args" and _LOADING.search(value):
                return False
            is_picture = place == "source" and _PICTURE.fullmatch(value)
            return bool(is_picture) or not _ADDRESS.match(_UNSEEN.sub("", value))
        case list():
            return all(_is_inert_layout(place, part) for part in cast("list[object]", value))
        case Mapping():
            return all(
                _is_inert_layout("args", name) and _is_inert_layout("args", part)
                if place == "args" or name.startswith("args")
                else _is_inert_layout(name, part)
                for name, part in _mapping(cast("object", value)).items()
            )
        case _:
            return True
