// Colours of tensors: hues for what has names, which the data brings, and a ramp of rising lightness for amounts.
"use strict";

const RAMP = [[38, 40, 95], [30, 92, 140], [33, 142, 141], [92, 190, 104], [190, 216, 60], [250, 231, 85]];

// `hues`, and of roles by name their hues.
let PALETTE = null;

// Of a border: the least of the ink in it, and the least contrast with what lies behind the tensors (WCAG 2.2, 1.4.11).
const BORDER = 0.28;
const CONTRAST = 3;

function rgb(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function onRamp(share) {
  const place = Math.min(0.9999, Math.max(0, share)) * (RAMP.length - 1);
  const at = Math.floor(place);
  return RAMP[at].map((low, i) => Math.round(low + (RAMP[at + 1][i] - low) * (place - at)));
}

// A colour as a pixel of image data.
function pixel([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function mixed(colour, other, share) {
  return colour.map((part, i) => Math.round(part * (1 - share) + other[i] * share));
}

function css([red, green, blue]) {
  return `rgb(${red},${green},${blue})`;
}

// Relative luminance, and the contrast of two colours, 1 to 21 (WCAG 2.2).
function luminance(colour) {
  const [red, green, blue] = colour.map((part) => (part <= 10 ? part / 3294 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

// Black or white, whichever is more legible on a colour: at least 4.5 to 1 on any.
function inkOn(colour) {
  return contrast(colour, [0, 0, 0]) > contrast(colour, [255, 255, 255]) ? "#000000" : "#ffffff";
}

// The border of a colour: as much ink in it as it takes to stand out from what lies behind.
function edgeOf(colour) {
  const [ink, back] = [rgb(style("--ink")), rgb(style("--empty"))];
  let share = BORDER;
  while (share < 1 && contrast(mixed(colour, ink, share), back) < CONTRAST) share += 0.06;
  return mixed(colour, ink, Math.min(1, share));
}

const STYLES = new Map();

// A colour of the style sheet. They are kept, for frames ask often; `STYLES` is emptied where the scheme changes.
function style(name) {
  if (!STYLES.has(name)) STYLES.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return STYLES.get(name);
}

// Colours of tensors by what the reader chose, and what the legend says of them.
class Colours {
  constructor(pictures) {
    this.groups = { role: [], decision: [] };
    for (const picture of pictures) {
      for (const role of picture.roles) if (!this.groups.role.includes(role)) this.groups.role.push(role);
      for (const place of new Set(picture.tensors.decision)) {
        const decision = picture.texts[place] || "nothing decided";
        if (!this.groups.decision.includes(decision)) this.groups.decision.push(decision);
      }
    }
    this.most = { size: 1, lifetime: 1 };
    this.least = { size: Infinity, lifetime: Infinity };
    for (const picture of pictures) {
      for (let i = 0; i < picture.count; i++) {
        for (const by of ["size", "lifetime"]) {
          this.most[by] = Math.max(this.most[by], this.amount(picture, by, i));
          this.least[by] = Math.min(this.least[by], this.amount(picture, by, i));
        }
      }
    }
  }

  hue(group, name) {
    return rgb(group === "role" ? PALETTE.roles[name] : PALETTE.hues[this.groups[group].indexOf(name) % PALETTE.hues.length]);
  }

  of(picture, by, tensor) {
    if (by === "role") return this.hue(by, picture.roles[picture.tensors.role[tensor]]);
    if (by === "decision") return this.hue(by, picture.text("decision", tensor) || "nothing decided");
    const low = Math.log1p(this.least[by]);
    const high = Math.log1p(this.most[by]);
    return onRamp(high > low ? (Math.log1p(this.amount(picture, by, tensor)) - low) / (high - low) : 0);
  }

  amount(picture, by, tensor) {
    return by === "size" ? picture.tensors.bytes[tensor] : picture.length(tensor);
  }

  // A pixel and one of its border for every tensor; what does not match is faded towards the background.
  pixels(picture, by, matches) {
    const back = rgb(style("--empty"));
    const fill = new Uint32Array(picture.count);
    const border = new Uint32Array(picture.count);
    const known = new Map();
    for (let i = 0; i < picture.count; i++) {
      const colour = this.of(picture, by, i);
      const key = pixel(colour) * 2 + (matches && !matches[i] ? 1 : 0);
      let both = known.get(key);
      if (!both) {
        const edge = edgeOf(colour);
        const faded = (part) => (matches && !matches[i] ? mixed(part, back, 0.82) : part);
        both = [pixel(faded(colour)), pixel(faded(edge))];
        known.set(key, both);
      }
      fill[i] = both[0];
      border[i] = both[1];
    }
    return { fill, border };
  }
}
