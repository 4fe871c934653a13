"""The page in a browser: what it shows on screens of several widths, light and dark."""

import html
import json
import re
import shutil
import subprocess

import pytest

from calibjax.command_line import page
from tests.command_line.examples import EVALUATION

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(NAMES)} is installed"),
]
WIDTHS = (320, 400, 1200)

# Shows the page in frames of several widths, since windows of Chromium have a least width.
FRAMES = """<!DOCTYPE html><html><body>{frames}<script>
onload = () => {{
  const found = [...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument, style = frame.contentWindow.getComputedStyle(page.body);
    return {{
      pictures: [...page.images].map(x => x.complete && x.naturalWidth),
      beyond: page.documentElement.scrollWidth - frame.clientWidth,
      hidden: [...page.querySelectorAll(".wide")].map(x => x.scrollWidth - x.clientWidth),
      title: page.title, headings: [...page.querySelectorAll("h2")].map(x => x.textContent),
      text: style.color, background: style.backgroundColor,
    }};
  }});
  document.documentElement.dataset.found = JSON.stringify(found);
}};
</script></body></html>"""


@pytest.fixture(scope="module")
def report():
    addresses = {name: page.data_address(x) for name, x in EVALUATION.figures().items()}
    return page.page(
        EVALUATION,
        title="Calibration of a_file_with_a_name_that_is_longer_than_any_telephone_is_wide.csv",
        remarks=[],
        facts=[("columns of predictions", ", ".join(["prob_0"] * 40))],
        pictures=addresses,
        setup="import calibjax  # " + "x" * 200,
        command="python -m calibjax data.csv",
    )


def measured(report, folder, *options):
    """What Chromium found in the page, for each width."""
    frames = [
        f'<iframe srcdoc="{html.escape(report)}" width="{width}" height="900"></iframe>'
        for width in WIDTHS
    ]
    path = folder / "frames.html"
    path.write_text(FRAMES.format(frames="".join(frames)))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", *options]
    command += [f"--user-data-dir={folder / 'profile'}", path.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(html.unescape(re.search(r'data-found="(.*?)"', result.stdout)[1]))


def contrast(text, background):
    """The ratio of WCAG 2 for two colours rgb(r, g, b)."""
    levels = []
    for color in (text, background):
        channels = [int(x) / 255 for x in re.findall(r"\d+", color)]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in channels]
        levels.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(levels) + 0.05) / (min(levels) + 0.05)


def test_page_in_a_browser(report, tmp_path):
    backgrounds = set()
    for scheme in (0, 1):  # dark, light
        found = measured(report, tmp_path, f"--blink-settings=preferredColorScheme={scheme}")
        assert len(found) == len(WIDTHS)
        for frame in found:
            assert [width > 100 for width in frame["pictures"]] == [True]  # decoded and drawn
            assert frame["beyond"] <= 0  # nothing is wider than the screen
            assert max(frame["hidden"]) <= 0  # no table is cut
            assert frame["title"].startswith("Calibration of a_file")
            assert frame["headings"][0] == "What was found"
            assert contrast(frame["text"], frame["background"]) > 7
            backgrounds.add(frame["background"])
    assert len(backgrounds) == 2
