// Which requests were there, and what did the GPU do for one?
import { Table, card, command, empty, h } from "./elements.js";
import * as format from "./format.js";

const SWATCHES = [[/batch/, "var(--c5)"], [/wait/, "var(--c2)"], [/copy/, "var(--c6)"], [/step/, "var(--c3)"], [/request/, "var(--c0)"]];
const swatch = (span) => (span.is_error ? "var(--c4)" : (SWATCHES.find(([name]) => span.kind === 1 && name.test(span.name)) || [null, "var(--c0)"])[1]);
const TOTALS = [["launch", "launches"], ["graph", "graphs"], ["copy.bytes.h2d", "host → GPU"], ["copy.bytes.d2h", "GPU → host"], ["synchronize", "GPU wait"]];

export class RequestsPage {
  constructor(view) {
    this.view = view;
    this.offset = 0;
    this.order = "start";
    this.search = h("input", { type: "search", placeholder: "Search by name   /", "aria-label": "Search requests by name", spellcheck: "false", oninput: () => { clearTimeout(this.waiting); this.waiting = setTimeout(() => { this.offset = 0; this.refresh(true); }, 200); } });
    this.orders = h("div", { class: "segments", role: "group", "aria-label": "Order" }, [["start", "newest"], ["duration", "slowest"]].map(([value, text]) =>
      h("button", { type: "button", value, "aria-pressed": String(value === this.order), onclick: () => { this.order = value; this.offset = 0; [...this.orders.children].forEach((b) => b.setAttribute("aria-pressed", String(b.value === value))); this.refresh(true); } }, text)));
    this.said = h("span", { class: "hint", role: "status" });
    this.back = h("button", { type: "button", onclick: () => { this.offset = Math.max(0, this.offset - 100); this.refresh(true); } }, "← newer");
    this.next = h("button", { type: "button", onclick: () => { this.offset += 100; this.refresh(true); } }, "older →");
    const total = (row, part) => row.totals[row.names.findIndex((name) => name.includes(part))];
    this.longest = 1;
    this.table = new Table("Requests", [
      { key: "start", name: "began", text: true, show: (r) => format.clock(r.start) },
      { key: "name", name: "request", text: true, show: (r) => h("a", { href: "#requests/" + r.trace, title: r.name }, r.name) },
      { key: "process", name: "process", text: true, show: (r) => r.process },
      { key: "status", name: "status", show: (r) => (r.status === null || r.status === undefined ? "" : h("span", { class: r.is_error ? "tag bad" : "tag" }, String(r.status))) },
      { key: "duration", name: "took", show: (r) => { const bar = h("i"); bar.style.width = Math.max(2, (100 * r.duration) / this.longest) + "%"; return h("span", {}, format.seconds(r.duration), h("span", { class: "meter", "aria-hidden": "true" }, bar)); } },
      ...TOTALS.map(([part, name]) => ({ key: part, name, value: (r) => total(r, part) || 0, show: (r) => { const v = total(r, part); return v === undefined || v === null ? "" : part === "synchronize" ? format.seconds(v) : part.startsWith("copy") ? format.bytes(v) : format.count(v); } })),
      { key: "attribution", name: "work is", text: true, show: (r) => (r.attribution ? h("span", { class: "tag", title: r.attribution === "share" ? "A share of a batch is part of it" : "All of it is known to be the request's" }, r.attribution) : "") },
    ], { none: "No request of this name.", long: true });
    this.list = h("div", {}, h("div", { class: "controls" }, this.search, this.orders, this.said, h("span", { class: "grow" }), this.back, this.next), card("Requests", "with what the GPU did for each", this.table.element));
    this.none = empty("No request has come yet", h("p", {}, "Requests to GPU programs are followed where that is asked for:"), command("sudo otel-gpu run --traces"),
      h("p", {}, "Any other OpenTelemetry SDK may send its spans here as well."));
    this.one = h("div", { hidden: true });
    this.element = h("div", {}, h("h1", { class: "sr" }, "Requests"), this.none, this.list, this.one);
  }

  async open(trace) {
    this.trace = trace || null;
    this.one.hidden = !this.trace;
    this.shown = null;
    await this.refresh(true);
    if (this.trace) document.getElementById("main").focus({ preventScroll: true });
  }

  async refresh(asked = false) {
    if (this.trace) { this.list.hidden = this.none.hidden = true; if (this.shown !== this.trace) await this.waterfall(); return; }
    // Rows stay where they are while somebody reads further down, or steps through them by keys.
    if (!asked && (this.offset > 0 || this.table.body.contains(document.activeElement))) return;
    const data = await this.view.ask("api/requests", { text: this.search.value, order: this.order, offset: this.offset });
    const nothing = !data.count && !this.search.value;
    this.none.hidden = !nothing;
    this.list.hidden = nothing;
    this.longest = Math.max(...data.rows.map((r) => r.duration), 1e-9);
    this.table.set(data.rows.map((row) => ({ ...row, names: data.totals })));
    this.said.textContent = data.count ? format.count(data.offset + 1) + "–" + format.count(data.offset + data.rows.length) + " of " + format.count(data.count) : "";
    this.back.hidden = !data.offset;
    this.next.hidden = data.offset + data.rows.length >= data.count;
  }

  async waterfall() {
    const back = h("a", { href: "#requests" }, "← all requests");
    let data;
    try { data = await this.view.ask("api/traces/" + encodeURIComponent(this.trace), {}); } catch (error) {
      if (error.status !== 404 && error.status !== 400) throw error;
      this.one.replaceChildren(empty("This request is no longer kept", h("p", {}, "Older ones give way to newer ones; --keep says for how long."), h("p", {}, back)));
      this.shown = this.trace;
      return;
    }
    this.shown = this.trace;
    const first = data.spans[0];
    const rows = data.spans.map((span) => this.span(span, data.duration || 1e-9));
    const section = card(first.name, format.clock(data.start) + " · " + format.seconds(data.duration) + " · " + data.spans.length + " spans" + (data.whole ? "" : ", more are not shown"), h("div", { class: "waterfall", role: "list", "aria-label": "Spans" }, rows));
    this.one.replaceChildren(h("div", { class: "controls" }, back, h("span", { class: "hint mono" }, "trace " + data.trace)), section);
  }

  span(span, whole) {
    const bar = h("i", { swatch: swatch(span) });
    bar.style.left = (100 * span.offset) / whole + "%";
    bar.style.width = Math.max(0.15, (100 * span.duration) / whole) + "%";
    const said = h("dl", { class: "said", hidden: true }, ["process", "span"].map((key) => [h("dt", {}, key), h("dd", {}, span[key])]), span.attributes.map(([key, value]) => [h("dt", {}, key), h("dd", {}, /bytes/.test(key) ? format.count(value) + " (" + format.bytes(value) + ")" : /duration/.test(key) ? format.seconds(value) : typeof value === "number" && !/port|pid|status/.test(key) ? format.count(value) : String(value))]));
    const twist = h("span", { class: "twist", "aria-hidden": "true" }, "▶");
    const button = h("button", { type: "button", "aria-expanded": "false", onclick: () => { said.hidden = !said.hidden; twist.textContent = said.hidden ? "▶" : "▼"; button.setAttribute("aria-expanded", String(!said.hidden)); } },
      twist, h("span", { class: "label", title: span.name }, span.name), span.linked ? h("span", { class: "tag link", title: "It served this request, and others" }, "linked") : null, span.is_error ? h("span", { class: "tag bad" }, "error") : null);
    button.style.paddingLeft = Math.min(span.depth, 12) * 16 + "px";
    return h("div", { class: "span", role: "listitem" }, button, h("div", { class: "track", "aria-hidden": "true", title: "after " + format.seconds(span.offset) }, bar), h("span", { class: "took" }, format.seconds(span.duration)), said);
  }

  key(event) {
    if (event.key === "/" && !this.list.hidden) { event.preventDefault(); this.search.focus(); }
    if (event.key === "Escape" && this.trace) location.hash = "#requests";
  }
}
