# SPDX-License-Identifier: Apache-2.0
"""The page in a browser without a window: what it shows, how it answers, and that it asks the network for nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memc.picture.page import page_of
from memc.picture.picture import PictureSpace, PlacedTensor, PlanPicture

Open = Callable[..., Any]

MOVED_PIXELS = """() => {
  const { view, addresses } = memcReport, chart = addresses[0], wrong = [];
  let seed = 1;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  for (let round = 0; round < 60; round++) {
    if (round % 10 === 0) {
      view.fit();
      view.zoom(10 ** (-3 * random()), view.end() * random());
      view.zoomAddresses(10 ** (-1.5 * random()), view.top() * random());
      view.tell();
    }
    view.pan((random() - 0.5) * 0.3 * (view.t1 - view.t0), (random() - 0.5) * 0.3 * (view.a1 - view.a0));
    view.tell();
    const { width, height } = chart.image, { grid } = chart;
    const whole = new Uint32Array(width * height).fill(pixel(rgb(style("--empty"))));
    chart.rectangles.paint(whole, width, height, grid, grid.edges, chart.colours, [0, width, 0, height]);
    wrong.push(whole.reduce((count, each, at) => count + (each !== chart.pixels[at]), 0));
  }
  return Math.max(...wrong);
}"""
"""The most pixels by which an image that was moved differs from one that is painted anew."""


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Open:
    """Opens a page; whatever it logs or asks for beside itself fails the test at its end."""
    faults: list[str] = []

    def opened(*pictures: PlanPicture, scheme: str = "light") -> Any:
        path = tmp_path / "report.html"
        path.write_text(page_of(*pictures), encoding="utf-8")
        context = browser.new_context(viewport={"width": 1300, "height": 1000}, color_scheme=scheme)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda asked: faults.append(asked.url) if asked.url != path.as_uri() else None)
        page.goto(path.as_uri())
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return page

    yield opened  # type: ignore[misc]
    assert faults == []


def many(count: int) -> PlanPicture:
    """Tensors that do not overlap: columns of time with stacks of tensors in each."""
    rng = random.Random(7)
    tensors = []
    for at in range(count):
        column, row = divmod(at, 50)
        lower = column * 20 + rng.randrange(10)
        tensors.append(
            PlacedTensor(
                f"layer{row}.t{at}", ((lower, lower + rng.randrange(1, 10)),), row * 4096, rng.randrange(1, 4096)
            )
        )
    return PlanPicture("many", "step", (count // 50 + 1) * 20, (PictureSpace("arena", 50 * 4096),), tensors)


def rows(page: Any, place: str = "#peak") -> list[list[str]]:
    return page.eval_on_selector_all(
        f"{place} tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )


def test_the_table_has_what_is_live_at_the_peak(show: Open, picture: PlanPicture) -> None:
    page = show(picture)
    assert page.inner_text("#peak h2").startswith("Live at the peak\nmatmul, op 1: 3 tensors, 384 B.")
    found = rows(page)
    assert [row[0] for row in found] == ["b", "a", "w"]
    assert found[1] == [
        "a",
        "100 B",
        "33.3 %",
        "0",
        "activations",
        "written at exp (op 0), next used at neg (op 2)",
        "kept",
        "",
    ]
    page.click("#peak th:first-child button")
    assert [row[0] for row in rows(page)] == ["a", "b", "w"]
    page.click("#peak th:first-child button")
    assert [row[0] for row in rows(page)] == ["w", "b", "a"]
    assert page.get_attribute("#peak th:first-child", "aria-sort") == "descending"


def test_pointing_tells_of_the_tensor(show: Open, picture: PlanPicture) -> None:
    page = show(picture)
    box = page.query_selector_all(".plot[tabindex]")[0].bounding_box()
    width, height = box["width"] - 84 - 26, box["height"] - 30
    x = box["x"] + 84 + width * 4.5 / 5
    y = box["y"] + 6 + height * (1 - 30 / 408)
    page.mouse.move(x, y)
    page.wait_for_selector("#details h3")
    text = page.inner_text("#details")
    assert text.startswith("g\n") and '<cheap> & "short"' in text and "recomputed" in text
    page.mouse.click(x, y)
    assert page.evaluate("memcReport.view.chosen.tensor") == 2


def test_clicking_in_the_curve_shows_another_moment(show: Open, picture: PlanPicture) -> None:
    page = show(picture)
    box = page.query_selector(".uplot").bounding_box()
    page.mouse.click(box["x"] + 84 + (box["width"] - 110) * 0.9, box["y"] + 60)
    assert [row[0] for row in rows(page)] == ["w", "g"]
    assert page.inner_text("#peak h2").startswith("Live at op 4")


def test_search_by_name_op_and_source_line(show: Open, picture: PlanPicture) -> None:
    page = show(picture)
    for words, names in (
        ("net.py:7", ["b"]),
        ("EXP", ["a"]),
        ("matmul", ["b", "g", "w"]),
        ("w3", ["w"]),
        ("nothing", []),
    ):
        page.fill("#search", words)
        assert page.inner_text("#count") == f"{len(names)} found"
        listed = page.eval_on_selector_all("#found button", "found => found.map(each => each.textContent)")
        assert [text.split(" · ")[0] for text in listed] == names
    page.fill("#search", "net.py:7")
    page.keyboard.press("Enter")
    assert page.evaluate("memcReport.view.chosen.tensor") == 1


def test_keys_move_zoom_and_choose(show: Open, picture: PlanPicture) -> None:
    page = show(picture)
    page.focus(".plot[tabindex]")

    def window() -> list[float]:
        return page.evaluate("[memcReport.view.t0, memcReport.view.t1]")

    assert window() == [0, 5]
    page.keyboard.press("+")
    begin, end = window()
    assert end - begin == pytest.approx(5 / 1.5)
    page.keyboard.press("ArrowRight")
    assert window()[0] == pytest.approx(begin + (end - begin) / 10)
    page.keyboard.press("0")
    assert window() == [0, 5]
    page.keyboard.press("]")
    page.keyboard.press("]")
    page.wait_for_selector("#details h3 >> text=b")
    page.keyboard.press("Enter")
    assert window()[1] - window()[0] < 5 or window() == [0, 5]
    page.keyboard.press("Escape")
    assert page.evaluate("memcReport.view.chosen") is None
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


def test_the_axis_in_seconds_keeps_the_window(show: Open, picture: PlanPicture) -> None:
    page = show(picture)
    page.evaluate("Object.assign(memcReport.view, { t0: 1, t1: 3 })")
    page.select_option("#axis", "seconds")
    assert page.evaluate("[memcReport.view.t0, memcReport.view.t1]") == pytest.approx([0.001, 0.004])
    assert page.evaluate("memcReport.view.end()") == pytest.approx(0.006)


def test_steps_have_the_numbers_of_the_source(show: Open, picture: PlanPicture) -> None:
    page = show(replace(picture, seconds=(), ops=(), moments=(-40, 10, 1000, 1001, 2000, 3000)))
    assert page.evaluate("[memcReport.view.t0, memcReport.view.t1]") == [-40, 3000]
    assert page.inner_text("#peak h2").startswith("Live at the peak\nop 10: 3 tensors, 384 B.")
    page.evaluate("memcReport.view.choose(memcReport.pictures[0], 2)")
    page.wait_for_selector("#details h3 >> text=g")
    assert "live\n1,001 to 2,999\n" in page.inner_text("#details")


def test_roles_can_be_faded(show: Open, picture: PlanPicture) -> None:
    page = show(picture)
    before = page.evaluate("Math.max(...memcReport.curves.total)")
    page.click("#legend button >> text=activations")
    assert before == 384 and page.evaluate("Math.max(...memcReport.curves.total)") == 128
    assert page.get_attribute("#legend button", "aria-pressed") == "false"


def test_two_plans_and_what_differs(show: Open, picture: PlanPicture) -> None:
    a, b, *rest = picture.tensors
    page = show(picture, replace(picture, title="after", tensors=[replace(a, nbytes=200, offset=192), *rest]))
    assert [row[0] for row in rows(page, "#changes")] == ["b", "a"]
    assert rows(page, "#changes")[1] == ["a", "100 B", "200 B", "moved, 100 B to 200 B"]
    assert rows(page, "#changes")[0] == ["b", "130 B", "–", "gone"]
    page.click("#changes tbody tr:nth-child(2)")
    assert page.evaluate("memcReport.view.chosen.picture === memcReport.pictures[1]")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible(show: Open, picture: PlanPicture, scheme: str) -> None:
    """Contrast of at least 4.5 to 1, as WCAG 2.2 asks of text (success criterion 1.4.3)."""
    page = show(picture, scheme=scheme)
    ratios = page.evaluate(
        """() => {
          const light = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
          const luminance = (hex) => { const [r, g, b] = rgb(hex).map((each) => light(each / 255)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const found = {};
          for (const ink of ["--ink", "--quiet", "--accent", "--mark"]) for (const back of ["--back", "--panel"]) {
            const [high, low] = [luminance(style(ink)), luminance(style(back))].sort((a, b) => b - a);
            found[ink + back] = (high + 0.05) / (low + 0.05);
          }
          return found;
        }"""
    )
    assert len(ratios) == 8 and min(ratios.values()) >= 4.5, ratios


def test_controls_have_names(show: Open, picture: PlanPicture) -> None:
    page = show(picture)
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, .plot[role]")].filter((each) =>
             !(each.textContent.trim() || each.getAttribute("aria-label") || each.closest("label"))).length"""
    )
    assert unnamed == 0


def test_moved_pixels_are_those_of_the_whole(show: Open, picture: PlanPicture) -> None:
    assert show(many(5000)).evaluate(MOVED_PIXELS) == 0


def test_each_pixel_is_its_tensors(show: Open) -> None:
    """Against a search through all rectangles."""
    page = show(many(600))
    wrong = page.evaluate(
        """() => {
          const { addresses, pictures } = memcReport, { image, grid, pixels, colours } = addresses[0], { tensors, lives } = pictures[0];
          const back = pixel(rgb(style("--empty")));
          let wrong = 0;
          for (let k = 0; k < 4000; k++) {
            const x = (k * 7919) % image.width, y = (k * 104729) % image.height;
            const t = (x + grid.left + 0.5) / grid.kx, a = (image.height - y - 0.5 + grid.base) / grid.ky;
            const near = new Set([back]);
            for (let i = 0; i < lives.tensor.length; i++) {
              const n = lives.tensor[i], within = (v, low, high, slack) => low - slack <= v && v <= high + slack;
              if (within(t, lives.lower[i], lives.upper[i], 1.5 / grid.kx) && within(a, tensors.offset[n], tensors.offset[n] + tensors.bytes[n], 1.5 / grid.ky)) {
                near.add(colours.fill[n]); near.add(colours.border[n]);
                const inside = within(t, lives.lower[i], lives.upper[i], -1.5 / grid.kx) && within(a, tensors.offset[n], tensors.offset[n] + tensors.bytes[n], -1.5 / grid.ky);
                if (inside) { near.clear(); near.add(colours.fill[n]); break; }
              }
            }
            wrong += !near.has(pixels[y * image.width + x]);
          }
          return wrong;
        }"""
    )
    assert wrong == 0
