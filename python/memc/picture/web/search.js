// Search by name, op, type, decision or source line. What is found stays in colour, the rest fades.
"use strict";

const LISTED = 60;

class Search {
  constructor(view, input, list, count) {
    Object.assign(this, { view, input, list, count });
    this.lower = null;
    input.addEventListener("input", () => this.run());
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.clear();
      if ((event.key === "Enter" || event.key === "ArrowDown") && !list.hidden) {
        event.preventDefault();
        event.key === "Enter" ? list.querySelector("button")?.click() : list.querySelector("button")?.focus();
      }
    });
    list.addEventListener("keydown", (event) => {
      const next = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
      if (event.key === "Escape") this.clear();
      if (!next) return;
      event.preventDefault();
      const item = document.activeElement.closest("li")?.[next];
      item ? item.firstChild.focus() : input.focus();
    });
  }

  clear() {
    this.input.value = "";
    this.input.focus();
    this.run();
  }

  // Of each tensor whether the words are in its texts, or in those of its op.
  matches(picture, words) {
    const all = words.map((word) => Uint8Array.from(this.lower, (text) => (text.includes(word) ? 1 : 0)));
    const { tensors, ops } = picture;
    const columns = [tensors.name, tensors.type, tensors.decision, tensors.place, tensors.others];
    const found = new Uint8Array(picture.count);
    for (let i = 0; i < picture.count; i++) {
      const step = picture.lower[i];
      found[i] = Number(
        all.every(
          (word) =>
            columns.some((column) => word[column[i]]) ||
            (step < ops.name.length && (word[ops.name[step]] || word[ops.place[step]])),
        ),
      );
    }
    return found;
  }

  run() {
    const { view } = this;
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.lower ??= view.pictures[0].texts.map((text) => text.toLowerCase());
    view.matches = view.pictures.map((picture) => (words.length ? this.matches(picture, words) : null));
    this.tell(words.length > 0);
    view.onMatches();
  }

  tell(asked) {
    const { view, list, count } = this;
    const items = [];
    let total = 0;
    view.pictures.forEach((picture, at) => {
      const matches = view.matches[at];
      if (!matches) return;
      for (let i = 0; i < picture.count; i++) {
        if (!matches[i]) continue;
        total++;
        if (items.length < LISTED) items.push([picture, i]);
      }
    });
    count.textContent = asked ? `${total.toLocaleString("en")} found` : "";
    list.hidden = !items.length;
    list.replaceChildren(
      ...items.map(([picture, tensor]) => {
        const place = picture.text("place", tensor) || picture.opName(picture.lower[tensor]);
        const label = `${picture.text("name", tensor)} · ${size(picture.tensors.bytes[tensor])}${place ? ` · ${place}` : ""}`;
        return element("li", {}, element("button", { type: "button", onclick: () => view.show(picture, tensor) }, label));
      }),
    );
  }
}
