"""Opens a page in headless Chromium and tells what it drew."""

import json
import os
import re
import shutil
import subprocess
import tempfile

TIMEOUT = 120

# Before everything else on the page.
CATCH = """<script>
window.pageErrors = [];
window.addEventListener('error', e => window.pageErrors.push(String(e.message || e.target.src)), true);
</script>"""

# Series are path.line and path.marker in the charts of `leeway report`, groups named series_... in
# those of matplotlib.
LOOK = """<script>
window.addEventListener('load', () => {
  // Those for a phone are hidden on a desk.
  const shown = [...document.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().width > 0);
  const charts = shown.map(svg => {
    const frame = svg.getBoundingClientRect();
    const inside = e => {
      const b = e.getBoundingClientRect();
      return b.width + b.height > 0 && b.right > frame.left && b.left < frame.right &&
             b.bottom > frame.top && b.top < frame.bottom;
    };
    const marks = 'path.line, path.marker, g[id^=series_] path, g[id^=series_] use';
    const drawn = [...svg.querySelectorAll(marks)].filter(inside);
    const widest = Math.max(0, ...drawn.map(e => e.getBoundingClientRect().width));
    return {title: (svg.closest('figure, section') || svg).id, width: frame.width,
            height: frame.height, drawn: drawn.length, widest: widest};
  });
  const out = document.createElement('pre');
  out.id = 'seen';
  out.textContent = JSON.stringify({charts: charts, errors: window.pageErrors});
  document.body.append(out);
});
</script>"""


def chromium():
    """Path of the browser; None if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def look_at(page):
    """What Chromium draws: {"charts": [...], "errors": [...]}, with console messages in errors."""
    with open(page) as f:
        text = f.read()
    head, body = re.search(r"<head>", text), text.rindex("</body>")
    text = text[:head.end()] + CATCH + text[head.end():body] + LOOK + text[body:]
    with tempfile.TemporaryDirectory(prefix="leeway-browser-") as folder:
        # Beside the page, so that what it refers to is found.
        copy = page + ".looked-at.html"
        with open(copy, "w") as f:
            f.write(text)
        try:
            done = subprocess.run(
                [chromium(), "--headless", "--no-sandbox", "--disable-gpu",
                 "--disable-dev-shm-usage", "--enable-logging=stderr", f"--user-data-dir={folder}",
                 "--window-size=1200,4000", "--virtual-time-budget=5000", "--dump-dom",
                 "file://" + os.path.abspath(copy)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                timeout=TIMEOUT)
        finally:
            os.remove(copy)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    if found is None:
        raise AssertionError("Chromium did not finish the page:\n" + done.stderr[-2000:])
    seen = json.loads(found.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    seen["errors"] += [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return seen


def assert_charts_are_drawn(case, page, least):
    """At least so many charts, each with data on it, and nothing on the console."""
    if chromium() is None:
        case.skipTest("there is no chromium to open the page with; ./run test installs it")
    seen = look_at(page)
    case.assertEqual(seen["errors"], [])
    case.assertGreaterEqual(len(seen["charts"]), least)
    for chart in seen["charts"]:
        case.assertGreater(chart["width"], 300, chart)
        case.assertGreater(chart["height"], 100, chart)
        case.assertGreater(chart["drawn"], 0, chart)
        case.assertGreater(chart["widest"], 50, chart)
