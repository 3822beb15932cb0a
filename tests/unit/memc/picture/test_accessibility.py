# SPDX-License-Identifier: Apache-2.0
"""What the page asks of eyes and hands: contrasts, names, and the keyboard, measured in a browser (WCAG 2.2, levels A and AA)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memc.picture.colours import HUES
from memc.picture.page import page_of
from memc.picture.picture import PlanPicture

Open = Callable[..., Any]

SCHEMES = ("light", "dark")

SEEN = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const [r, g, b, a = 1] = parts(getComputedStyle(at).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const shown = (each) => each.checkVisibility() && each.getBoundingClientRect().width > 0;
  return { parts, behind, shown };
}"""
"""What the next scripts share: numbers of a colour, the colour behind an element, and whether it is shown."""

TEXTS = f"""() => {{
  const {{ parts, behind, shown }} = ({SEEN})();
  const found = [];
  for (const each of document.querySelectorAll("body *")) {{
    const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()) || each.matches("input, select");
    if (!own || !shown(each) || each.matches("script, style, noscript")) continue;
    found.push([each.tagName + "." + each.className, contrast(parts(getComputedStyle(each).color).slice(0, 3), behind(each))]);
  }}
  return found;
}}"""

EDGES = f"""() => {{
  const {{ parts, behind, shown }} = ({SEEN})();
  const found = [];
  for (const each of document.querySelectorAll("input, select, .buttons button")) {{
    if (shown(each)) found.push([each.id, contrast(parts(getComputedStyle(each).borderTopColor).slice(0, 3), behind(each.parentElement))]);
  }}
  return found;
}}"""

GRAPHICS = """(hues) => {
  const named = (name) => rgb(style(name));
  const back = named("--empty"), found = {};
  for (const hue of hues) {
    found["edge of " + hue] = contrast(edgeOf(rgb(hue)), back);
    found["label on " + hue] = contrast(rgb(inkOn(rgb(hue)) === "#000000" ? "#000000" : "#ffffff"), rgb(hue)) / 1.5;
  }
  for (let i = 0; i <= 20; i++) found["edge of ramp " + i] = contrast(edgeOf(onRamp(i / 20)), back);
  for (const line of ["--ink", "--mark", "--quiet", "--accent"]) found[line] = contrast(named(line), back);
  for (const ground of ["--back", "--panel", "--empty"]) found["focus on " + ground] = contrast(named("--focus"), named(ground));
  found.chosen = contrast(named("--mark"), named("--back"));
  return found;
}"""
"""Contrasts of lines and borders; of labels, which are text, as parts of what text needs (4.5 is 1.5 times 3)."""

STOPS = """() => {
  const each = document.activeElement, look = getComputedStyle(each);
  return [each.id || each.className || each.tagName, look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 2, each.closest("table") ? "row" : ""];
}"""


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Open:
    """Opens a page with a picture in a colour scheme."""

    def opened(*pictures: PlanPicture, **options: Any) -> Any:
        path = tmp_path / "report.html"
        path.write_text(page_of(*pictures), encoding="utf-8")
        page = browser.new_context(viewport={"width": 1300, "height": 1000}, **options).new_page()
        page.goto(path.as_uri())
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return page

    return opened


def test_contrasts_are_those_of_the_standard(show: Open, picture: PlanPicture) -> None:
    page = show(picture)
    assert page.evaluate("contrast([0, 0, 0], [255, 255, 255])") == pytest.approx(21)
    assert page.evaluate("contrast(rgb('#777777'), rgb('#ffffff'))") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_text_is_legible(show: Open, picture: PlanPicture, scheme: str) -> None:
    page = show(picture, picture, color_scheme=scheme)
    page.fill("#search", "a")
    page.evaluate("memcReport.view.choose(memcReport.pictures[0], 1)")
    page.click("summary")
    page.wait_for_selector("#details h3")
    found = page.evaluate(TEXTS)
    assert len(found) > 60
    assert [each for each in found if each[1] < 4.5] == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_controls_and_graphics_stand_out(show: Open, picture: PlanPicture, scheme: str) -> None:
    page = show(picture, color_scheme=scheme)
    edges = page.evaluate(EDGES)
    assert len(edges) >= 6 and [each for each in edges if each[1] < 3] == []
    graphics = page.evaluate(GRAPHICS, list(HUES))
    assert len(graphics) == 2 * len(HUES) + 29
    assert {name: ratio for name, ratio in graphics.items() if ratio < 3} == {}


def test_the_keyboard_reaches_everything_in_reading_order(show: Open, picture: PlanPicture) -> None:
    page = show(picture, picture)
    stops = []
    for _ in range(40):
        page.keyboard.press("Tab")
        stop = page.evaluate(STOPS)
        if stop[0] == "BODY":
            break
        stops.append(stop)
    names = [name for name, _, _ in stops]
    assert names[:8] == ["skip", "search", "colour", "axis", "out", "in", "fit", "to-peak"]
    assert names.count("plot") == 2 and names.index("plot") > 7
    assert (
        sum(kind == "row" and name == "TR" for name, _, kind in stops) == 1
    )  # One row of the table; arrows reach the others.
    assert [name for name, outlined, _ in stops if not outlined] == []
    order = page.evaluate(
        """() => { const all = [...document.querySelectorAll("a, input, select, button, summary, [tabindex='0']")];
             return all.filter((each) => each.tabIndex > 0).length; }"""
    )
    assert order == 0  # None is out of the order of the document.


def test_rows_of_tables_by_keyboard(show: Open, picture: PlanPicture) -> None:
    page = show(picture)
    page.focus("#peak tbody tr")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.cells[0].textContent") == "a"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.cells[0].textContent") == "w"
    page.keyboard.press("ArrowDown")  # Stays at the end.
    page.keyboard.press("Enter")
    assert page.evaluate("memcReport.view.chosen.tensor") == 3
    assert page.eval_on_selector_all("#peak tbody tr", "rows => rows.map(row => row.tabIndex)") == [-1, -1, 0]


def test_names_and_places(show: Open, picture: PlanPicture) -> None:
    page = show(picture)
    assert page.evaluate("document.documentElement.lang") == "en" and page.title() == "net.onnx · memc report"
    repeated = page.evaluate(
        "() => { const ids = [...document.querySelectorAll('[id]')].map(each => each.id); return ids.filter((id, i) => ids.indexOf(id) !== i); }"
    )
    assert repeated == []
    missing = page.evaluate(
        """() => [...document.querySelectorAll("[aria-controls], [aria-describedby], [aria-labelledby]")].flatMap((each) =>
             ["aria-controls", "aria-describedby", "aria-labelledby"].map((name) => each.getAttribute(name)).filter((id) => id && !document.getElementById(id)))"""
    )
    assert missing == []
    roles = page.eval_on_selector_all(
        ".plot", "plots => plots.map(plot => [plot.getAttribute('role'), plot.ariaLabel])"
    )
    assert [role for role, _ in roles] == ["img", "application", "img"]
    assert roles[0][1].startswith("Live bytes by role over time: at most 384 B, at ")
    assert "Arrow keys move, plus and minus zoom" in roles[1][1] and roles[2][1].startswith(
        "Times of ops by the cost model"
    )
    levels = page.eval_on_selector_all("h1, h2", "all => all.map(each => each.tagName)")
    assert levels[0] == "H1" and levels.count("H1") == 1


def test_nothing_moves_by_itself(show: Open, picture: PlanPicture) -> None:
    page = show(picture, reduced_motion="reduce")
    moving = page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((each) => { const look = getComputedStyle(each);
             return look.animationName !== "none" || parseFloat(look.transitionDuration) > 0; }).length"""
    )
    assert moving == 0 and page.evaluate("document.getAnimations().length") == 0


def test_zoomed_text_needs_no_sideways_scrolling(show: Open, picture: PlanPicture) -> None:
    """At 320 CSS pixels, which is 1280 at 400 % (success criterion 1.4.10); charts and tables of data may."""
    page = show(picture)
    page.set_viewport_size({"width": 320, "height": 800})
    page.wait_for_function("document.documentElement.scrollWidth <= 320", timeout=5000)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing(browser: Any, picture: PlanPicture, tmp_path: Path, scheme: str) -> None:
    """The checks that Lighthouse counts, by axe-core, where axe-playwright-python is installed."""
    package = pytest.importorskip("axe_playwright_python")
    path = tmp_path / "report.html"
    path.write_text(page_of(picture, picture), encoding="utf-8")
    page = browser.new_context(color_scheme=scheme, bypass_csp=True).new_page()
    page.goto(path.as_uri())
    page.fill("#search", "a")
    page.add_script_tag(content=(Path(package.__file__).parent / "axe.min.js").read_text())
    found = page.evaluate("axe.run(document)")
    assert len(found["passes"]) > 40
    assert [(each["id"], each["nodes"][0]["html"]) for each in found["violations"]] == []
