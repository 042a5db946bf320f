// What do metrics say that have no picture of their own? Tables: of what connects GPUs, and of the agents themselves.
import { Table, card, command, empty, h, stat } from "./elements.js";
import * as format from "./format.js";

function columns(table) {
  const isHistogram = table.kind === "histogram";
  const unit = isHistogram || table.kind === "counter" ? "" : table.unit;
  const own = isHistogram ? [
    { key: "value", name: "count", show: (r) => format.count(r.value) },
    { key: "mean", name: "mean", show: (r) => format.quantity(r.mean, table.unit) },
    { key: "p50", name: "p50 ≤", show: (r) => format.quantity(r.p50, table.unit) },
    { key: "p99", name: "p99 ≤", show: (r) => format.quantity(r.p99, table.unit) },
    { key: "rate", name: "per second", show: (r) => (r.rate ? format.short(r.rate) : "") },
  ] : [
    { key: "value", name: table.kind === "counter" ? "in all" : "now", show: (r) => h("span", { class: r.live || table.kind === "counter" ? null : "hint", title: format.count(r.value) + (r.live ? "" : " – not heard of lately") }, format.quantity(r.value, table.unit)) },
    ...(table.kind === "counter" ? [{ key: "rate", name: "per second", show: (r) => (r.rate ? format.quantity(r.rate, table.unit === "s" ? "" : table.unit) : "") }] : []),
  ];
  return [
    { key: "process", name: "process", text: true, show: (r) => r.process },
    ...table.attributes.map((name, i) => ({ key: name, name, text: true, value: (r) => r.attributes[i], show: (r) => (r.attributes[i] === null ? "" : String(r.attributes[i])) })),
    ...own,
  ];
}

// Tables by metric, which stay the same elements from one refresh to the next.
class Tables {
  constructor() { this.known = new Map(); this.element = h("div", { class: "masonry" }); }

  set(tables) {
    const names = new Set();
    for (const one of tables) {
      const id = one.name + "\u0000" + one.attributes.join("\u0000");
      names.add(id);
      if (!this.known.has(id)) {
        const table = new Table(one.name, columns(one));
        this.known.set(id, { table, element: card(one.name, one.description, table.element) });
        if (one.attributes.length > 4) this.known.get(id).element.classList.add("wide");
      }
      this.known.get(id).table.set(one.rows, one.more);
    }
    for (const id of [...this.known.keys()]) if (!names.has(id)) this.known.delete(id);
    const wanted = tables.map((one) => this.known.get(one.name + "\u0000" + one.attributes.join("\u0000")).element);
    // What stays in its place is not taken out: it would lose the focus.
    for (const shown of [...this.element.children]) if (!wanted.includes(shown)) shown.remove();
    wanted.forEach((one, i) => { if (this.element.children[i] !== one) this.element.insertBefore(one, this.element.children[i] ?? null); });
  }
}

const PARTS = [
  ["nccl", "NCCL", "Collectives of NCCL and RCCL, by rank. Name the receiver in the agent's configuration:", "receivers: {nccl: }", "otel-gpu stragglers says which ranks keep the others waiting."],
  ["rdma", "RDMA", "Queue pairs, ports and their latencies. Name the receiver in the agent's configuration:", "receivers: {rdma: }", "Ports are read wherever there is an RDMA device."],
  ["hardware", "Hardware", "Utilization, power, clocks and errors come from NVML, by itself on hosts with an NVIDIA driver:", "sudo otel-gpu run", ""],
];

export class FabricPage {
  constructor(view) {
    this.view = view;
    this.parts = PARTS.map(([key, title, why, what, more]) => {
      const tables = new Tables();
      const none = card(title, "nothing has come yet", h("p", { class: "hint" }, why), command(what), more ? h("p", { class: "hint" }, more) : null);
      const heading = h("h1", {}, title);
      return { key, tables, none, heading, element: h("section", { "aria-label": title }, heading, tables.element, none) };
    });
    this.element = h("div", { class: "parts" }, this.parts.map((part) => part.element));
  }

  async refresh() {
    const data = await this.view.ask("api/fabric", { seconds: this.view.seconds });
    for (const part of this.parts) {
      part.tables.set(data[part.key]);
      part.none.hidden = data[part.key].length > 0;
      part.heading.hidden = part.tables.element.hidden = !data[part.key].length;
    }
  }
}

export class HealthPage {
  constructor(view) {
    this.view = view;
    this.stats = h("dl", { class: "stats", "aria-label": "What came in" });
    this.kept = new Table("What is kept", [
      { key: "what", name: "what", text: true, show: (r) => r.what },
      { key: "count", name: "kept", show: (r) => format.count(r.count) },
      { key: "room", name: "room", show: (r) => { const bar = h("i"); bar.style.width = Math.min(100, (100 * r.count) / r.room) + "%"; return h("span", {}, format.count(r.room), h("span", { class: "meter", role: "img", "aria-label": Math.round((100 * r.count) / r.room) + " % full" }, bar)); } },
    ]);
    this.losses = new Table("What was not kept", [
      { key: "reason", name: "what", text: true, show: (r) => r.reason },
      { key: "count", name: "how many", show: (r) => format.count(r.count) },
    ], { none: "All that came was kept.", sorted: "count" });
    this.tables = new Tables();
    this.none = card("Agents", "no agent has told of itself yet", h("p", { class: "hint" }, "Agents of otel-gpu do by themselves, when they send here:"), command("sudo otel-gpu run --profiles --traces"));
    this.element = h("div", {}, h("h1", { class: "sr" }, "Health"), this.stats, h("div", { class: "grid" }, card("What is kept", "and how much there is room for", this.kept.element), card("What was not kept", "since the view began", this.losses.element)), h("h3", {}, "Agents, by their own word"), this.none, this.tables.element);
  }

  async refresh() {
    const [data, state] = [await this.view.ask("api/health", { seconds: this.view.seconds, process: "" }), this.view.state];
    const seen = data.agents.map((a) => a.seen);
    this.stats.replaceChildren(
      stat("Agents", format.count(data.agents.length), "", seen.length ? "last heard of at " + format.clock(Math.max(...seen)) : "none yet"),
      stat("Points", format.short(state ? state.points : 0), "", "of metrics, taken"),
      stat("Spans", format.short(state ? state.spans : 0), "", "taken"),
      stat("Samples", format.short(state ? state.samples : 0), "", "of profiles, taken"),
      stat("Lost by agents", format.count(data.lost_by_agents), "", "events, by their own word", data.lost_by_agents > 0),
      stat("Not kept here", format.count(data.losses.reduce((sum, l) => sum + l.count, 0)), "", data.losses.length ? "see below" : "all was kept", Boolean(state && state.lost)));
    this.kept.set(data.kept);
    this.losses.set(data.losses);
    this.none.hidden = data.tables.length > 0;
    this.tables.set(data.tables);
  }
}
