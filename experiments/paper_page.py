"""One self-contained page: sections with claims, measurements, checks and SVG charts."""

import html
import io

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

pyplot.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "leeway", "font.family": "sans-serif", "font.size": 10,
    "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False,
    "lines.linewidth": 1.4, "lines.markersize": 4, "legend.frameon": False, "legend.fontsize": 9,
    "figure.constrained_layout.use": True,
})
LOG = ("log", "log")
SEMILOG = ("linear", "log")
COLORS = ["#1f6fb4", "#d1495b", "#2e8b57", "#9c6b1e", "#6a4c93", "#444444", "#17a2b8", "#e08e0b", "#a83279"]
GREY = 5

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}
h1{margin-bottom:.2rem}h2{margin-top:3rem;border-top:1px solid #d0d7de;padding-top:1.2rem}
table{border-collapse:collapse;margin:.8rem 0;font-size:.9rem;font-variant-numeric:tabular-nums}
td,th{padding:.2rem .7rem;border-bottom:1px solid #d0d7de;text-align:right}
td:first-child,th:first-child{text-align:left}td+td{white-space:nowrap}svg{max-width:100%;height:auto;display:block}
code{background:#f3f4f6;padding:.1rem .3rem;border-radius:3px;font-size:.85rem}
pre{background:#f3f4f6;padding:.6rem;border-radius:4px;overflow-x:auto;font-size:.8rem}
.yes{color:#1a7f37;font-weight:600}.no{color:#b3261e;font-weight:600}.scroll{overflow-x:auto}
caption{text-align:left;font-weight:600;padding:.3rem 0}
dt{font-weight:600;margin-top:.5rem}dd{margin:0}
@media print{h2{break-before:page;border:0}body{margin:0;max-width:none}}
"""


def chart(panels):
    """An SVG of panels side by side: (title, x label, y label, scales, series). A series is
    (label, xs, ys, format, color). A linear y axis of positive values starts at 0. Returns the
    SVG element."""
    figure, axes = pyplot.subplots(1, len(panels), figsize=(9.4, 4.4), squeeze=False)
    for place, (axis, panel) in enumerate(zip(axes[0], panels)):
        title, xlabel, ylabel, scales, series = panel
        if not series or not any(len(s[1]) for s in series):
            raise ValueError(f"chart '{title}' has no data")
        for k, (label, xs, ys, form, color) in enumerate(series):
            # The name tells a test which paths are data.
            axis.plot(xs, ys, form, label=label, color=COLORS[color % len(COLORS)],
                      gid=f"series_{place}_{k}")
        axis.set(title=title, xlabel=xlabel, ylabel=ylabel, xscale=scales[0], yscale=scales[1])
        if scales[1] == "linear" and all(y >= 0 for s in series for y in s[2]):
            axis.set_ylim(bottom=0)
        if any(s[0] for s in series):  # below, where it covers no curve
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=4 // len(panels))
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    text = out.getvalue()
    return text[text.index("<svg"):]


def number(value):
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}"


class Section:
    """One figure or table of the paper."""

    def __init__(self, key, title, claim):
        self.key, self.title, self.claim = key, title, claim
        self.checks, self.notes, self.tables, self.charts, self.commands = [], [], [], [], []
        self.seconds = 0.0

    def check(self, what, measured, agrees):
        """One comparison with the paper; `agrees` is computed by the caller from a threshold."""
        self.checks.append((what, measured, bool(agrees)))

    def note(self, text):
        self.notes.append(text)

    def table(self, heads, rows, caption=""):
        self.tables.append((heads, rows, caption))

    def chart(self, *panels):
        self.charts.append(chart(panels))

    def command(self, *lines):
        self.commands.extend(lines)

    @property
    def agrees(self):
        return bool(self.checks) and all(c[2] for c in self.checks)

    def html(self):
        e = html.escape
        out = [f'<section id="{self.key}"><h2>{e(self.title)}: {mark(self.agrees)}</h2>',
               f"<dl><dt>The paper claims</dt><dd>{e(self.claim)}</dd><dt>Measured</dt></dl>"]
        rows = [[e(w), e(number(m)), mark(a)] for w, m, a in self.checks]
        out.append(table_html(["check", "measured", "agrees"], rows))
        out += [f'<figure class="chart" style="margin:0">{c}</figure>' for c in self.charts]
        out += [table_html(map(e, h), [[e(number(v)) for v in r] for r in rows], e(caption))
                for h, rows, caption in self.tables]
        out += [f"<p>{e(n)}</p>" for n in self.notes]
        out.append(f"<pre>{e(chr(10).join(self.commands))}</pre>")
        out.append(f"<p><small>{self.seconds:.0f} s</small></p></section>")
        return "\n".join(out)


def mark(agrees):
    return '<span class="yes">agrees</span>' if agrees else '<span class="no">disagrees</span>'


def table_html(heads, rows, caption=""):
    head = "".join(f"<th>{h}</th>" for h in heads)
    body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows)
    caption = f"<caption>{caption}</caption>" if caption else ""
    return f'<div class="scroll"><table>{caption}<tr>{head}</tr>{body}</table></div>'


def page(sections, summary):
    rows = [[f'<a href="#{s.key}">{html.escape(s.title)}</a>', mark(s.agrees),
             f"{sum(c[2] for c in s.checks)} of {len(s.checks)}", f"{s.seconds:.0f} s"]
            for s in sections]
    return ("<!doctype html><html lang=en><head><meta charset=utf-8>"
            '<meta name=viewport content="width=device-width,initial-scale=1">'
            '<link rel=icon href="data:,">'
            f"<title>Leeway: the paper, measured</title><style>{STYLE}</style></head><body>"
            "<h1>The paper, measured</h1><p>Every result of <i>On the Unreasonable Effectiveness "
            "of Federated Averaging with Heterogeneous Data</i> on synthetic data, by real runs of "
            "Leeway. Every “agrees” is computed from a threshold that stands beside it.</p>"
            f"<p>{html.escape(summary)}</p>"
            + table_html(["result", "", "checks", "time"], rows)
            + "\n".join(s.html() for s in sections) + "</body></html>\n")
