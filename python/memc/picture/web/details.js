// What is known of the tensor at the cursor, or of the chosen one; and the legend.
"use strict";

function element(tag, attributes = {}, ...children) {
  const found = document.createElement(tag);
  for (const name in attributes) {
    if (name.startsWith("on")) found.addEventListener(name.slice(2), attributes[name]);
    else if (attributes[name] !== null && attributes[name] !== undefined) found.setAttribute(name, attributes[name]);
  }
  found.append(...children.filter((child) => child !== null));
  return found;
}

function listed(title, rows) {
  const list = element("dl");
  for (const [label, value] of rows) if (value) list.append(element("dt", {}, label), element("dd", {}, value));
  return [element("h3", {}, title), list];
}

class Details {
  constructor(view, place, legend) {
    this.view = view;
    this.place = place;
    this.legend = legend;
    view.listen(["cursor", "chosen"], () => this.update());
  }

  update() {
    const shown = this.view.hovered ?? this.view.chosen;
    if (this.view.told) this.place.replaceChildren(...listed(...this.view.told));
    else if (shown) this.place.replaceChildren(...listed(...this.tensor(shown)));
    else this.place.replaceChildren(element("p", { class: "quiet" }, this.step() ?? "Point at a tensor, or search for one."));
    this.view.told = null;
  }

  step() {
    const { view } = this;
    if (view.cursor === null) return null;
    const picture = view.pictures[0];
    return `Nothing here at ${picture.step(view.stepAt(picture, view.cursor))}.`;
  }

  tensor({ picture, tensor }) {
    const { tensors } = picture;
    const [offset, bytes] = [tensors.offset[tensor], tensors.bytes[tensor]];
    const step = this.view.cursor === null ? picture.lower[tensor] : this.view.stepAt(picture, this.view.cursor);
    const live = picture.lower[tensor] <= step && step < picture.upper[tensor];
    const uses = picture.uses(tensor);
    const rows = [
      ["size", `${size(bytes)}${bytes >= 1024 ? ` (${bytes.toLocaleString("en")} B)` : ""}`],
      ["type", picture.text("type", tensor)],
      ["role", picture.roles[tensors.role[tensor]]],
      ["in", `${picture.spaces[tensors.space[tensor]].name}, from ${offset.toLocaleString("en")}`],
      ["made by", picture.opName(picture.lower[tensor])],
      ["live", `${picture.number(picture.lower[tensor])} to ${(picture.moments[picture.upper[tensor]] - 1).toLocaleString("en")}`],
      ["used", uses.length ? `by ${uses.length.toLocaleString("en")} ${picture.unit}s` : ""],
      ["because", picture.why(tensor, live ? step : picture.lower[tensor])],
      ["decision", picture.text("decision", tensor)],
      ["why", picture.text("reason", tensor)],
      ["from", picture.text("place", tensor)],
      ["also", shortened(picture.text("others", tensor))],
    ];
    const title = picture.text("name", tensor);
    return [this.view.pictures.length > 1 ? `${title} in ${picture.title}` : title, rows];
  }

  drawLegend() {
    const { view, legend } = this;
    const colours = new Colours(view.pictures);
    if (view.by === "role" || view.by === "decision") {
      legend.replaceChildren(
        ...colours.groups[view.by].map((name) => {
          const swatch = element("span", { class: "swatch", "aria-hidden": "true", style: `background:${css(colours.hue(view.by, name))};border-color:${css(edgeOf(colours.hue(view.by, name)))}` });
          if (view.by === "decision") return element("li", {}, swatch, name);
          const press = () => {
            if (!view.hidden.delete(name)) view.hidden.add(name);
            view.onRoles();
          };
          return element("li", {}, element("button", { type: "button", "aria-pressed": String(!view.hidden.has(name)), title: "Show or fade", onclick: press }, swatch, name));
        }),
      );
      return;
    }
    const [least, most] = [colours.least[view.by], colours.most[view.by]].map((amount) => (view.by === "size" ? size(amount) : `${amount.toLocaleString("en")} steps`));
    const ramp = element("div", { class: "ramp", style: `background:linear-gradient(90deg,${RAMP.map(css).join(",")})` });
    legend.replaceChildren(element("li", {}, ramp, element("div", { class: "ends" }, element("span", {}, least), element("span", {}, most))));
  }
}

function shortened(text) {
  return text.length > 160 ? `${text.slice(0, 157)}…` : text;
}
