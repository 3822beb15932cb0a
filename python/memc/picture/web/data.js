// The data of the page: columns of numbers, and texts by their places in one table.
"use strict";

const TYPES = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f64: Float64Array };

function unpack(column) {
  const text = atob(column.d);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new TYPES[column.t](bytes.buffer);
}

function unpackAll(columns) {
  const found = {};
  for (const name in columns) found[name] = unpack(columns[name]);
  return found;
}

class Picture {
  constructor(data, texts) {
    Object.assign(this, data);
    this.texts = texts;
    this.tensors = unpackAll(data.tensors);
    this.lives = unpackAll(data.lives);
    this.ops = unpackAll(data.ops);
    this.copies = unpackAll(data.copies);
    this.seconds = unpack(data.seconds);
    this.count = this.tensors.name.length;
    // The numbers that steps have in the source, and that of the end.
    this.moments = unpack(data.moments);
    if (!this.moments.length) this.moments = Float64Array.from({ length: this.steps + 1 }, (_, i) => i);
    this.lower = new Float64Array(this.count).fill(Infinity);
    this.upper = new Float64Array(this.count);
    for (let i = 0; i < this.lives.tensor.length; i++) {
      const tensor = this.lives.tensor[i];
      this.lower[tensor] = Math.min(this.lower[tensor], this.lives.lower[i]);
      this.upper[tensor] = Math.max(this.upper[tensor], this.lives.upper[i]);
    }
  }

  get hasSeconds() {
    return this.seconds.length === this.steps + 1 && this.seconds[this.steps] > 0;
  }

  // Where steps begin on the axis; the last is the end.
  edges(axis) {
    return axis === "seconds" && this.hasSeconds ? this.seconds : this.moments;
  }

  text(column, tensor) {
    return this.texts[this.tensors[column][tensor]];
  }

  opName(step) {
    return step < this.ops.name.length ? this.texts[this.ops.name[step]] : "";
  }

  opPlace(step) {
    return step < this.ops.place.length ? this.texts[this.ops.place[step]] : "";
  }

  opResult(step) {
    return step < this.ops.result.length ? this.texts[this.ops.result[step]] : "";
  }

  // The number of a step, in words.
  number(step) {
    return this.moments[step].toLocaleString("en");
  }

  // For how many steps of the source a tensor is live, gaps included.
  length(tensor) {
    return this.moments[this.upper[tensor]] - this.moments[this.lower[tensor]];
  }

  // A step in words.
  step(step) {
    const name = this.opName(step);
    return name ? `${name} (${this.unit} ${this.number(step)})` : `${this.unit} ${this.number(step)}`;
  }

  uses(tensor) {
    const from = tensor ? this.tensors.usesEnd[tensor - 1] : 0;
    return this.tensors.uses.subarray(from, this.tensors.usesEnd[tensor]);
  }

  aligned(tensor) {
    const step = this.spaces[this.tensors.space[tensor]].alignment;
    return Math.ceil(this.tensors.bytes[tensor] / step) * step;
  }

  // Bytes that are live at each step, role by role; `shown` says of which roles.
  liveByRole(space, shown) {
    const found = this.roles.map(() => new Float64Array(this.steps + 1));
    for (let i = 0; i < this.lives.tensor.length; i++) {
      const tensor = this.lives.tensor[i];
      if (this.tensors.space[tensor] !== space || !shown(this.tensors.role[tensor])) continue;
      const change = found[this.tensors.role[tensor]];
      const size = this.aligned(tensor);
      change[this.lives.lower[i]] += size;
      change[this.lives.upper[i]] -= size;
    }
    for (const change of found) for (let i = 1; i <= this.steps; i++) change[i] += change[i - 1];
    return found;
  }

  liveAt(step, space) {
    const found = [];
    for (let i = 0; i < this.lives.tensor.length; i++) {
      const tensor = this.lives.tensor[i];
      if (this.lives.lower[i] <= step && step < this.lives.upper[i] && this.tensors.space[tensor] === space) {
        found.push(tensor);
      }
    }
    return found;
  }

  // Why a tensor is live at a step.
  why(tensor, step) {
    const uses = this.uses(tensor);
    const lower = this.lower[tensor];
    const last = this.upper[tensor] - 1;
    if (!uses.length) return `from ${this.step(lower)} to ${this.opName(last) ? this.step(last) : `${this.unit} ${(this.moments[last + 1] - 1).toLocaleString("en")}`}`;
    const next = uses.find((use) => use > step);
    const made = lower === step ? "written now" : `written at ${this.step(lower)}`;
    if (next === undefined) return uses[uses.length - 1] === step ? `${made}, last used now` : `${made}, kept to the end`;
    const after = next === last ? "" : `, last at ${this.step(last)}`;
    return `${made}, next used at ${this.step(next)}${after}`;
  }
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let amount = bytes;
  let unit = 0;
  while (Math.abs(amount) >= 1024 && unit < units.length - 1) {
    amount /= 1024;
    unit++;
  }
  return unit ? `${amount.toFixed(amount < 10 ? 2 : amount < 100 ? 1 : 0)} ${units[unit]}` : `${amount} B`;
}

function duration(seconds) {
  if (seconds >= 1) return `${seconds.toPrecision(3)} s`;
  if (seconds >= 1e-3) return `${(seconds * 1e3).toPrecision(3)} ms`;
  return `${(seconds * 1e6).toPrecision(3)} µs`;
}

// The last place in an ascending array whose number is at most `value`; -1 if there is none.
function lastAtMost(array, value) {
  let low = 0;
  let high = array.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
