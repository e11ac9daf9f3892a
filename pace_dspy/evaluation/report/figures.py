"""Figures as PNG, each drawn for a page's width and for a phone's; no pyplot, no global state. Ours."""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

WIDE_IN, NARROW_IN = 7.6, 3.7
"""Widths in inches: of a page, and of a phone's screen at the same text size."""

DPI = 160
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#5B4B8A", "#8A6D00", "#333333", "#56B4E9")
"""Okabe and Ito's colours, darkened where they are faint on white; told apart by shape, too."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

Draw = Callable[[Axes, bool], None]
"""Draws into the axes; the flag says that the figure is narrow."""


@dataclass(frozen=True)
class Plot:
    """One figure.

    Attributes:
        name: File name without ending.
        title: Caption in the page.
        alt: What a reader who cannot see it should know.
        wide: PNG for a page, ``WIDE_IN`` inches at ``DPI``.
        narrow: PNG for a phone.
    """

    name: str
    title: str
    alt: str
    wide: bytes
    narrow: bytes

    @property
    def wide_uri(self) -> str:
        """The wide PNG as a data URI."""
        return _uri(self.wide)

    @property
    def narrow_uri(self) -> str:
        """The narrow PNG as a data URI."""
        return _uri(self.narrow)

    @property
    def wide_px(self) -> tuple[int, int]:
        """Width and height in CSS pixels (96 an inch)."""
        width, height = struct.unpack(">II", self.wide[16:24])  # of the PNG's first chunk, IHDR
        return round(width * 96 / DPI), round(height * 96 / DPI)


def draw_plot(name: str, title: str, alt: str, draw: Draw, *, height_in: float, narrow_height_in: float) -> Plot:
    """Draw a figure in both widths.

    Args:
        name: File name without ending.
        title: Caption in the page; not drawn into the figure.
        alt: Alternative text.
        draw: What to draw.
        height_in: Height of the wide figure in inches.
        narrow_height_in: Height of the narrow one.
    """
    wide = _png(draw, WIDE_IN, height_in, narrow=False)
    return Plot(name, title, alt, wide, _png(draw, NARROW_IN, narrow_height_in, narrow=True))


def plain(text: str) -> str:
    """Return a text that matplotlib draws as it is: a dollar sign would start a formula."""
    return text.replace("$", r"\$")


def percent_axis(axes: Axes, label: str, low: float = 0.0, high: float = 100.0) -> None:
    """Set up a horizontal axis in percent with a light grid and no frame."""
    axes.set_xlim(low, high)
    axes.set_xlabel(label)
    axes.grid(axis="x", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def legend_above(axes: Axes, n_columns: int) -> None:
    """Put the legend above the axes, from the figure's left edge, where it covers nothing."""
    axes.figure.legend(
        loc="outside upper left",
        ncols=n_columns,
        frameon=False,
        handletextpad=0.4,
        columnspacing=1.2,
    )


def _png(draw: Draw, width_in: float, height_in: float, *, narrow: bool) -> bytes:
    figure = Figure(figsize=(width_in, height_in), dpi=DPI, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure.add_subplot(), narrow)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
