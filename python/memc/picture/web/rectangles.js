// The rectangles of one space, sorted by their first steps, with an index that finds those of a window of time, and a painter that
// writes pixels. Rectangles of a plan do not overlap, so painting takes at most as many writes as there are pixels and rectangles.
"use strict";

const BLOCK = 128;

class Rectangles {
  constructor(picture, space) {
    const { lives, tensors } = picture;
    const chosen = [];
    for (let i = 0; i < lives.tensor.length; i++) if (tensors.space[lives.tensor[i]] === space) chosen.push(i);
    this.picture = picture;
    this.count = chosen.length;
    this.tensor = Uint32Array.from(chosen, (i) => lives.tensor[i]);
    this.lower = Float64Array.from(chosen, (i) => lives.lower[i]);
    this.upper = Float64Array.from(chosen, (i) => lives.upper[i]);
    this.bottom = Float64Array.from(this.tensor, (tensor) => tensors.offset[tensor]);
    this.top = Float64Array.from(this.tensor, (tensor) => tensors.offset[tensor] + tensors.bytes[tensor]);
    this.reach = new Float64Array(Math.ceil(this.count / BLOCK));
    for (let i = 0; i < this.count; i++) {
      const block = Math.floor(i / BLOCK);
      this.reach[block] = Math.max(this.reach[block], this.upper[i]);
    }
  }

  // Calls `see(i)` for each rectangle that is live within steps [from, to).
  each(from, to, see) {
    const end = lastAtMost(this.lower, to) + 1;
    for (let block = 0; block * BLOCK < end; block++) {
      if (this.reach[block] <= from) continue;
      const last = Math.min(end, (block + 1) * BLOCK);
      for (let i = block * BLOCK; i < last; i++) if (this.upper[i] > from) see(i);
    }
  }

  // The rectangle at a step and an address; -1 if there is none. `slack`: steps and bytes that count as near.
  at(step, address, slack = [0, 0]) {
    let found = -1;
    let nearest = Infinity;
    this.each(step - slack[0], step + slack[0], (i) => {
      if (this.lower[i] > step + slack[0] || this.upper[i] <= step - slack[0]) return;
      if (this.bottom[i] > address + slack[1] || this.top[i] <= address - slack[1]) return;
      const away =
        Math.max(0, this.lower[i] - step, step - this.upper[i]) / (slack[0] || 1) +
        Math.max(0, this.bottom[i] - address, address - this.top[i]) / (slack[1] || 1);
      if (away < nearest) {
        nearest = away;
        found = i;
      }
    });
    return found;
  }

  // Paints the rectangles into the part [x0, x1) x [y0, y1) of an image of width x height pixels. `grid`: pixels per unit of the axis and per
  // byte, and the pixels of the image's left and bottom edges, counted from 0 on the axis and from address 0: so a moved window has the
  // same pixels.
  paint(pixels, width, height, grid, edges, colours, [x0, x1, y0, y1]) {
    const { kx, ky, left, base } = grid;
    const { lower, upper, bottom, top, tensor, reach } = this;
    const { fill, border } = colours;
    const from = lastAtMost(edges, (left + x0) / kx);
    const end = lastAtMost(lower, lastAtMost(edges, (left + x1) / kx)) + 1;
    let painted = 0;
    for (let i = 0; i < end; i++) {
      if (!(i % BLOCK) && reach[i / BLOCK] <= from) {
        i += BLOCK - 1;
        continue;
      }
      if (upper[i] <= from) continue;
      const begin = Math.floor(edges[lower[i]] * kx) - left;
      const past = Math.max(begin + 1, Math.floor(edges[upper[i]] * kx) - left);
      if (past <= x0 || begin >= x1) continue;
      const floor = Math.floor(bottom[i] * ky) - base;
      const roof = Math.max(floor + 1, Math.floor(top[i] * ky) - base);
      const high = height - roof;
      const low = height - floor;
      if (low <= y0 || high >= y1) continue;
      painted++;
      const colour = fill[tensor[i]];
      const a = Math.max(x0, begin);
      const b = Math.min(x1, past);
      const c = Math.max(y0, high);
      const d = Math.min(y1, low);
      if (b - a < 8) {
        for (let y = c, row = c * width; y < d; y++, row += width) for (let x = a; x < b; x++) pixels[row + x] = colour;
      } else {
        for (let y = c, row = c * width; y < d; y++, row += width) pixels.fill(colour, row + a, row + b);
      }
      if (past - begin > 4 && roof - floor > 4) {
        const edge = border[tensor[i]];
        if (high >= c) pixels.fill(edge, c * width + a, c * width + b);
        if (past <= b) for (let y = c, at = c * width + b - 1; y < d; y++, at += width) pixels[at] = edge;
      }
    }
    return painted;
  }

  // Calls `see(i, x, y, w, h)` for the rectangles within the image that have room for a label, with the part of each that is seen.
  large(width, height, grid, edges, leastWidth, leastHeight, see) {
    const { kx, ky, left, base } = grid;
    const { lower, upper, bottom, top, reach } = this;
    const from = lastAtMost(edges, left / kx);
    const end = lastAtMost(lower, lastAtMost(edges, (left + width) / kx)) + 1;
    const bytes = leastHeight / ky;
    for (let i = 0; i < end; i++) {
      if (!(i % BLOCK) && reach[i / BLOCK] <= from) {
        i += BLOCK - 1;
        continue;
      }
      if (upper[i] <= from || top[i] - bottom[i] < bytes) continue;
      const x = Math.max(0, edges[lower[i]] * kx - left);
      const w = Math.min(width, edges[upper[i]] * kx - left) - x;
      if (w < leastWidth) continue;
      const y = Math.max(0, height - (top[i] * ky - base));
      const h = Math.min(height, height - (bottom[i] * ky - base)) - y;
      if (h >= leastHeight) see(i, x, y, w, h);
    }
  }
}
