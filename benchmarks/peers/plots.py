"""Plots as SVG, written by hand: lines over the number of steps, and bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 210, 50, 50
LABEL_GAP = 15
COLOURS = (
    "#d62728",
    "#1f77b4",
    "#2ca02c",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
    "#ff7f0e",
    "#393b79",
)
BAR = 22


def lines(title: str, unit: str, series: Mapping[str, Points], *, across: str = "steps") -> str:
    """Return lines over steps, both axes logarithmic; the first series is drawn bold.

    Args:
        across: the name of the horizontal axis.
    """
    points = [point for found in series.values() for point in found if min(point) > 0]
    if not points:
        return _page(title, WIDTH, HEIGHT, [])
    right = _Scale([x for x, _ in points], LEFT, WIDTH - RIGHT)
    up = _Scale([y for _, y in points], HEIGHT - BOTTOM, TOP)
    drawn = _axes(right, up, sorted({x for x, _ in points}), (across, unit))
    ends: list[tuple[float, str, str]] = []
    for number, (name, found) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [(right(x), up(y)) for x, y in found if min(x, y) > 0]
        if not places:
            continue
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        bold = 3 if number == 0 else 1.5
        drawn.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{bold}"/>'
        )
        drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        ends.append((places[-1][1], name, colour))
    return _page(title, WIDTH, HEIGHT, drawn + _labels(ends))


def bars(title: str, unit: str, values: Mapping[str, float]) -> str:
    """Return one horizontal bar for each value, in the order given; the first is drawn bold."""
    height = TOP + BAR * len(values) + 20
    most = max(values.values(), default=0) or 1
    space = WIDTH - 200 - 120
    drawn: list[str] = []
    for number, (name, value) in enumerate(values.items()):
        y = TOP + BAR * number
        colour = COLOURS[0] if number == 0 else COLOURS[1]
        drawn.append(_text(190, y + 14, name, "end"))
        drawn.append(
            f'<rect x="200" y="{y + 3}" width="{space * value / most:.1f}" height="{BAR - 7}" '
            f'fill="{colour}"/>'
        )
        drawn.append(_text(206 + space * value / most, y + 14, f"{value:,.3g} {unit}", "start"))
    return _page(title, WIDTH, height, drawn)


class _Scale:
    """Maps values to pixels, logarithmically."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        self.low, self.high = min(values), max(values)
        if self.low == self.high:
            self.low, self.high = self.low / 2, self.high * 2
        self._first, self._last = first, last

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self._first + share * (self._last - self._first)

    def ticks(self) -> list[float]:
        """Return round numbers between the ends: 1, 2 and 5 times a power of ten."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        return [one for one in found if self.low <= one <= self.high]


def _axes(across: _Scale, up: _Scale, steps: Sequence[float], names: tuple[str, str]) -> list[str]:
    drawn = [
        _text(LEFT - 8, TOP - 12, names[1], "end"),
        _text(WIDTH - RIGHT, HEIGHT - 12, names[0], "end"),
    ]
    for value in up.ticks():
        y = up(value)
        drawn.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        drawn.append(_text(LEFT - 8, y + 4, f"{value:g}", "end"))
    drawn += [_text(across(step), HEIGHT - BOTTOM + 18, f"{step:,.0f}", "middle") for step in steps]
    return drawn


def _labels(ends: Sequence[tuple[float, str, str]]) -> list[str]:
    """Return the names next to the lines' ends, moved apart where they would overlap."""
    drawn: list[str] = []
    free = TOP - LABEL_GAP
    for y, name, colour in sorted(ends):
        free = max(y, free + LABEL_GAP)
        drawn.append(_text(WIDTH - RIGHT + 10, free + 4, name, "start", colour))
    return drawn


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#333") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{escape(text)}</text>"


def _page(title: str, width: float, height: float, drawn: Sequence[str]) -> str:
    head = (
        f'<text x="16" y="26" font-size="16" font-weight="bold" fill="#111">{escape(title)}</text>'
    )
    body = "\n".join([f'<rect width="{width}" height="{height}" fill="#fff"/>', head, *drawn])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12">\n{body}\n</svg>\n'
    )
