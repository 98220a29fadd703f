"""Draws the pictures of docs/concepts.md.

    python docs/site/pictures.py

They follow the reader's light or dark theme and need no script.
"""

from pathlib import Path
from xml.sax.saxutils import escape

IMAGES = Path(__file__).resolve().parents[1] / "images"

STYLE = """
:root { --ink: #1f2430; --soft: #5b6472; --line: #9aa3b2; --box: #eef1f7; --edge: #c3cad8;
  --hot: #d9480f; --good: #2b8a3e; --cold: #3b5bdb; --gone: #adb5bd; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9f0; --soft: #a3adbd; --line: #6b7485; --box: #262b36; --edge: #434b5a;
    --hot: #ff922b; --good: #69db7c; --cold: #91a7ff; --gone: #5c6370; }
}
text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.soft { fill: var(--soft); font-size: 12px; }
.title { font-weight: 600; }
.mid { text-anchor: middle; }
.box { fill: var(--box); stroke: var(--edge); rx: 6px; }
.arrow { stroke: var(--line); stroke-width: 1.5; fill: none; marker-end: url(#tip); }
.lane { stroke: var(--edge); stroke-dasharray: 3 4; }
.barrier { fill: var(--hot); }
.row { fill: var(--cold); }
.later { fill: var(--cold); opacity: .35; }
.good { fill: var(--good); } .gone { fill: none; stroke: var(--gone); stroke-dasharray: 3 3; }
.hot { fill: var(--hot); } .bad { stroke: var(--hot); stroke-width: 2; }
"""


class Picture:
    def __init__(self, name: str, title: str, width: int, height: int) -> None:
        self.name, self.title, self.width, self.height = name, title, width, height
        self.parts: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, words: str = "", kind: str = "box") -> None:
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" class="{kind}"/>')
        if words:
            self.text(x + width / 2, y + height / 2 + 4.5, words, "mid")

    def mark(self, x: float, y: float, kind: str, size: float = 8) -> None:
        self.parts.append(
            f'<rect x="{x - size / 2:g}" y="{y - 8:g}" width="{size:g}" height="16" rx="2" class="{kind}"/>'
        )

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        self.parts.append(f'<path d="M{x:g} {y:g} L{to_x:g} {to_y:g}" class="arrow"/>')

    def line(self, x: float, y: float, to_x: float, to_y: float, kind: str = "lane") -> None:
        self.parts.append(f'<path d="M{x:g} {y:g} L{to_x:g} {to_y:g}" class="{kind}"/>')

    def svg(self) -> str:
        tip = (
            '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 L8 4 L0 8 z" style="fill: var(--line)"/></marker>'
        )
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(self.title)}" width="{self.width}">\n<title>{escape(self.title)}</title>\n'
            f"<style>{STYLE}</style>\n<defs>{tip}</defs>\n{body}\n</svg>\n"
        )


def barrier() -> Picture:
    p = Picture("barrier", "A barrier goes through a job between two micro-batches", 760, 190)
    for x, words, note in (
        (20, "source", "injects it"),
        (290, "window", "freezes its table"),
        (560, "sink", "keeps rows until commit"),
    ):
        p.box(x, 60, 140, 54, words)
        p.text(x + 70, 134, note, "soft mid")
    p.arrow(160, 87, 288, 87)
    p.arrow(430, 87, 558, 87)
    for x in (176, 188, 200):
        p.mark(x, 87, "later")
    p.mark(222, 87, "barrier", 6)
    for x in (244, 256, 268):
        p.mark(x, 87, "row")
    for x in (450, 462, 474, 486, 498):
        p.mark(x, 87, "row")
    p.text(222, 46, "barrier of epoch 8", "hot mid")
    p.line(222, 52, 222, 76, "bad")
    p.mark(30, 168, "row")
    p.text(42, 172, "rows of epoch 8", "soft")
    p.mark(160, 168, "later")
    p.text(172, 172, "rows of epoch 9", "soft")
    p.text(300, 172, "Rows before the barrier belong to epoch 8, rows behind it to epoch 9.", "soft")
    return p


def alignment() -> Picture:
    p = Picture("alignment", "A join waits until the barrier has come from both inputs", 760, 210)
    p.box(20, 30, 120, 46, "orders")
    p.box(20, 120, 120, 46, "payments")
    p.box(420, 70, 130, 56, "join")
    p.box(620, 70, 120, 56, "sink")
    p.arrow(140, 53, 418, 88)
    p.arrow(140, 143, 418, 108)
    p.arrow(550, 98, 618, 98)
    p.mark(398, 85, "barrier", 6)
    for x, y in ((372, 82), (356, 80), (340, 78)):
        p.mark(x, y, "later")
    p.text(290, 44, "held back: its barrier is here", "soft")
    p.mark(250, 129, "barrier", 6)
    for x, y in ((282, 126), (300, 123), (318, 121), (336, 118), (354, 116)):
        p.mark(x, y, "row")
    p.text(210, 166, "still comes through: rows of the same epoch", "soft")
    p.text(20, 200, "The join freezes its tables when both barriers are there, then passes the barrier on.", "soft")
    return p


LANES = ("controller", "driver", "object store", "sinks")


def epoch() -> Picture:
    p = Picture("epoch", "The steps of one epoch", 760, 330)
    ys = {name: 50 + 80 * number for number, name in enumerate(LANES)}
    for name, y in ys.items():
        p.text(10, y + 4, name, "title")
        p.line(105, y, 745, y)
    c, d, s, k = (ys[one] for one in LANES)
    steps = (
        (150, c, d, "1 barrier"),
        (330, d, s, "3 state, as Parquet"),
        (460, d, s, "4 manifest"),
        (690, d, c, "6 done"),
    )
    for x, start, end, words in steps:
        p.arrow(x, start, x, end - 3 if end > start else end + 3)
        p.text(x + 8, (start + end) / 2 + 4, words, "soft")
    p.box(190, d - 14, 110, 28, "2 align, freeze")
    p.arrow(580, d, 580, k - 3)
    p.text(588, (s + k) / 2 + 4, "5 commit", "soft")
    p.line(460, 20, 460, 310, "bad")
    p.text(468, 26, "commit point", "hot")
    words = "Before the commit point the epoch does not exist, after it it does. The next batches run from step 2 on."
    p.text(10, 322, words, "soft")
    return p


def cleanup() -> Picture:
    p = Picture("cleanup", "What a cleanup deletes", 760, 230)
    p.text(10, 50, "epochs", "title")
    p.text(10, 150, "state", "title")
    xs = [110 + 92 * number for number in range(7)]
    for number, x in enumerate(xs, start=3):
        gone = number < 6 and number != 4
        p.box(x, 26, 70, 38, str(number), "gone" if gone else "box")
    p.text(xs[1] + 35, 16, "savepoint", "soft mid")
    p.text((xs[3] + xs[6] + 70) / 2, 16, "the newest four are kept", "soft mid")
    for number, (x, gone) in enumerate(((110, True), (230, False), (350, True), (470, False), (590, False)), start=1):
        p.box(x, 130, 96, 36, f"run {number}", "gone" if gone else "box")
    for start, end in ((xs[1], 278), (xs[3], 278), (xs[3], 518), (xs[4], 518), (xs[5], 638), (xs[6], 638)):
        p.arrow(start + 35, 64, end, 128)
    p.line(xs[3] - 11, 20, xs[3] - 11, 76, "bad")
    p.text(xs[3] - 58, 15, "min_epoch = 6", "hot")
    p.text(
        10,
        220,
        "Manifests go first, then the runs that no kept epoch and no savepoint refers to. Epochs share runs.",
        "soft",
    )
    return p


def fencing() -> Picture:
    p = Picture("fencing", "A driver of an older generation can publish nothing", 760, 250)
    p.text(10, 54, "generation 1", "title")
    p.text(10, 124, "generation 2", "title")
    p.text(10, 204, "object store", "title")
    for y in (50, 120, 200):
        p.line(115, y, 745, y)
    p.box(140, 36, 150, 28, "works on epoch 8")
    p.box(300, 36, 250, 28, "stands still (no network, paused)", "gone")
    p.box(590, 36, 150, 28, "wakes up, publishes 8")
    p.box(310, 106, 120, 28, "claims, seals 8")
    p.box(442, 106, 140, 28, "restores 7, goes on")
    p.arrow(370, 134, 370, 184)
    p.box(325, 186, 92, 28, "8: sealed")
    p.arrow(665, 64, 665, 184)
    p.box(575, 186, 180, 28, "refused: 8 is there already")
    p.text(
        10,
        240,
        "Create-if-absent decides: whoever creates an object first has it, and nobody can create it again.",
        "soft",
    )
    return p


ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64" role="img" aria-label="Epochal">
<rect width="64" height="64" rx="14" fill="#3b5bdb"/>
<g fill="#fff"><rect x="12" y="20" width="9" height="24" rx="2" opacity=".55"/>
<rect x="25" y="20" width="9" height="24" rx="2"/>
<rect x="47" y="20" width="7" height="24" rx="2" opacity=".35"/></g>
<rect x="38" y="12" width="5" height="40" rx="2.5" fill="#ffa94d"/>
</svg>
"""


def drawn() -> dict[str, str]:
    made = {f"{one.name}.svg": one.svg() for one in (barrier(), alignment(), epoch(), cleanup(), fencing())}
    return {**made, "icon.svg": ICON}


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for file, content in drawn().items():
        (IMAGES / file).write_text(content)
