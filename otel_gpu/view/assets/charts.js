// How did something go over time? uPlot draws it; colours, legend and tooltip are the page's own.
import { h } from "./elements.js";
import * as format from "./format.js";

const COLORS = 7;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function mixed(color, base, share) {
  const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const [a, b] = [rgb(color), rgb(base)];
  return "rgb(" + a.map((v, i) => Math.round(v * share + b[i] * (1 - share))).join(",") + ")";
}

export class Chart {
  constructor(label, write, options = {}) {
    this.label = label;
    this.write = write;
    this.stacked = options.stacked || false;
    this.band = options.band || false;
    this.top = options.top || null;
    this.name = options.name || ((text) => text);
    this.colors = new Map();
    this.names = [];
    this.host = h("div", { class: "chart" + (options.tall ? " tall" : ""), role: "img", "aria-label": label });
    this.tip = h("div", { class: "tip", hidden: true });
    this.legend = h("ul", { class: "legend" });
    this.element = h("div", {}, this.host, this.legend);
    this.observer = new ResizeObserver(() => this.plot && this.plot.setSize(this.size()));
    this.observer.observe(this.host);
  }

  size() { return { width: Math.max(120, this.host.clientWidth), height: this.host.clientHeight || 190 }; }

  // Names keep their colours as long as they are drawn.
  color(name) {
    if (/^\d+ others$/.test(name)) return "--c7";
    if (!this.colors.has(name)) {
      const used = new Set(this.colors.values());
      let free = 0;
      while (used.has(free) && free < COLORS - 1) free += 1;
      this.colors.set(name, free);
    }
    return "--c" + this.colors.get(name);
  }

  set(times, lines) {
    const names = lines.map((line) => line.name);
    for (const known of [...this.colors.keys()]) if (!names.includes(known)) this.colors.delete(known);
    this.lines = lines;
    names.forEach((name) => this.color(name));
    const values = lines.map((line) => line.values);
    const sums = values.map((line) => [...line]);
    if (this.stacked) for (let i = 1; i < sums.length; i += 1) sums[i] = sums[i].map((v, at) => (v === null && sums[i - 1][at] === null ? null : (v || 0) + (sums[i - 1][at] || 0)));
    // What is stacked highest is drawn first, and the others over it.
    this.order = this.stacked ? lines.map((_, i) => lines.length - 1 - i) : lines.map((_, i) => i);
    this.data = [times, ...this.order.map((i) => sums[i])];
    const drawn = this.order.map((i) => names[i]).join("\u0000");
    if (this.plot && drawn === this.drawn) this.plot.setData(this.data);
    else this.draw(names);
    this.drawn = drawn;
    this.describe();
  }

  draw(names) {
    if (this.plot) this.plot.destroy();
    const panel = css("--panel");
    const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11.5px system-ui, sans-serif" };
    const series = this.order.map((i) => {
      const color = css(this.color(names[i]));
      const fill = this.stacked ? mixed(color, panel, 0.55) : this.band ? null : mixed(color, panel, 0.12);
      return { label: names[i], stroke: color, width: this.stacked ? 1 : 1.75, fill: this.stacked ? fill : null, points: { show: false }, spanGaps: false };
    });
    const options = {
      ...this.size(),
      padding: [10, 6, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { show: !this.stacked, size: 6 }, drag: { x: false, y: false } },
      scales: { x: { time: true }, y: { range: (_, low, high) => [0, this.top || (high > 0 ? high * 1.12 : 1)] } },
      axes: [
        { ...axis, space: 74, size: 30, grid: { show: false }, values: (_, splits) => splits.map((s) => format.clock(s)) },
        { ...axis, size: 62, space: 36, values: (_, splits) => splits.map((s) => this.write(s)) },
      ],
      series: [{}, ...series],
      bands: this.band && names.length === 2 ? [{ series: [2, 1], fill: mixed(css("--c0"), panel, 0.28) }] : [],
      hooks: { setCursor: [(plot) => this.point(plot)] },
    };
    this.host.replaceChildren();
    this.plot = new uPlot(options, this.data, this.host);
    this.plot.over.append(this.tip);
  }

  redraw() { if (this.lines) { this.draw(this.lines.map((line) => line.name)); this.describe(); } }

  point(plot) {
    const at = plot.cursor.idx;
    this.tip.hidden = at === null || at === undefined || plot.cursor.left < 0;
    if (this.tip.hidden) return;
    const rows = this.lines.map((line) => [line, line.values[at]]).filter(([, value]) => value);
    if (this.stacked) rows.reverse();
    this.tip.replaceChildren(h("b", {}, format.clock(this.data[0][at])), h("table", {}, rows.length ? rows.map(([line, value]) => h("tr", {},
      h("td", {}, h("span", { class: "swatch", swatch: css(this.color(line.name)) })), h("td", { class: "name" }, this.name(line.name)), h("td", { class: "value" }, this.write(value)))) : h("tr", {}, h("td", {}, "nothing"))));
    const over = plot.cursor.left > plot.over.clientWidth / 2;
    this.tip.style.left = over ? "auto" : plot.cursor.left + 14 + "px";
    this.tip.style.right = over ? plot.over.clientWidth - plot.cursor.left + 14 + "px" : "auto";
    this.tip.style.top = "6px";
  }

  describe() {
    const last = (line) => [...line.values].reverse().find((v) => v !== null && v !== undefined);
    this.legend.replaceChildren(...this.lines.map((line) => h("li", {}, h("span", { class: "swatch", swatch: "var(" + this.color(line.name) + ")" }),
      h("span", { class: "name", title: this.name(line.name) }, this.name(line.name)), h("span", { class: "value" }, this.write(last(line))))));
    this.host.setAttribute("aria-label", this.label + ". " + (this.lines.length ? this.lines.map((line) => this.name(line.name) + " " + this.write(last(line))).join(", ") : "nothing yet"));
  }

  destroy() { this.observer.disconnect(); if (this.plot) this.plot.destroy(); }
}
