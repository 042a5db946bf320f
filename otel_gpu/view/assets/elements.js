// How is the page built? Of elements that hold text only: nothing that was observed is ever read as markup.
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "swatch") element.style.setProperty("--swatch", value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function card(title, hint, ...body) {
  const heading = h("h2", {}, title);
  return h("section", { class: "card", "aria-label": title }, h("header", {}, heading, h("p", { class: "hint" }, hint || "")), ...body);
}

export function stat(name, value, unit, sub, isBad) {
  return h("div", { class: "stat" + (isBad ? " bad" : "") }, h("dt", {}, name), h("dd", {}, value, unit ? h("small", {}, unit) : null), h("div", { class: "sub", title: sub }, sub || "\u00a0"));
}

export function command(text) {
  const button = h("button", { type: "button", onclick: async () => {
    try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Select it"; }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } }, "Copy");
  return h("div", { class: "command" }, h("code", {}, text), button);
}

export function empty(title, ...body) {
  return h("section", { class: "card empty" }, h("h2", {}, title), ...body);
}

// A table whose rows are put in order by its reader; what it holds is replaced as often as new data come.
export class Table {
  constructor(caption, columns, options = {}) {
    this.columns = columns;
    this.rows = [];
    this.sorted = options.sorted || null;
    this.descending = options.descending !== false;
    this.none = options.none || "Nothing yet.";
    this.body = h("tbody");
    this.heads = columns.map((column) => {
      const head = h("th", { scope: "col", class: column.text ? null : "num", title: column.title });
      head.append(column.plain ? column.name : h("button", { type: "button", onclick: () => this.sort(column.key) }, column.name));
      return head;
    });
    this.note = h("p", { class: "more", hidden: true });
    this.element = h("div", { class: "scroll" + (options.long ? " long" : ""), tabindex: "0", role: "region", "aria-label": caption },
      h("table", {}, h("caption", { class: "sr" }, caption), h("thead", {}, h("tr", {}, this.heads)), this.body), this.note);
  }

  sort(key) {
    if (this.sorted === key) this.descending = !this.descending;
    else { this.sorted = key; this.descending = !this.columns.find((c) => c.key === key).text; }
    this.draw();
  }

  set(rows, more = 0) {
    this.rows = rows;
    this.note.hidden = !more;
    this.note.textContent = more ? more.toLocaleString("en") + " more are not shown." : "";
    this.draw();
  }

  draw() {
    this.columns.forEach((column, i) => {
      if (column.plain) return;
      this.heads[i].setAttribute("aria-sort", column.key !== this.sorted ? "none" : this.descending ? "descending" : "ascending");
    });
    const rows = [...this.rows];
    const by = this.columns.find((c) => c.key === this.sorted);
    if (by) {
      const value = by.value || ((row) => row[by.key]);
      const sign = this.descending ? -1 : 1;
      rows.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === y) return 0;
        if (x === null || x === undefined) return 1;
        if (y === null || y === undefined) return -1;
        return sign * (x < y ? -1 : 1);
      });
    }
    if (!rows.length) {
      this.body.replaceChildren(h("tr", {}, h("td", { colspan: this.columns.length, class: "dim" }, this.none)));
      return;
    }
    this.body.replaceChildren(...rows.map((row) => h("tr", {}, this.columns.map((column) => {
      const shown = column.show(row);
      if (!column.text) return h("td", { class: "num" }, shown);
      const text = typeof shown === "string" ? shown : null;
      return h("td", {}, h("span", { class: "cell" + (column.mono ? " mono" : ""), title: text }, shown));
    }))));
  }
}

// The distribution of sizes as a row of small bars, with the mean beside it.
export function shape(sizes, what) {
  if (!sizes) return "";
  const most = Math.max(...sizes.buckets.map((bucket) => bucket[1]), 1);
  const last = sizes.buckets.slice(-9);
  const bars = last.map(([, n]) => {
    const bar = h("i");
    bar.style.height = Math.max(8, (100 * n) / most) + "%";
    return bar;
  });
  const words = sizes.buckets.map(([bound, n]) => "up to " + (bound === null ? "any" : bound.toLocaleString("en")) + ": " + n.toLocaleString("en")).join(", ");
  const mean = sizes.mean >= 100 ? Math.round(sizes.mean) : Math.round(sizes.mean * 10) / 10;
  return h("span", { class: "shape", title: what + " – " + words }, h("span", { class: "bars", role: "img", "aria-label": what + ": " + words }, bars), mean.toLocaleString("en"));
}
