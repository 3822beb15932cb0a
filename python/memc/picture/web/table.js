// Sortable tables: the tensors that are live at a step, and what differs between two plans.
"use strict";

const ROWS = 200;

class Table {
  // `label`: what its rows are, for who hears the page. `columns`: title, value of a row, text of a row (or null for the value), and whether it is a number.
  constructor(place, label, columns, choose) {
    this.columns = columns;
    this.choose = choose;
    this.rows = [];
    this.limit = ROWS;
    this.sorted = { column: columns.findIndex((column) => column.number), down: true };
    this.head = element("tr");
    columns.forEach((column, at) => {
      const button = element("button", { type: "button", onclick: () => this.sort(at) }, column.title);
      this.head.append(element("th", { scope: "col", class: column.number ? "number" : null }, button));
    });
    this.body = element("tbody");
    this.more = element("button", { type: "button", class: "more", onclick: () => this.extend() });
    const table = element("table", {}, element("thead", {}, this.head), this.body);
    place.append(element("div", { class: "table", tabindex: "0", role: "region", "aria-label": label }, table, this.more));
  }

  show(rows) {
    this.rows = rows;
    this.limit = ROWS;
    this.order();
  }

  sort(column) {
    this.sorted = { column, down: this.sorted.column === column ? !this.sorted.down : Boolean(this.columns[column].number) };
    this.order();
  }

  order() {
    const { column, down } = this.sorted;
    const { value } = this.columns[column];
    const keyed = this.rows.map((row) => [value(row), row]);
    const sign = down ? -1 : 1;
    keyed.sort(([a], [b]) => sign * (typeof a === "number" ? a - b : a < b ? -1 : a > b ? 1 : 0));
    this.rows = keyed.map(([, row]) => row);
    [...this.head.children].forEach((cell, at) => cell.setAttribute("aria-sort", at === column ? (down ? "descending" : "ascending") : "none"));
    this.body.replaceChildren();
    this.fill(0, Math.min(this.limit, this.rows.length));
  }

  // Enter chooses a row. Of the rows one is in the order of Tab: arrows, Home and End go from row to row.
  press(event, act) {
    const row = event.currentTarget;
    const near = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling, Home: this.body.firstChild, End: this.body.lastChild };
    if (event.key === "Enter") act();
    if (!(event.key in near)) return;
    event.preventDefault();
    const next = near[event.key] ?? row;
    row.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  extend() {
    const from = this.limit;
    this.limit += 5 * ROWS;
    this.fill(from, Math.min(this.limit, this.rows.length));
  }

  fill(from, to) {
    for (let i = from; i < to; i++) {
      const row = this.rows[i];
      const cells = this.columns.map((column) => element("td", { class: column.number ? "number" : column.short ? "short" : null }, String((column.text ?? column.value)(row))));
      const act = () => this.choose(row);
      this.body.append(element("tr", { tabindex: i ? "-1" : "0", onclick: act, onkeydown: (event) => this.press(event, act) }, ...cells));
    }
    const left = this.rows.length - to;
    this.more.hidden = left <= 0;
    this.more.textContent = `Show more (${left.toLocaleString("en")} left)`;
  }
}

class LiveTable {
  constructor(view, place) {
    this.view = view;
    this.picture = view.pictures[0];
    this.note = element("span", { class: "quiet" });
    place.append(element("h2", { id: "peak-title" }, element("span", {}), this.note));
    this.title = place.querySelector("h2 > span");
    const { picture } = this;
    const { tensors } = picture;
    const text = (name) => (tensor) => picture.text(name, tensor);
    this.table = new Table(
      place,
      "Live tensors",
      [
        { title: "Tensor", value: text("name") },
        { title: "Size", value: (tensor) => tensors.bytes[tensor], text: (tensor) => size(tensors.bytes[tensor]), number: true },
        { title: "Share", value: (tensor) => tensors.bytes[tensor], text: (tensor) => `${((100 * picture.aligned(tensor)) / this.sum).toFixed(1)} %`, number: true },
        { title: "Address", value: (tensor) => tensors.offset[tensor], text: (tensor) => tensors.offset[tensor].toLocaleString("en"), number: true },
        { title: "Role", short: true, value: (tensor) => picture.roles[tensors.role[tensor]] },
        { title: "Why it is live", value: (tensor) => picture.why(tensor, this.step) },
        { title: "Decision", value: (tensor) => [picture.text("decision", tensor), picture.text("reason", tensor)].filter(Boolean).join(": ") },
        { title: "From", value: text("place") },
      ].filter(({ title }) => {
        const column = { From: tensors.place, Decision: tensors.decision }[title];
        return !column || column.some((each) => each);
      }),
      (tensor) => view.show(picture, tensor),
    );
  }

  at(step, isPeak) {
    const { picture } = this;
    const space = this.view.spaceOf(picture);
    this.step = step;
    const found = picture.liveAt(step, space);
    this.sum = found.reduce((sum, tensor) => sum + picture.aligned(tensor), 0) || 1;
    this.title.textContent = isPeak ? "Live at the peak" : `Live at ${picture.unit} ${picture.number(step)}`;
    const name = picture.opName(step) ? `${picture.opName(step)}, ` : "";
    this.note.textContent = `${name}${isPeak ? `${picture.unit} ${picture.number(step)}: ` : ""}${found.length.toLocaleString("en")} tensors, ${size(this.sum)}. Click in the curve for another moment.`;
    this.table.show(found);
  }
}

class ChangeTable {
  constructor(view, place, changes, texts) {
    const [before, after] = view.pictures;
    const { name, what, before: olds, after: news } = unpackAll(changes);
    place.hidden = false;
    place.setAttribute("aria-labelledby", "changes-title");
    place.append(element("h2", { id: "changes-title" }, "What changed", element("span", { class: "quiet" }, `${name.length.toLocaleString("en")} tensors differ`)));
    const bytes = (row) => [olds[row] ? before.tensors.bytes[olds[row] - 1] : 0, news[row] ? after.tensors.bytes[news[row] - 1] : 0];
    const table = new Table(
      place,
      "Tensors that differ",
      [
        { title: "Tensor", value: (row) => texts[name[row]] },
        { title: "Before", value: (row) => bytes(row)[0], text: (row) => (olds[row] ? size(bytes(row)[0]) : "–"), number: true },
        { title: "After", value: (row) => bytes(row)[1], text: (row) => (news[row] ? size(bytes(row)[1]) : "–"), number: true },
        { title: "What", value: (row) => texts[what[row]] },
      ],
      (row) => (news[row] ? view.show(after, news[row] - 1) : view.show(before, olds[row] - 1)),
    );
    table.show(Array.from(name, (_, i) => i));
  }
}
