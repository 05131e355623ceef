"""The report of a model as a PDF file, with ReportLab: it needs neither a browser nor libraries of the system."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import reportlab
from reportlab.graphics.shapes import Circle, Drawing, Line, PolyLine, Rect, String
from reportlab.lib import colors
from reportlab.lib.enums import TA_LEFT, TA_RIGHT
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFError, TTFont
from reportlab.platypus import (
    CondPageBreak,
    Image,
    KeepTogether,
    LongTable,
    PageBreak,
    Paragraph,
    Preformatted,
    SimpleDocTemplate,
    Spacer,
    TableStyle,
)

from digits.web.report import Evaluated, Pairs, Report, Table, WorstRecord
from digits.web.report_plots import Plot

MARGIN = 16 * mm
WIDTH = A4[0] - 2 * MARGIN
# With more, only the beginning of the source code is in the file.
MAX_SOURCE_LINES = 1500
SOURCE_COLUMNS = 118
_WORST_COLUMNS = 3
_ROW_HEIGHT = 34 * mm
_GRAY, _RULE, _SHADE = colors.HexColor("#5b6470"), colors.HexColor("#d5d9e0"), (31, 95, 191)
# With more characters than those of the library's own fonts, if the system has them; each with its bold font.
_DEJAVU = Path("/usr/share/fonts/truetype/dejavu")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
# The library has global state.
_rendering = threading.Lock()


def render(report: Report) -> bytes:
    """Return the PDF file of ``report``."""
    with _rendering:
        file = io.BytesIO()
        document = SimpleDocTemplate(
            file,
            pagesize=A4,
            leftMargin=MARGIN,
            rightMargin=MARGIN,
            topMargin=MARGIN,
            bottomMargin=MARGIN,
            title=f"Report of {report.name}",
            author=f"DIGITS, {report.created}",
            lang="en",
        )

        def add_footer(canvas: Any, document: Any) -> None:
            canvas.setFont(_fonts()[0], 7.5)
            canvas.setFillColor(_GRAY)
            canvas.drawString(MARGIN, 9 * mm, _plain(f"{report.name[:90]} · {report.created}"))
            canvas.drawRightString(A4[0] - MARGIN, 9 * mm, f"Page {document.page}")

        document.build(list(_story(report)), onFirstPage=add_footer, onLaterPages=add_footer)
        return file.getvalue()


def _story(report: Report) -> Iterator[Any]:
    yield _paragraph(report.name, "title")
    yield _paragraph(f"{report.type_title} · report of {report.created}", "muted")
    if report.problem:
        yield _paragraph(f"The training failed: {report.problem}", "text")
    yield from _section("Model", [_facts(report.facts)])
    if report.notes:
        yield from _section("Notes", [_paragraph(line, "text") for line in report.notes.splitlines()])
    yield from _section("Settings", [_facts(report.settings)])
    if report.curves:
        yield from _section("Curves", _plots(report.curves))
    if report.snapshots:
        yield from _table(report.snapshots)
    yield from _evaluation(report.evaluated)
    yield from _section("Environment", [_facts(report.environment)])
    yield PageBreak()
    yield _paragraph("Appendix: network", "heading")
    if report.layers:
        yield from _table(report.layers)
    if report.network_problem:
        yield _paragraph(report.network_problem, "text")
    if report.network:
        yield _paragraph("Source code", "subheading")
    yield from _source(report.network)


def _evaluation(evaluated: Evaluated | None) -> Iterator[Any]:
    if evaluated is None:
        yield from _section("Evaluation", [_paragraph("The model has not been evaluated.", "text")])
        return
    first = [_paragraph(f"{evaluated.title}: {evaluated.records}", "muted"), _facts(evaluated.metrics)]
    if evaluated.note:
        first.insert(1, _paragraph(evaluated.note, "text"))
    yield from _section("Evaluation", first)
    for table in evaluated.tables:
        yield from _table(table)
    if evaluated.plots:
        yield Spacer(1, 4 * mm)
        yield from _plots(evaluated.plots)
    if evaluated.worst:
        yield CondPageBreak(60 * mm)
        yield _paragraph("Worst predictions", "subheading")
        yield _worst(evaluated.worst)


def _section(title: str, parts: Sequence[Any]) -> list[Any]:
    """Return a section whose heading stays with its first part."""
    return [KeepTogether([_paragraph(title, "heading"), *parts[:1]]), *parts[1:]]


def _facts(pairs: Pairs) -> Any:
    """Return pairs of terms and descriptions in two columns."""
    if not pairs:
        return _paragraph("Nothing is recorded.", "muted")
    rows = [[_paragraph(term, "muted"), _paragraph(description, "text")] for term, description in pairs]
    style = [("VALIGN", (0, 0), (-1, -1), "TOP"), *_padding(1.2)]
    return LongTable(rows, colWidths=[38 * mm, WIDTH - 38 * mm], style=TableStyle(style), hAlign="LEFT")


def _table(table: Table) -> Iterator[Any]:
    columns = len(table.header)
    size = 8.0 if columns <= 8 else max(4.0, 64.0 / columns)
    first = WIDTH * (0.4 if columns <= 4 else 0.22 if columns <= 12 else 0.14)
    others = (WIDTH - first) / max(1, columns - 1)
    rows = [
        [_cell(text, size, is_text=place < table.text_columns) for place, text in enumerate(row)]
        for row in (table.header, *table.rows)
    ]
    style: list[Any] = [
        ("LINEBELOW", (0, 0), (-1, 0), 0.8, _GRAY),
        ("LINEBELOW", (0, 1), (-1, -1), 0.3, _RULE),
        ("VALIGN", (0, 0), (-1, -1), "MIDDLE"),
        *_padding(1.5 if size > 6 else 0.8),
    ]
    for row, shares in enumerate(table.shares, 1):
        for column, share in enumerate(shares, 1):
            if share:
                style.append(("BACKGROUND", (column, row), (column, row), _shade(share)))
    yield CondPageBreak(40 * mm)
    yield _paragraph(table.title, "subheading")
    yield LongTable(
        rows,
        colWidths=[first, *[others] * (columns - 1)],
        repeatRows=1,
        style=TableStyle(style),
        hAlign="LEFT",
    )
    if table.note:
        yield _paragraph(table.note, "muted")


def _plots(plots: Sequence[Plot]) -> list[Any]:
    """Return plots in rows of two."""
    width = WIDTH / 2 - 3 * mm
    drawings = [_drawing(plot, width) for plot in plots]
    rows = [drawings[place : place + 2] for place in range(0, len(drawings), 2)]
    style = TableStyle([("VALIGN", (0, 0), (-1, -1), "TOP"), *_padding(1.5)])
    return [
        LongTable([[*row, ""][:2]], colWidths=[WIDTH / 2] * 2, style=style, hAlign="LEFT") for row in rows
    ]


def _drawing(plot: Plot, width: float) -> Any:
    """Return a plot with its title above, its legend and the ends of the axes around it."""
    font, bold = _fonts()
    left, bottom, top = 34.0, 16.0, 16.0 + 9 * len(plot.lines)
    inner_width, inner_height = width - left - 6, 112.0
    drawing = Drawing(width, bottom + inner_height + top)

    def at(x: float, y: float) -> tuple[float, float]:
        return left + x * inner_width, bottom + y * inner_height

    def write(
        x: float, y: float, text: str, anchor: str = "start", name: str = font, size: float = 7
    ) -> None:
        drawing.add(
            String(x, y, _plain(text), fontName=name, fontSize=size, textAnchor=anchor, fillColor=_GRAY)
        )

    write(0, drawing.height - 9, _fitting(plot.title, bold, 8.5, width), name=bold, size=8.5)
    for place, line in enumerate(plot.lines):
        y = drawing.height - 20 - 9 * place
        dashes = [3, 2] if line.dashed else None
        drawing.add(
            Line(
                left,
                y + 2.5,
                left + 16,
                y + 2.5,
                strokeColor=colors.HexColor(line.color),
                strokeDashArray=dashes,
            )
        )
        write(left + 20, y, _fitting(line.name, font, 7, inner_width - 20))
    frame = Rect(*at(0, 0), inner_width, inner_height, fillColor=None, strokeColor=_RULE)
    drawing.add(frame)
    if plot.has_diagonal:
        drawing.add(Line(*at(0, 0), *at(1, 1), strokeColor=_RULE))
    for x, y, bar_width, height in plot.bars:
        drawing.add(
            Rect(
                *at(x, y),
                bar_width * inner_width,
                height * inner_height,
                fillColor=colors.Color(*(channel / 255 for channel in _SHADE), alpha=0.6),
                strokeColor=None,
            )
        )
    for dot in plot.dots:
        drawing.add(
            Circle(
                *at(*dot), 1, fillColor=colors.Color(*(c / 255 for c in _SHADE), alpha=0.5), strokeColor=None
            )
        )
    for line in plot.lines:
        drawing.add(_path(line, at))
    write(left, 5, plot.x_range[0])
    write(left + inner_width, 5, plot.x_range[1], "end")
    write(
        left + inner_width / 2,
        5,
        " · ".join(filter(None, (f"{plot.x} →" if plot.x else "", f"{plot.y} ↑" if plot.y else ""))),
        "middle",
    )
    write(left - 3, bottom, plot.y_range[0], "end")
    write(left - 3, bottom + inner_height - 6, plot.y_range[1], "end")
    return drawing


def _path(line: Any, at: Any) -> Any:
    color = colors.HexColor(line.color)
    if len(line.points) == 1:
        return Circle(*at(*line.points[0]), 2, fillColor=color, strokeColor=None)
    return PolyLine(
        [coordinate for point in line.points for coordinate in at(*point)],
        strokeColor=color,
        strokeWidth=0.9 if line.dashed else 1.2,
        strokeDashArray=[3, 2] if line.dashed else None,
    )


def _worst(records: Sequence[WorstRecord]) -> Any:
    columns = 2 if any(len(record.pictures) > 1 for record in records) else _WORST_COLUMNS
    width = WIDTH / columns - 3 * mm
    cells = [
        [*_pictures(record, width), _paragraph(record.words, "text"), _paragraph(record.filename, "muted")]
        for record in records
    ]
    rows = [cells[place : place + columns] for place in range(0, len(cells), columns)]
    style = TableStyle([("VALIGN", (0, 0), (-1, -1), "TOP"), *_padding(3)])
    full = [row + [""] * (columns - len(row)) for row in rows]
    return LongTable(full, colWidths=[WIDTH / columns] * columns, style=style)


def _pictures(record: WorstRecord, width: float) -> Iterator[Any]:
    if record.text:
        yield _paragraph(record.text[:400], "text")
    if not record.pictures:
        return
    each = width / len(record.pictures) - 1 * mm
    shown = []
    for caption, data in record.pictures:
        picture = Image(io.BytesIO(data))
        scale = min(each / picture.imageWidth, _ROW_HEIGHT / picture.imageHeight)
        picture.drawWidth, picture.drawHeight = scale * picture.imageWidth, scale * picture.imageHeight
        picture.hAlign = "LEFT"
        shown.append([picture, _paragraph(caption, "muted")] if len(record.pictures) > 1 else picture)
    style = TableStyle([("VALIGN", (0, 0), (-1, -1), "TOP"), *_padding(0)])
    yield LongTable([shown], colWidths=[width / len(shown)] * len(shown), style=style, hAlign="LEFT")


def _source(text: str) -> Iterator[Any]:
    lines = _CONTROL.sub("", text).expandtabs(4).splitlines()
    shown = [
        line[start : start + SOURCE_COLUMNS]
        for line in lines
        for start in range(0, max(1, len(line)), SOURCE_COLUMNS)
    ]
    style = ParagraphStyle("source", fontName=_source_font(text), fontSize=7, leading=8.8)
    # In parts: one text of many pages takes much longer.
    for start in range(0, min(len(shown), MAX_SOURCE_LINES), 50):
        yield Preformatted("\n".join(shown[start : start + 50]), style)
    if len(shown) > MAX_SOURCE_LINES:
        yield _paragraph(f"{len(shown) - MAX_SOURCE_LINES:,} more lines are not in this file.", "muted")


def _padding(size: float) -> list[Any]:
    names = ("LEFTPADDING", "RIGHTPADDING", "TOPPADDING", "BOTTOMPADDING")
    return [(name, (0, 0), (-1, -1), size) for name in names]


def _shade(share: float) -> Any:
    return colors.Color(*(1 - 0.55 * share * (1 - channel / 255) for channel in _SHADE))


def _cell(text: str, size: float, *, is_text: bool) -> Any:
    style = ParagraphStyle(
        "cell",
        fontName=_fonts()[0],
        fontSize=size,
        leading=size * 1.25,
        alignment=TA_LEFT if is_text else TA_RIGHT,
    )
    return Paragraph(escape(_plain(text)), style)


def _paragraph(text: str, style: str) -> Any:
    return Paragraph(escape(_plain(text)), _styles()[style])


def _plain(text: str) -> str:
    """Return ``text`` without characters that files of XML and PDF cannot contain."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def _fitting(text: str, font: str, size: float, width: float) -> str:
    """Return ``text``, cut off where it would be wider than ``width``."""
    text = _plain(text)
    if pdfmetrics.stringWidth(text, font, size) <= width:
        return text
    while text and pdfmetrics.stringWidth(f"{text}…", font, size) > width:
        text = text[:-1]
    return f"{text}…"


@cache
def _styles() -> dict[str, ParagraphStyle]:
    font, bold = _fonts()
    return {
        "title": ParagraphStyle("title", fontName=bold, fontSize=18, leading=23, spaceAfter=2),
        "heading": ParagraphStyle(
            "heading", fontName=bold, fontSize=12.5, leading=16, spaceBefore=12, spaceAfter=4
        ),
        "subheading": ParagraphStyle(
            "subheading", fontName=bold, fontSize=9.5, leading=12, spaceBefore=8, spaceAfter=3
        ),
        "text": ParagraphStyle("text", fontName=font, fontSize=8.5, leading=11),
        "muted": ParagraphStyle("muted", fontName=font, fontSize=8, leading=10.5, textColor=_GRAY),
    }


@cache
def _fonts() -> tuple[str, str]:
    """Return the names of the regular and the bold font: DejaVu Sans if the system has it, else one of the library."""
    own = Path(reportlab.__file__).parent / "fonts"
    for regular, bold in (
        (_DEJAVU / "DejaVuSans.ttf", _DEJAVU / "DejaVuSans-Bold.ttf"),
        (own / "Vera.ttf", own / "VeraBd.ttf"),
    ):
        try:
            pdfmetrics.registerFont(TTFont("Report", str(regular)))
            pdfmetrics.registerFont(TTFont("Report-Bold", str(bold)))
        except (TTFError, OSError):
            continue
        return "Report", "Report-Bold"
    return "Helvetica", "Helvetica-Bold"


def _source_font(text: str) -> str:
    """Return a font of fixed width, unless it lacks characters of ``text``."""
    try:
        text.encode("cp1252")
    except UnicodeEncodeError:
        return _fonts()[0]
    return "Courier"
