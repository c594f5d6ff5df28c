# SPDX-License-Identifier: MIT
"""Draw results as SVG, with one bar per loader and one group per state."""
import html
import math
import textwrap

from table import groups

WIDTH = 1080
NAMES = 200  # pixels for the names of loaders
GAP = 36  # pixels between the two columns
MARGIN = 24
VALUE = 56  # pixels after the longest bar, for its value
PITCH = 26  # pixels from bar to bar
BAR = 16
COLUMN = (WIDTH - NAMES - GAP - MARGIN) / 2
LETTER = 0.56  # average width of a letter, in font sizes
SUB_LETTERS = 145  # letters per line of facts
PLACES = (("new", "new process, first load", NAMES),
          ("warm", "warmed up, later loads", NAMES + COLUMN + GAP))

STYLE = """
text { font-family: system-ui, "Segoe UI", "DejaVu Sans", Arial, sans-serif; fill: #1f2430 }
.title { font-size: 20px; font-weight: 600 }
.sub { font-size: 12.5px; fill: #5b6270 }
.state { font-size: 15px; font-weight: 600 }
.column { font-size: 12.5px; fill: #5b6270 }
.name { font-size: 13px; text-anchor: end }
.ours { font-weight: 700; fill: #0b57a4 }
.value { font-size: 12.5px; font-weight: 600 }
.tick { font-size: 11px; fill: #7b8290; text-anchor: middle }
.bad { font-size: 12.5px; fill: #a8322a }
.grid { stroke: #e4e7ec } .axis { stroke: #9aa1ad }
.spread { stroke: #1f2430; stroke-width: 1.4 }
"""
COLORS = {True: "#1f78d1", False: "#aab1bd"}


def cut(text, size, room):
    """Cut a text to a width in pixels."""
    most = max(int(room / (size * LETTER)), 1)
    return text if len(text) <= most else text[:most - 1].rstrip() + "\u2026"


def step_of(most):
    """Return the smallest of 1, 2, 2.5, 5 times a power of ten that needs at most 5 steps."""
    power = 10 ** math.floor(math.log10(most / 5))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power * 5 >= most)


class Picture:
    def __init__(self):
        self.parts = []
        self.y = 0

    def text(self, x, kind, words, y=None):
        at = self.y if y is None else y
        self.parts.append(f'<text x="{x:.1f}" y="{at:.1f}" class="{kind}">'
                          f'{html.escape(words)}</text>')

    def line(self, kind, x1, y1, x2, y2):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                          f'class="{kind}"/>')

    def bar(self, x, y, width, height, ours):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                          f'height="{height:.1f}" rx="2" fill="{COLORS[ours]}"/>')

    def svg(self):
        height = math.ceil(self.y)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
                f'viewBox="0 0 {WIDTH} {height}">\n<style>{STYLE}</style>\n'
                f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n'
                + "\n".join(self.parts) + "\n</svg>\n")


def draw_head(picture, report):
    model, machine, settings = report["model"], report["machine"], report["settings"]
    where = "host memory" if report["device"] == "host" else report["device"]
    picture.y = 34
    picture.text(MARGIN, "title", f"Loading {model['bytes'] / 1e9:.3g} GB of safetensors into "
                 f"{where}: GB/s, more is better")
    versions = ", ".join(f"{name}\u00a0{version}" for name, version
                         in sorted(report["versions"].items()))
    facts = (f"{machine['device']}; {machine['processor']}, {machine['cpus']} processors, "
             f"{machine['kernel']}; {model['tensors']} tensors in {len(model['files'])} files, "
             f"{model['file_system']}")
    for words in textwrap.wrap(facts, SUB_LETTERS) + textwrap.wrap(versions, SUB_LETTERS):
        picture.y += 19
        picture.text(MARGIN, "sub", words)
    picture.y += 26
    x = MARGIN
    for ours, words in ((True, "Penstock"), (False, "others")):
        picture.bar(x, picture.y - 10, 12, 12, ours)
        picture.text(x + 18, "column", words)
        x += 34 + len(words) * 7.5
    picture.line("spread", x, picture.y - 4, x + 26, picture.y - 4)
    picture.text(x + 32, "column", f"lowest to highest of {settings['rounds']} rounds; "
                 "bars are medians")


def draw_grid(picture, top, bottom, scale, step, most):
    for _, _, left in PLACES:
        for index in range(math.floor(most / step) + 1):
            x = left + index * step * scale
            picture.line("axis" if index == 0 else "grid", x, top, x, bottom)
            picture.text(x, "tick", f"{index * step:g}", bottom + 15)


def draw_bar(picture, row, key, left, scale, length):
    spread = row[key]
    if not spread:
        return
    lowest, highest = (length / spread[name] / 1e9 for name in ("highest_s", "lowest_s"))
    top, middle = picture.y + (PITCH - BAR) / 2, picture.y + PITCH / 2
    picture.bar(left, top, max(spread["gb_per_s"] * scale, 1), BAR, row["ours"])
    picture.line("spread", left + lowest * scale, middle, left + highest * scale, middle)
    for end in (lowest, highest):
        picture.line("spread", left + end * scale, middle - 3, left + end * scale, middle + 3)
    picture.text(left + max(highest, spread["gb_per_s"]) * scale + 7, "value",
                 f"{spread['gb_per_s']:.2f}", middle + 4.5)


def draw_name(picture, row):
    picture.text(NAMES - 10, "name ours" if row["ours"] else "name",
                 cut(row["loader"], 13, NAMES - 20), picture.y + PITCH / 2 + 4.5)


def draw_bars(picture, rows, length):
    most = max(length / row[key]["lowest_s"] / 1e9 for row in rows for key, _, _ in PLACES
               if row[key])
    scale = (COLUMN - VALUE) / most
    bottom = picture.y + PITCH * len(rows)
    draw_grid(picture, picture.y, bottom, scale, step_of(most), most)
    for row in rows:
        draw_name(picture, row)
        for key, _, left in PLACES:
            draw_bar(picture, row, key, left, scale, length)
        picture.y += PITCH
    picture.y += 20  # height of the numbers below the grid


def draw_failures(picture, rows):
    for row in rows:
        draw_name(picture, row)
        words = f"{row['status']}: {row['text']}"
        picture.text(NAMES, "bad", cut(words, 12.5, WIDTH - NAMES - MARGIN),
                     picture.y + PITCH / 2 + 4.5)
        picture.y += PITCH


ABOUT = {"memory": "From memory (page cache)", "disk": "From disk (nothing in the page cache)"}


def draw_group(picture, state, rows, length):
    good = sorted((row for row in rows if row["status"] == "done"),
                  key=lambda row: -row["new"]["gb_per_s"])
    picture.y += 44
    about = ABOUT.get(state, f"{state}: {rows[0]['state_text']}")
    picture.text(MARGIN, "state", cut(about, 15, WIDTH - 2 * MARGIN))
    picture.y += 8
    if good:
        picture.y += 14
        for _, words, left in PLACES:
            picture.text(left, "column", words)
        picture.y += 8
        draw_bars(picture, good, length)
    draw_failures(picture, [row for row in rows if row["status"] != "done"])


def svg(report):
    picture = Picture()
    draw_head(picture, report)
    for state, rows in groups(report["rows"]).items():
        draw_group(picture, state, rows, report["model"]["bytes"])
    for item in report["left_out"]:
        picture.y += 30
        picture.text(MARGIN, "sub", cut(f"Left out, {item['state']}: {item['text']}", 12.5,
                                        WIDTH - 2 * MARGIN))
    picture.y += 24
    return picture.svg()
