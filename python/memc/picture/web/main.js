// Puts the page together.
"use strict";

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  PALETTE = data.palette;
  const pictures = data.pictures.map((picture) => new Picture(picture, data.texts));
  const view = new View(pictures);
  const by = (id) => document.getElementById(id);
  const charts = by("charts");

  const chart = (title, note, height) => {
    const plot = element("div", { class: "plot", style: `height:${height}px` });
    const heading = title ? element("h2", {}, title, note ? element("span", {}, ` ${note}`) : null) : null;
    charts.append(element("div", { class: "chart" }, heading, plot));
    return plot;
  };

  pictures.forEach((picture, at) => {
    for (const [label, value] of picture.facts) {
      const name = pictures.length > 1 ? `${label} ${at ? "after" : "before"}` : label;
      if (pictures.length === 1 || ["peak", "arena", "lower bound"].includes(label)) by("facts").append(element("div", {}, element("dt", {}, name), element("dd", {}, value)));
    }
  });
  const curves = new Curves(view, chart("Live bytes", pictures.length > 1 ? `by role in ${pictures[0].title}; the line is ${pictures[1].title}` : "by role", 190));
  const addresses = pictures.map((picture) => {
    const high = pictures.length > 1 ? 300 : 430;
    const found = new Addresses(view, picture, chart("Addresses", pictures.length > 1 ? `of ${picture.title}` : `over ${picture.unit}s`, high));
    new Lanes(view, picture, chart("", "", 0));
    return found;
  });
  const details = new Details(view, by("details"), by("legend"));
  const live = new LiveTable(view, by("peak"));
  if (data.changes) new ChangeTable(view, by("changes"), data.changes, data.texts);
  new Search(view, by("search"), by("found"), by("count"));

  const toPeak = () => live.at(curves.peak, true);
  const recolour = () => {
    addresses.forEach((each) => each.recolour());
    details.drawLegend();
    view.changed("colours");
  };
  const reload = () => {
    addresses.forEach((each) => each.load());
    curves.load();
    recolour();
    toPeak();
  };
  view.onMatches = recolour;
  view.onRoles = () => {
    curves.load();
    recolour();
  };
  curves.onStep = (step) => live.at(step, step === curves.peak);

  by("space-label").hidden = pictures[0].spaces.length < 2;
  pictures[0].spaces.forEach((space, at) => by("space").append(element("option", { value: at }, space.name)));
  by("space").addEventListener("change", (event) => {
    view.space = Number(event.target.value);
    reload();
    view.fit();
  });
  by("axis-label").hidden = !pictures.every((picture) => picture.hasSeconds);
  by("axis").addEventListener("change", (event) => view.setAxis(event.target.value));
  by("colour").value = view.by;
  by("colour").addEventListener("change", (event) => {
    view.by = event.target.value;
    recolour();
  });
  const showPeak = () => {
    toPeak();
    const edges = view.edges(pictures[0]);
    const room = Math.max(edges[Math.min(curves.peak + 20, pictures[0].steps)] - edges[Math.max(0, curves.peak - 20)], view.span() / 500);
    view.t0 = edges[curves.peak] - room / 2;
    view.t1 = edges[curves.peak] + room / 2;
    Object.assign(view, { a0: 0, a1: view.top() });
    view.clamp();
    view.point(edges[curves.peak], null);
  };
  by("in").addEventListener("click", () => view.zoom(1 / 1.5));
  by("out").addEventListener("click", () => view.zoom(1.5));
  by("fit").addEventListener("click", () => view.fit());
  by("to-peak").addEventListener("click", showPeak);

  // The tensors of a picture in the order in which they become live, for the bracket keys.
  const neighbour = (by) => {
    const picture = view.chosen?.picture ?? pictures[0];
    const { rectangles } = addresses[pictures.indexOf(picture)];
    const now = view.chosen ? rectangles.tensor.indexOf(view.chosen.tensor) : by > 0 ? -1 : rectangles.count;
    const next = now + by;
    if (next >= 0 && next < rectangles.count) view.choose(picture, rectangles.tensor[next]);
  };
  const keys = {
    ArrowLeft: () => view.pan(-(view.t1 - view.t0) / 10, 0),
    ArrowRight: () => view.pan((view.t1 - view.t0) / 10, 0),
    ArrowUp: () => view.pan(0, (view.a1 - view.a0) / 10),
    ArrowDown: () => view.pan(0, -(view.a1 - view.a0) / 10),
    "+": () => view.zoom(1 / 1.5),
    "=": () => view.zoom(1 / 1.5),
    "-": () => view.zoom(1.5),
    "*": () => view.zoomAddresses(1 / 1.5),
    _: () => view.zoomAddresses(1.5),
    "[": () => neighbour(-1),
    "]": () => neighbour(1),
    Enter: () => view.chosen && view.show(view.chosen.picture, view.chosen.tensor),
    0: () => view.fit(),
    p: showPeak,
    Escape: () => view.choose(null),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select")) return;
    if (event.key === "/") {
      event.preventDefault();
      by("search").focus();
      return;
    }
    if (!event.target.closest(".plot") && event.target !== document.body) return;
    const key = event.shiftKey && event.key === "+" ? "*" : event.key;
    if (keys[key]) {
      event.preventDefault();
      keys[key]();
    }
  });
  const redraw = () => view.changed("window");
  new ResizeObserver(redraw).observe(charts);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    STYLES.clear();
    curves.build();
    recolour();
  });
  reload();
  window.memcReport = { view, pictures, addresses, curves, live };
})();
