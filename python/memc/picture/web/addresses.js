// Addresses over time: each tensor as a rectangle, painted as pixels, with axes, lines and labels above.
"use strict";

const MARGIN = { left: 84, right: 26, top: 6, bottom: 24 };

const FONT = "12px system-ui, sans-serif";

function ticks(low, high, most, steps) {
  const rough = (high - low) / Math.max(1, most);
  const power = steps === 2 ? 2 ** Math.floor(Math.log2(rough)) : 10 ** Math.floor(Math.log10(rough));
  const factor = steps === 2 ? [1, 2] : [1, 2, 5, 10];
  const gap = power * (factor.find((each) => power * each >= rough) ?? 10);
  const found = [];
  for (let at = Math.ceil(low / gap) * gap; at <= high + gap * 1e-9; at += gap) found.push(at);
  return found;
}

// A canvas of its element's size in device pixels, and its context in CSS pixels.
function fitted(canvas) {
  const scale = Math.min(2, window.devicePixelRatio || 1);
  const { width, height } = canvas.parentElement.getBoundingClientRect();
  const size = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.font = FONT;
  return { context, width, height, scale };
}

class Addresses {
  constructor(view, picture, element) {
    this.view = view;
    this.picture = picture;
    this.plot = element;
    element.innerHTML = "<canvas></canvas><canvas></canvas>";
    [this.canvas, this.above] = element.children;
    element.tabIndex = 0;
    element.setAttribute("role", "application");
    element.setAttribute("aria-label", `Addresses over time of ${picture.title}. Arrow keys move, plus and minus zoom, brackets choose tensors.`);
    view.listen(["window", "colours"], () => this.draw());
    view.listen(["window", "colours", "cursor", "chosen"], () => this.drawAbove());
    pointer(this, view);
  }

  load() {
    const space = this.view.spaceOf(this.picture);
    this.space = this.picture.spaces[space];
    this.rectangles = new Rectangles(this.picture, space);
  }

  recolour() {
    const { view, picture } = this;
    let matches = view.matches[view.pictures.indexOf(picture)];
    if (view.hidden.size) {
      const hidden = picture.roles.map((role) => view.hidden.has(role));
      const found = matches;
      matches = Uint8Array.from({ length: picture.count }, (_, i) => (!hidden[picture.tensors.role[i]] && (!found || found[i]) ? 1 : 0));
    }
    this.colours = new Colours(view.pictures).pixels(picture, view.by, matches);
  }

  frame() {
    const { width, height } = this.plot.getBoundingClientRect();
    const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    const { t0, t1, a0, a1 } = this.view;
    const x = (t) => MARGIN.left + ((t - t0) / (t1 - t0)) * inner.width;
    const y = (a) => MARGIN.top + (1 - (a - a0) / (a1 - a0)) * inner.height;
    const time = (px) => t0 + ((px - MARGIN.left) / inner.width) * (t1 - t0);
    const address = (py) => a0 + (1 - (py - MARGIN.top) / inner.height) * (a1 - a0);
    return { ...inner, x, y, time, address };
  }

  draw() {
    const { context, width, height, scale } = fitted(this.canvas);
    const frame = this.frame();
    context.clearRect(0, 0, width, height);
    const w = Math.max(1, Math.round(frame.width * scale));
    const h = Math.max(1, Math.round(frame.height * scale));
    if (!this.image || this.image.width !== w || this.image.height !== h) {
      this.image = new ImageData(w, h);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.grid = null;
    }
    this.paint(w, h);
    context.putImageData(this.image, Math.round(MARGIN.left * scale), Math.round(MARGIN.top * scale));
    this.labels(context, w, h, scale);
    this.axes(context, frame, width, height);
  }

  // Paints what the image does not have yet: all of it, or where only the window has moved, what came in at its sides.
  paint(w, h) {
    const { t0, t1, a0, a1 } = this.view;
    const kx = w / (t1 - t0);
    const ky = h / (a1 - a0);
    const grid = { kx, ky, left: Math.floor(t0 * kx), base: Math.floor(a0 * ky) };
    const same = (a, b) => Math.abs(a - b) <= 1e-9 * b;
    const before = this.grid;
    const edges = this.view.edges(this.picture);
    let parts = [[0, w, 0, h]];
    if (before && before.edges === edges && before.colours === this.colours && same(before.kx, kx) && same(before.ky, ky)) {
      Object.assign(grid, { kx: before.kx, ky: before.ky, left: Math.floor(t0 * before.kx), base: Math.floor(a0 * before.ky) });
      parts = this.move(w, h, grid.left - before.left, grid.base - before.base);
    }
    this.grid = { ...grid, edges, colours: this.colours };
    const back = pixel(rgb(style("--empty")));
    this.painted = 0;
    for (const [x0, x1, y0, y1] of parts) {
      for (let y = y0; y < y1; y++) this.pixels.fill(back, y * w + x0, y * w + x1);
      this.painted += this.rectangles.paint(this.pixels, w, h, grid, edges, this.colours, [x0, x1, y0, y1]);
    }
  }

  // Moves the image by whole pixels, and returns the parts that came in.
  move(w, h, right, up) {
    if (Math.abs(right) >= w || Math.abs(up) >= h) return [[0, w, 0, h]];
    const by = up * w - right;
    if (by > 0) this.pixels.copyWithin(by, 0, w * h - by);
    else if (by < 0) this.pixels.copyWithin(0, -by);
    const parts = [];
    if (right > 0) parts.push([w - right, w, 0, h]);
    if (right < 0) parts.push([0, -right, 0, h]);
    // A line more than came in: the one beside it was cut by the moved end of the image.
    if (up > 0) parts.push([0, w, 0, Math.min(h, up + 1)]);
    if (up < 0) parts.push([0, w, Math.max(0, h + up - 1), h]);
    return parts;
  }

  labels(context, w, h, scale) {
    const colours = new Map();
    context.textBaseline = "middle";
    context.textAlign = "left";
    let left = 300;
    this.rectangles.large(w, h, this.grid, this.grid.edges, 60 * scale, 14 * scale, (i, x, y, wide, high) => {
      if (left-- <= 0) return;
      const tensor = this.rectangles.tensor[i];
      const fill = this.colours.fill[tensor];
      if (!colours.has(fill)) colours.set(fill, inkOn([fill & 255, (fill >> 8) & 255, (fill >> 16) & 255]));
      context.fillStyle = colours.get(fill);
      const room = wide / scale - 8;
      let name = this.picture.text("name", tensor);
      const length = context.measureText(name).width;
      if (length > room) {
        const fits = Math.floor((name.length * room) / length) - 1;
        if (fits < 3) return;
        name = `${name.slice(0, fits)}…`;
      }
      context.fillText(name, MARGIN.left + x / scale + 4, MARGIN.top + (y + high / 2) / scale);
    });
  }

  axes(context, frame, width, height) {
    const { view } = this;
    const ink = style("--quiet");
    context.fillStyle = ink;
    context.strokeStyle = style("--line");
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const at of ticks(view.a0, view.a1, frame.height / 45, 2)) {
      context.fillText(size(at), MARGIN.left - 8, frame.y(at));
      context.fillRect(MARGIN.left - 4, Math.round(frame.y(at)), 4, 1);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const at of ticks(view.t0, view.t1, frame.width / 110, 10)) {
      const label = view.axis === "seconds" && this.picture.hasSeconds ? duration(at) : at.toLocaleString("en");
      context.fillText(label, frame.x(at), height - MARGIN.bottom + 7);
      context.fillRect(Math.round(frame.x(at)), height - MARGIN.bottom, 1, 4);
    }
    context.textAlign = "left";
    context.strokeRect(MARGIN.left - 0.5, MARGIN.top - 0.5, frame.width + 1, frame.height + 1);
    this.lines(context, frame);
  }

  lines(context, frame) {
    const { view, space } = this;
    if (!space) return;
    const lines = [[space.bytes, `${space.name} ${size(space.bytes)}`, style("--ink"), []]];
    if (space.budget !== null) lines.push([space.budget, `budget ${size(space.budget)}`, style("--mark"), [8, 4]]);
    for (const [at, label, colour, dash] of lines) {
      if (at < view.a0 || at > view.a1) continue;
      context.strokeStyle = colour;
      context.fillStyle = colour;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(MARGIN.left, frame.y(at));
      context.lineTo(MARGIN.left + frame.width, frame.y(at));
      context.stroke();
      context.setLineDash([]);
    }
  }

  outline(context, frame, tensor, colour, width) {
    const { picture, view } = this;
    const { lives, tensors } = picture;
    if (tensors.space[tensor] !== view.spaceOf(picture)) return;
    const edges = view.edges(picture);
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, MARGIN.top, frame.width, frame.height);
    context.clip();
    context.strokeStyle = colour;
    context.lineWidth = width;
    const top = frame.y(tensors.offset[tensor] + tensors.bytes[tensor]);
    const high = Math.max(2, frame.y(tensors.offset[tensor]) - top);
    for (let i = 0; i < lives.tensor.length; i++) {
      if (lives.tensor[i] !== tensor) continue;
      const left = frame.x(edges[lives.lower[i]]);
      context.strokeRect(left, top, Math.max(2, frame.x(edges[lives.upper[i]]) - left), high);
    }
    context.restore();
  }

  drawAbove() {
    const { context, width, height } = fitted(this.above);
    const { view, picture } = this;
    const frame = this.frame();
    context.clearRect(0, 0, width, height);
    if (view.cursor !== null && view.cursor >= view.t0 && view.cursor <= view.t1) {
      context.fillStyle = style("--mark");
      context.fillRect(Math.round(frame.x(view.cursor)), MARGIN.top, 1, frame.height);
    }
    if (view.hovered && view.hovered.picture === picture) this.outline(context, frame, view.hovered.tensor, style("--ink"), 1.5);
    if (view.chosen && view.chosen.picture === picture) {
      this.outline(context, frame, view.chosen.tensor, style("--back"), 6); // The mark stands out from any colour below.
      this.outline(context, frame, view.chosen.tensor, style("--mark"), 3);
    }
  }

  // The tensor at a place of the element; null if there is none.
  pick(px, py) {
    const { view, picture } = this;
    const frame = this.frame();
    if (px < MARGIN.left || py < MARGIN.top || px > MARGIN.left + frame.width || py > MARGIN.top + frame.height) return null;
    const edges = view.edges(picture);
    const step = lastAtMost(edges, frame.time(px));
    const near = [Math.ceil(view.stepAt(picture, frame.time(px + 3)) - step), ((view.a1 - view.a0) / frame.height) * 3];
    let found = this.rectangles.at(step, frame.address(py));
    if (found < 0) found = this.rectangles.at(step, frame.address(py), near);
    return found < 0 ? null : { picture, tensor: this.rectangles.tensor[found] };
  }
}

// Wheel, drag and click on a chart.
function pointer(chart, view) {
  const { plot } = chart;
  let held = null;
  const place = (event) => {
    const box = plot.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  plot.addEventListener("wheel", (event) => {
    event.preventDefault();
    const [px, py] = place(event);
    const frame = chart.frame();
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) && !event.shiftKey;
    if (sideways) view.pan((event.deltaX / frame.width) * (view.t1 - view.t0), 0);
    else {
      const factor = Math.exp(Math.max(-100, Math.min(100, event.deltaY || event.deltaX)) / 250);
      if (event.shiftKey && frame.address) view.zoomAddresses(factor, frame.address(py));
      else view.zoom(factor, frame.time(px));
    }
  }, { passive: false });
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    held = { from: place(event), last: place(event), moved: false };
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    const [px, py] = place(event);
    const frame = chart.frame();
    if (held) {
      if (!held.moved && Math.hypot(px - held.from[0], py - held.from[1]) < 4) return;
      held.moved = true;
      plot.classList.add("held");
      const bytes = frame.address ? ((py - held.last[1]) / frame.height) * (view.a1 - view.a0) : 0;
      view.pan((-(px - held.last[0]) / frame.width) * (view.t1 - view.t0), bytes);
      held.last = [px, py];
      return;
    }
    const t = Math.min(view.t1, Math.max(view.t0, frame.time(px)));
    view.point(t, chart.pick ? chart.pick(px, py) : null);
  });
  const release = (event) => {
    if (held && !held.moved && event.type === "pointerup") {
      const [px, py] = place(event);
      const found = chart.pick ? chart.pick(px, py) : null;
      if (found) view.choose(found.picture, found.tensor);
      else view.choose(null);
      chart.clicked?.(chart.frame().time(px));
    }
    held = null;
    plot.classList.remove("held");
  };
  plot.addEventListener("pointerup", release);
  plot.addEventListener("pointercancel", release);
  plot.addEventListener("pointerleave", () => held || view.point(null, null));
  plot.addEventListener("dblclick", (event) => {
    const found = chart.pick?.(...place(event));
    if (found) view.show(found.picture, found.tensor);
    else view.fit();
  });
}
