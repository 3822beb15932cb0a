// Lanes below the addresses: how long each op takes, and copies out and in.
"use strict";

const LANE = 22;

class Lanes {
  constructor(view, picture, element) {
    this.view = view;
    this.picture = picture;
    this.plot = element;
    element.innerHTML = "<canvas></canvas>";
    this.canvas = element.firstChild;
    this.lanes = [];
    if (picture.hasSeconds) this.lanes.push(["op times", (...all) => this.ops(...all)]);
    for (const [way, name] of [[0, "copies out"], [1, "copies in"]]) {
      if (picture.copies.way.includes(way)) this.lanes.push([name, (...all) => this.copies(way, ...all)]);
    }
    element.style.height = `${this.lanes.length * (LANE + 4) + 2}px`;
    element.hidden = !this.lanes.length;
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", this.describe());
    this.most = 0;
    for (let s = 0; s < picture.steps && picture.hasSeconds; s++) this.most = Math.max(this.most, picture.seconds[s + 1] - picture.seconds[s]);
    view.listen(["window", "colours"], () => this.draw());
    pointer(this, view);
  }

  describe() {
    const { picture } = this;
    const copies = picture.copies.way.length;
    return `Times of ops by ${picture.secondsFrom || "nothing"}${copies ? `, and ${copies} copies` : ""}.`;
  }

  frame() {
    const { width, height } = this.plot.getBoundingClientRect();
    const inner = width - MARGIN.left - MARGIN.right;
    const { t0, t1 } = this.view;
    return { width: inner, height, x: (t) => ((t - t0) / (t1 - t0)) * inner, time: (px) => t0 + ((px - MARGIN.left) / inner) * (t1 - t0) };
  }

  draw() {
    if (!this.lanes.length) return;
    const { context, width, height } = fitted(this.canvas);
    const frame = this.frame();
    context.clearRect(0, 0, width, height);
    this.lanes.forEach(([name, paint], at) => {
      const y = at * (LANE + 4) + 1;
      context.fillStyle = style("--quiet");
      context.textAlign = "right";
      context.textBaseline = "middle";
      context.fillText(name, MARGIN.left - 8, y + LANE / 2);
      context.fillStyle = style("--empty");
      context.fillRect(MARGIN.left, y, frame.width, LANE);
      paint(context, frame, y);
    });
  }

  // The height of a bar is the root of the op's time, so that short ops are seen beside long ones; of ops in one column of pixels, the
  // longest counts.
  ops(context, frame, y) {
    const { view, picture, most } = this;
    const edges = view.edges(picture);
    const first = Math.max(0, lastAtMost(edges, view.t0));
    const last = Math.min(picture.steps - 1, lastAtMost(edges, view.t1));
    context.fillStyle = style("--accent");
    let column = -1;
    let tallest = 0;
    const bar = (x, width, seconds) => {
      const high = Math.max(1, LANE * Math.sqrt(seconds / most));
      context.fillRect(MARGIN.left + x, y + LANE - high, width, high);
    };
    for (let s = first; s <= last; s++) {
      const seconds = picture.seconds[s + 1] - picture.seconds[s];
      if (!seconds) continue;
      const left = Math.max(0, frame.x(edges[s]));
      const right = Math.min(frame.width, frame.x(edges[s + 1]));
      if (right - left >= 1) {
        bar(left, Math.max(0.5, right - left - (right - left > 3 ? 1 : 0)), seconds);
      } else if (Math.floor(left) !== column) {
        if (column >= 0) bar(column, 1, tallest);
        column = Math.floor(left);
        tallest = seconds;
      } else tallest = Math.max(tallest, seconds);
    }
    if (column >= 0) bar(column, 1, tallest);
  }

  copies(way, context, frame, y) {
    const { copies } = this.picture;
    const hue = way ? PALETTE.hues[4] : PALETTE.hues[5];
    context.fillStyle = hue;
    context.strokeStyle = css(edgeOf(rgb(hue)));
    context.lineWidth = 1;
    for (let i = 0; i < copies.way.length; i++) {
      if (copies.way[i] !== way) continue;
      const [left, right] = this.span(i).map(frame.x);
      if (right < 0 || left > frame.width) continue;
      const from = Math.max(0, left);
      const wide = Math.max(1, Math.min(frame.width, right) - from - (right - left > 3 ? 1 : 0));
      context.fillRect(MARGIN.left + from, y, wide, LANE);
      context.strokeRect(MARGIN.left + from + 0.5, y + 0.5, Math.max(0, wide - 1), LANE - 1);
    }
  }

  // When a copy's bytes move, on the axis.
  span(copy) {
    const edges = this.view.edges(this.picture);
    return [this.picture.copies.begin[copy], this.picture.copies.end[copy]].map((step) => {
      const at = Math.min(this.picture.steps - 1, Math.floor(step));
      return edges[at] + (step - at) * (edges[at + 1] - edges[at]);
    });
  }

  // What lies at a place, in words; null if nothing does.
  tell(px, py) {
    const lane = this.lanes[Math.floor(py / (LANE + 4))];
    const { picture, view } = this;
    if (!lane || px < MARGIN.left) return null;
    const t = this.frame().time(px);
    if (lane[0] === "op times") {
      const step = view.stepAt(picture, t);
      return [picture.step(step), [["takes", duration(picture.seconds[step + 1] - picture.seconds[step])], ["by", picture.secondsFrom], ["from", picture.opPlace(step)]]];
    }
    const way = lane[0] === "copies in" ? 1 : 0;
    for (let i = 0; i < picture.copies.way.length; i++) {
      const [from, to] = this.span(i);
      if (picture.copies.way[i] === way && from <= t && t <= to) {
        const waited = picture.copies.waited[i];
        return [`copy ${way ? "in" : "out"} of %${picture.texts[picture.copies.name[i]]}`, [["size", size(picture.copies.bytes[i])], ["ops wait", waited ? duration(waited) : "not at all"]]];
      }
    }
    return null;
  }

  pick(px, py) {
    this.view.told = this.tell(px, py);
    return null;
  }
}
