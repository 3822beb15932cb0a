// Live bytes by role, stacked, with lines for what the plan takes, what no addresses are below, and the budget. Drawn by uPlot; where
// there are more steps than pixels, each column has the step with the most bytes of those in it, so that no peak is lost.
"use strict";

class Curves {
  constructor(view, element) {
    this.view = view;
    this.plot = element;
    this.picture = view.pictures[0];
    this.other = view.pictures[1] ?? null;
    element.setAttribute("role", "img");
    view.listen(["window", "colours"], () => this.draw());
    view.listen(["cursor"], () => this.point());
    pointer(this, view);
  }

  frame() {
    const { width, height } = this.plot.getBoundingClientRect();
    const inner = width - MARGIN.left - MARGIN.right;
    const { t0, t1 } = this.view;
    return { width: inner, height, time: (px) => t0 + ((px - MARGIN.left) / inner) * (t1 - t0) };
  }

  load() {
    const { view, picture } = this;
    const space = view.spaceOf(picture);
    this.space = picture.spaces[space];
    const live = picture.liveByRole(space, (role) => !view.hidden.has(picture.roles[role]));
    // What is drawn first is the sum of all; each that is drawn over it leaves out one role more.
    this.stack = live;
    for (let i = live.length - 2; i >= 0; i--) for (let s = 0; s <= picture.steps; s++) live[i][s] += live[i + 1][s];
    this.total = live[0] ?? new Float64Array(picture.steps + 1);
    this.others = null;
    if (this.other) {
      this.others = new Float64Array(this.other.steps + 1);
      for (const each of this.other.liveByRole(view.spaceOf(this.other), () => true)) for (let s = 0; s < each.length; s++) this.others[s] += each[s];
    }
    this.build();
  }

  // The largest of all that is drawn.
  most() {
    const space = this.space ?? { bytes: 1, lowerBound: null, budget: null };
    let most = Math.max(space.bytes, space.lowerBound ?? 0, 1);
    if (space.budget !== null && space.budget < 3 * most) most = Math.max(most, space.budget);
    for (const bytes of this.total) most = Math.max(most, bytes);
    if (this.others) for (const bytes of this.others) most = Math.max(most, bytes);
    return most * 1.08;
  }

  build() {
    const { view, picture } = this;
    const colours = new Colours(view.pictures);
    const quiet = style("--quiet");
    const top = this.most();
    const stepped = uPlot.paths.stepped({ align: 1 });
    const areas = this.stack.map((_, role) => {
      const hue = colours.hue("role", picture.roles[role]);
      return { label: picture.roles[role], fill: css(hue), stroke: css(edgeOf(hue)), width: 1, paths: stepped, points: { show: false } };
    });
    if (this.other) areas.push({ label: this.other.title, stroke: style("--ink"), width: 1.5, paths: stepped, points: { show: false } });
    const axis = { stroke: quiet, grid: { stroke: style("--grid"), width: 1 }, ticks: { stroke: quiet, width: 1, size: 4 }, font: FONT };
    const options = {
      ...this.sizes(),
      padding: [8, MARGIN.right, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: { x: { time: false, range: () => [view.t0, view.t1] }, y: { range: () => [0, top] } },
      axes: [
        { ...axis, size: 26, values: (_, all) => all.map((at) => (view.axis === "seconds" && picture.hasSeconds ? duration(at) : at.toLocaleString("en"))) },
        { ...axis, size: MARGIN.left, splits: () => ticks(0, top, 4, 2), values: (_, all) => all.map(size) },
      ],
      series: [{}, ...areas],
      hooks: { draw: [(plot) => this.lines(plot)] },
    };
    this.chart?.destroy();
    this.chart = new uPlot(options, this.data(), this.plot);
    this.describe();
  }

  sizes() {
    const { width, height } = this.plot.getBoundingClientRect();
    return { width: Math.max(120, width), height: Math.max(80, height) };
  }

  describe() {
    const { picture } = this;
    let peak = 0;
    for (let s = 1; s < picture.steps; s++) if (this.total[s] > this.total[peak]) peak = s;
    this.peak = peak;
    this.plot.setAttribute("aria-label", `Live bytes by role over time: at most ${size(this.total[peak] ?? 0)}, at ${picture.step(peak)}.`);
  }

  // Of each column of pixels, or each step where there are fewer: the step that is drawn, and where its column begins.
  columns(picture, total) {
    const { view } = this;
    const edges = view.edges(picture);
    const first = Math.max(0, lastAtMost(edges, view.t0));
    const last = Math.min(picture.steps - 1, Math.max(0, lastAtMost(edges, view.t1)));
    const most = Math.max(64, Math.round(this.frame().width));
    const at = [];
    const steps = [];
    if (last - first <= 2 * most) {
      for (let s = first; s <= last; s++) at.push(edges[s]), steps.push(s);
    } else {
      const width = (view.t1 - view.t0) / most;
      let column = -1;
      for (let s = first; s <= last; s++) {
        const now = Math.floor((edges[s] - view.t0) / width);
        if (now !== column) {
          column = now;
          at.push(edges[s]);
          steps.push(s);
        } else if (total[s] > total[steps[steps.length - 1]]) steps[steps.length - 1] = s;
      }
    }
    at.push(edges[last + 1] ?? edges[last]);
    steps.push(last);
    return { at, steps };
  }

  data() {
    const mine = this.columns(this.picture, this.total);
    if (!this.other) return [mine.at, ...this.stack.map((bytes) => mine.steps.map((s) => bytes[s]))];
    const theirs = this.columns(this.other, this.others);
    return uPlot.join([
      [mine.at, ...this.stack.map((bytes) => mine.steps.map((s) => bytes[s]))],
      [theirs.at, theirs.steps.map((s) => this.others[s])],
    ]).map((column, i) => (i ? carried(column) : column));
  }

  draw() {
    if (!this.chart) return;
    const { width, height } = this.sizes();
    if (this.chart.width !== width || this.chart.height !== height) this.chart.setSize({ width, height });
    this.chart.setData(this.data());
  }

  lines(plot) {
    const { space } = this;
    if (!space) return;
    const { ctx, bbox } = plot;
    const scale = uPlot.pxRatio;
    const lines = [[space.bytes, space.name, style("--ink"), []]];
    if (space.lowerBound !== null && space.lowerBound !== space.bytes) lines.push([space.lowerBound, "lower bound", style("--ink"), [2, 3]]);
    if (space.lowerBound !== null && space.lowerBound === space.bytes) lines[0][1] = `${space.name}, at the lower bound`;
    if (space.budget !== null) lines.push([space.budget, "budget", style("--mark"), [8, 4]]);
    ctx.save();
    ctx.font = `${12 * scale}px system-ui, sans-serif`;
    ctx.textBaseline = "bottom";
    ctx.textAlign = "left";
    const drawn = lines.map(([bytes, ...rest]) => [Math.round(plot.valToPos(bytes, "y", true)) + 0.5, bytes, ...rest]).filter(([y]) => y >= bbox.top);
    for (const [y, , , colour, dash] of drawn) {
      ctx.strokeStyle = colour;
      ctx.lineWidth = scale;
      ctx.setLineDash(dash.map((each) => each * scale));
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
    }
    let right = bbox.left + bbox.width - 4 * scale;
    for (const [y, bytes, name, colour] of drawn) {
      const label = `${name} ${size(bytes)}`;
      const wide = ctx.measureText(label).width;
      ctx.fillStyle = style("--back");
      ctx.fillRect(right - wide - 3 * scale, y - 16 * scale, wide + 6 * scale, 15 * scale);
      ctx.fillStyle = colour;
      ctx.fillText(label, right - wide, y - scale);
      right -= wide + 14 * scale;
    }
    ctx.restore();
  }

  point() {
    const { cursor, t0, t1 } = this.view;
    const away = cursor === null || cursor < t0 || cursor > t1;
    this.chart?.setCursor(away ? { left: -10, top: -10 } : { left: this.chart.valToPos(cursor, "x"), top: 10 }, false);
  }

  clicked(t) {
    this.onStep?.(this.view.stepAt(this.picture, t));
  }
}

// What is not said at a place is as before it.
function carried(column) {
  let last = null;
  return column.map((each) => (last = each === undefined || each === null ? last : each));
}
