"""docs/drawings/parts.svg: what Odradek consists of, and what it talks to."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

_WIDTH = 860
_HEIGHT = 476
_LINE_HEIGHT = 17

#: Colors by class, light and dark; the drawing has its own background, so that it fits a light and
#: a dark page.
_STYLE = """\
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; font-size: 14px; }
  .note { fill: #59636e; font-size: 12px; }
  .ground { fill: #ffffff; stroke: #d1d9e0; }
  .ours { fill: #ddf4ff; stroke: #0969da; }
  .part { fill: #ffffff; stroke: #54aeff; }
  .theirs { fill: #f6f8fa; stroke: #818b98; stroke-dasharray: 5 4; }
  .disk { fill: #dafbe1; stroke: #1a7f37; }
  .arrow { stroke: #59636e; stroke-width: 1.5; fill: none; }
  .head { fill: #59636e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .note { fill: #9198a1; }
    .ground { fill: #0d1117; stroke: #3d444d; }
    .ours { fill: #121d2f; stroke: #4493f8; }
    .part { fill: #0d1117; stroke: #316dca; }
    .theirs { fill: #151b23; stroke: #9198a1; }
    .disk { fill: #12261e; stroke: #3fb950; }
    .arrow { stroke: #9198a1; }
    .head { fill: #9198a1; }
  }
"""


@dataclass(frozen=True)
class Box:
    """A rectangle with a title and lines below it. `kind`: its class in the style. `holds`: true if
    other boxes are drawn inside it, so that its text is at the top."""

    kind: str
    x: int
    y: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...] = ()
    holds: bool = False

    def svg(self) -> str:
        middle = self.x + self.width // 2
        free = 0 if self.holds else self.height - _LINE_HEIGHT * (1 + len(self.lines))
        top = self.y + (21 if self.holds else free // 2 + 13)
        texts = [f'<text class="title" x="{middle}" y="{top}">{escape(self.title)}</text>'] + [
            f'<text class="note" x="{middle}" y="{top + _LINE_HEIGHT * number}">{escape(line)}</text>'
            for number, line in enumerate(self.lines, 1)
        ]
        return (
            f'<rect class="{self.kind}" x="{self.x}" y="{self.y}" width="{self.width}"'
            f' height="{self.height}" rx="6"/>\n' + "\n".join(texts)
        )


@dataclass(frozen=True)
class Arrow:
    """An arrow from one point to another, with a note next to its middle."""

    x1: int
    y1: int
    x2: int
    y2: int
    note: str = ""

    def svg(self) -> str:
        line = (
            f'<path class="arrow" d="M{self.x1} {self.y1} L{self.x2} {self.y2}"'
            ' marker-start="url(#head)" marker-end="url(#head)"/>'
        )
        if not self.note:
            return line
        x, y = (self.x1 + self.x2) // 2 + 8, (self.y1 + self.y2) // 2 + 4
        return f'{line}\n<text class="note beside" x="{x}" y="{y}">{escape(self.note)}</text>'


_BOXES = (
    # Users of the client and the broker.
    Box("ours", 20, 20, 190, 52, "Your program", ("Producer, Consumer, Admin",)),
    Box("ours", 226, 20, 170, 52, "odradek", ("the command line",)),
    Box("ours", 412, 20, 190, 52, "Spark job", ('format("odradek")',)),
    Box("theirs", 640, 20, 200, 104, "Any Kafka client", ("librdkafka, Java, franz-go,", "aiokafka, kafka-python")),
    Box("ours", 20, 88, 582, 36, "The client: accumulator, sender, fetcher, groups, transactions"),
    # The brokers.
    Box("ours", 20, 178, 582, 186, "Broker: one process, one event loop", holds=True),
    Box("part", 40, 210, 542, 36, "Server and handlers: frames, versions, one handler per API"),
    Box("part", 40, 258, 262, 92, "Coordinators", ("groups: classic and KIP-848", "committed offsets", "transactions: v1 and v2 (KIP-890)")),
    Box("part", 320, 258, 262, 92, "Storage", ("partition logs, producer state", "group commit: one fsync for all", "recovery, retention")),
    Box("theirs", 640, 178, 200, 186, "Apache Kafka", ("or any other broker:", "the same client, command line", "and connector work with it")),
    Box("disk", 20, 404, 582, 52, "Disk, in Kafka's formats", ("segments, indexes, __consumer_offsets, __transaction_state, metadata log",)),
)  # fmt: skip

_ARROWS = (
    Arrow(311, 124, 311, 178, "Kafka's protocol"),
    Arrow(740, 124, 602, 178),
    Arrow(602, 124, 740, 178),
    Arrow(311, 364, 311, 404, "acknowledged when it is on disk"),
)


def drawing() -> str:
    """The SVG file."""
    arrows = "\n".join(each.svg() for each in _ARROWS)
    boxes = "\n".join(each.svg() for each in _BOXES)
    return f"""\
<!-- Made by `python -m docs.drawings`; a test holds it equal. -->
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" \
aria-label="Programs, the command line and Spark jobs use the client; it and any other Kafka client \
speak Kafka's protocol with the broker, which has a server, coordinators and storage on disk. \
Apache Kafka may stand in the broker's place.">
<style>
{_STYLE}  .title, .note {{ text-anchor: middle; }}
  .beside {{ text-anchor: start; }}
</style>
<defs>
<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
<path class="head" d="M0 0 L8 4 L0 8 Z"/>
</marker>
</defs>
<rect class="ground" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="8"/>
{arrows}
{boxes}
</svg>
"""
