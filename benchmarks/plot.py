"""Series over time as small plots in one SVG, without a plotting library."""

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT, GAP, COLUMNS = 230, 90, 34, 4


def small_multiples(samples: Sequence[Mapping[str, float]], *, x: str) -> str:
    """One plot for each series, each with a scale of its own that begins at zero: growth shows as a slope."""
    names = [name for name in samples[0] if name != x]
    rows = -(-len(names) // COLUMNS)
    width, height = COLUMNS * (WIDTH + GAP) + GAP, rows * (HEIGHT + 2 * GAP)
    parts = _head(width, height)
    for number, name in enumerate(names):
        left = GAP + number % COLUMNS * (WIDTH + GAP)
        top = GAP + number // COLUMNS * (HEIGHT + 2 * GAP)
        parts.append(_one([one[x] for one in samples], [one[name] for one in samples], name, left, top))
    return "\n".join([*parts, "</svg>", ""])


def _one(xs: list[float], ys: list[float], name: str, left: int, top: int) -> str:
    far, high = max(xs) or 1.0, max(ys) or 1.0
    points = " ".join(
        f"{left + WIDTH * a / far:.1f},{top + HEIGHT * (1 - b / high):.1f}" for a, b in zip(xs, ys, strict=True)
    )
    return (
        f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ccc"/>'
        f'<polyline points="{points}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>'
        f'<text x="{left}" y="{top - 6}">{escape(name)}: 0 to {high:,.1f}</text>'
    )


def ratio_bars(groups: Mapping[str, Sequence[tuple[str, float]]]) -> str:
    """Ratios as bars to the left and right of one, on a logarithmic scale."""
    label, half, line = 330, 240, 18
    far = max((abs(math.log(ratio)) for bars in groups.values() for _, ratio in bars), default=1.0) or 1.0
    middle, parts, y = label + half, [], GAP
    for title, bars in groups.items():
        parts.append(f'<text x="{label}" y="{y}" font-weight="bold">{escape(title)}</text>')
        y += line
        for name, ratio in bars:
            length = half * math.log(ratio) / far
            begin, end = min(middle, middle + length), max(middle, middle + length)
            parts.append(
                f'<text x="{label - 8}" y="{y}" text-anchor="end">{escape(name)}</text>'
                f'<rect x="{begin:.1f}" y="{y - 10}" width="{end - begin:.1f}" height="12" fill="#1f77b4"/>'
                f'<text x="{end + 4:.1f}" y="{y}">{ratio:.2g}</text>'
            )
            y += line
        y += GAP
    parts.append(f'<line x1="{middle}" x2="{middle}" y1="{GAP}" y2="{y - GAP}" stroke="#333"/>')
    width = label + 2 * half + 2 * GAP
    return "\n".join([*_head(width, y), *parts, "</svg>", ""])


COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")


def stacked_bars(bars: Mapping[str, Mapping[str, float]]) -> str:
    """What each time consists of, in seconds, all on one scale. All have the same parts."""
    label, length, line = 250, 620, 26
    far = max(sum(parts.values()) for parts in bars.values())
    names = list(next(iter(bars.values())))
    drawn, y = [], GAP
    for name, parts in bars.items():
        x = float(label)
        drawn.append(f'<text x="{label - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
        for colour, seconds in zip(COLOURS, parts.values(), strict=False):
            wide = length * max(seconds, 0.0) / far
            drawn.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="18" fill="{colour}"/>')
            if wide > 24:
                drawn.append(f'<text x="{x + 3:.1f}" y="{y + 13}" fill="white">{seconds:.1f}</text>')
            x += wide
        drawn.append(f'<text x="{x + 4:.1f}" y="{y + 13}">{sum(parts.values()):.1f} s</text>')
        y += line
    for number, (colour, name) in enumerate(zip(COLOURS, names, strict=False)):
        left, top = label + number % 2 * length // 2, y + number // 2 * 18
        drawn.append(f'<rect x="{left}" y="{top}" width="10" height="10" fill="{colour}"/>')
        drawn.append(f'<text x="{left + 16}" y="{top + 10}">{escape(name)}</text>')
    width, height = label + length + 2 * GAP, y + (len(names) + 1) // 2 * 18 + GAP
    return "\n".join([*_head(width, height), *drawn, "</svg>", ""])


def _head(width: int, height: int) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        "<style>text {font: 11px sans-serif}</style>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
