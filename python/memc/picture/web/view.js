// What is shown: a window of time and addresses that all charts share, the cursor, and the chosen tensor.
"use strict";

const LEAST_ZOOM = 1e-9;

class View {
  constructor(pictures) {
    this.pictures = pictures;
    this.axis = "steps";
    this.space = 0;
    this.by = pictures.every((picture) => picture.roles.length < 2) ? "lifetime" : "role";
    this.hidden = new Set();
    this.matches = pictures.map(() => null);
    this.chosen = null; // { picture, tensor }
    this.hovered = null;
    this.cursor = null; // On the axis.
    this.listeners = [];
    this.dirty = new Set();
    this.fit();
  }

  edges(picture) {
    return picture.edges(this.axis);
  }

  // Where the axis begins and ends.
  begin() {
    return Math.min(...this.pictures.map((picture) => this.edges(picture)[0]));
  }

  end() {
    return Math.max(...this.pictures.map((picture) => this.edges(picture)[picture.steps]), this.begin() + 1e-12);
  }

  span() {
    return this.end() - this.begin();
  }

  // The space of a picture that has the name of the chosen one; -1 if there is none.
  spaceOf(picture) {
    const name = this.pictures[0].spaces[this.space]?.name;
    const found = picture.spaces.findIndex((space) => space.name === name);
    return found < 0 && picture.spaces.length === 1 ? 0 : found;
  }

  top() {
    let most = 1;
    for (const picture of this.pictures) {
      const space = picture.spaces[this.spaceOf(picture)];
      if (space) most = Math.max(most, space.bytes);
    }
    return most * 1.02;
  }

  fit() {
    Object.assign(this, { t0: this.begin(), t1: this.end(), a0: 0, a1: this.top() });
    this.changed("window");
  }

  listen(what, act) {
    this.listeners.push([what, act]);
  }

  // Tells listeners with the next frame. `what`: "window", "colours", "cursor" or "chosen".
  changed(what) {
    if (!this.dirty.size) requestAnimationFrame(() => this.tell());
    this.dirty.add(what);
  }

  tell() {
    const dirty = this.dirty;
    this.dirty = new Set();
    for (const [what, act] of this.listeners) if (what.some((each) => dirty.has(each))) act();
  }

  zoom(factor, at = (this.t0 + this.t1) / 2) {
    const whole = this.span();
    const length = Math.min(whole, Math.max((this.t1 - this.t0) * factor, whole * LEAST_ZOOM));
    const share = (at - this.t0) / (this.t1 - this.t0);
    this.t0 = at - share * length;
    this.t1 = this.t0 + length;
    this.clamp();
  }

  zoomAddresses(factor, at = (this.a0 + this.a1) / 2) {
    const end = this.top();
    const length = Math.min(end, Math.max((this.a1 - this.a0) * factor, 16));
    const share = (at - this.a0) / (this.a1 - this.a0);
    this.a0 = at - share * length;
    this.a1 = this.a0 + length;
    this.clamp();
  }

  pan(time, addresses) {
    this.t0 += time;
    this.t1 += time;
    this.a0 += addresses;
    this.a1 += addresses;
    this.clamp();
  }

  clamp() {
    const clamp = (low, high, begin, end) => {
      const length = Math.min(high - low, end - begin);
      const start = Math.min(Math.max(begin, low), end - length);
      return [start, start + length];
    };
    [this.t0, this.t1] = clamp(this.t0, this.t1, this.begin(), this.end());
    [this.a0, this.a1] = clamp(this.a0, this.a1, 0, this.top());
    this.changed("window");
  }

  setAxis(axis) {
    const picture = this.pictures[0];
    const before = this.edges(picture);
    const steps = [this.t0, this.t1].map((t) => {
      const at = Math.max(0, Math.min(picture.steps - 1, lastAtMost(before, t)));
      const length = before[at + 1] - before[at];
      return at + (length ? (t - before[at]) / length : 0);
    });
    this.axis = axis;
    const after = this.edges(picture);
    [this.t0, this.t1] = steps.map((step) => {
      const at = Math.min(picture.steps - 1, Math.floor(step));
      return after[at] + (step - at) * (after[at + 1] - after[at]);
    });
    if (!(this.t1 > this.t0)) this.t1 = this.t0 + this.span() / 100;
    this.cursor = null;
    this.clamp();
    this.changed("colours");
  }

  stepAt(picture, t) {
    return Math.max(0, Math.min(picture.steps - 1, lastAtMost(this.edges(picture), t)));
  }

  point(t, hovered) {
    this.cursor = t;
    this.hovered = hovered;
    this.changed("cursor");
  }

  choose(picture, tensor) {
    this.chosen = picture === null ? null : { picture, tensor };
    this.changed("chosen");
  }

  // Shows a tensor with some room around it.
  show(picture, tensor) {
    this.choose(picture, tensor);
    const edges = this.edges(picture);
    const [from, to] = [edges[picture.lower[tensor]], edges[picture.upper[tensor]]];
    const room = Math.max(to - from, this.span() / 2000);
    const bytes = picture.tensors.bytes[tensor];
    const high = Math.max(bytes, this.top() / 200);
    this.t0 = from - room * 0.5;
    this.t1 = to + room * 0.5;
    this.a0 = picture.tensors.offset[tensor] - high * 2;
    this.a1 = picture.tensors.offset[tensor] + bytes + high * 2;
    this.clamp();
  }
}
