// What did programs ask of GPUs lately?
import { Chart } from "./charts.js";
import { Table, card, command, empty, h, shape, stat } from "./elements.js";
import * as format from "./format.js";

const rate = (value) => (value ? format.short(value) : "");

export class GpuPage {
  constructor(view) {
    this.view = view;
    this.launches = new Chart("Kernels started per second, by name", (v) => format.short(v), { stacked: true, tall: true });
    this.copies = new Chart("Bytes copied per second, by direction", (v) => format.bytes(v) + "/s", { stacked: true, name: format.direction });
    this.memory = new Chart("Memory in use, by type", format.bytes, { stacked: true });
    this.waits = new Chart("Time that host threads wait for the GPU, by function", format.percent, { stacked: true });
    this.busy = new Chart("Bounds of the time for which GPUs work", format.percent, { band: true });
    this.kernels = new Table("Kernels", [
      { key: "name", name: "kernel", text: true, mono: true, show: (r) => r.name || "(no name)" },
      { key: "rate", name: "launches/s", show: (r) => rate(r.rate) },
      { key: "graph_rate", name: "in graphs/s", show: (r) => rate(r.graph_rate) },
      { key: "blocks", name: "blocks", title: "Blocks in a grid: mean, and how they are distributed", value: (r) => (r.blocks ? r.blocks.mean : null), show: (r) => shape(r.blocks, "blocks") },
      { key: "threads", name: "threads per block", value: (r) => (r.threads ? r.threads.mean : null), show: (r) => shape(r.threads, "threads per block") },
      { key: "total", name: "launches in all", show: (r) => format.count(r.total) },
      { key: "graph_total", name: "in graphs in all", show: (r) => (r.graph_total ? format.count(r.graph_total) : "") },
    ], { none: "No kernel was launched yet." });
    this.copyTable = new Table("Copies", [
      { key: "kind", name: "direction", text: true, show: (r) => format.direction(r.kind) },
      { key: "host", name: "host memory", text: true, show: (r) => (r.host === "pageable" ? h("span", { class: "tag", title: "Copies of pageable memory are slow and block: pin it" }, r.host) : r.host) },
      { key: "rate", name: "copies/s", show: (r) => rate(r.rate) },
      { key: "byte_rate", name: "bytes/s", show: (r) => (r.byte_rate ? format.bytes(r.byte_rate) + "/s" : "") },
      { key: "mean", name: "mean", show: (r) => format.bytes(r.mean) },
      { key: "total", name: "copies", show: (r) => format.count(r.total) },
      { key: "bytes", name: "in all", show: (r) => h("span", { title: format.count(r.bytes) + " bytes" }, format.bytes(r.bytes)) },
    ], { none: "Nothing was copied yet." });
    this.memoryTable = new Table("Memory", [
      { key: "type", name: "type", text: true, show: (r) => r.type },
      { key: "bytes", name: "in use", show: (r) => h("span", { title: format.count(r.bytes) + " bytes" }, format.bytes(r.bytes)) },
      { key: "peak", name: "peak", show: (r) => format.bytes(r.peak) },
      { key: "allocated", name: "allocated in all", show: (r) => h("span", { title: format.count(r.allocated) + " bytes" }, format.bytes(r.allocated)) },
      { key: "freed", name: "freed in all", show: (r) => format.bytes(r.freed) },
    ], { none: "Nothing was allocated yet." });
    this.waitTable = new Table("Waits", [
      { key: "function", name: "in", text: true, mono: true, show: (r) => r.function },
      { key: "rate", name: "waits/s", show: (r) => rate(r.rate) },
      { key: "mean", name: "mean", show: (r) => format.seconds(r.mean) },
      { key: "p50", name: "p50 ≤", show: (r) => format.seconds(r.p50) },
      { key: "p99", name: "p99 ≤", show: (r) => format.seconds(r.p99) },
      { key: "total", name: "waits", show: (r) => format.count(r.total) },
      { key: "seconds", name: "in all", show: (r) => format.seconds(r.seconds) },
      { key: "trace", name: "e.g.", plain: true, show: (r) => (r.trace ? h("a", { href: "#requests/" + r.trace, title: "A request that waited there" }, "request") : "") },
    ], { none: "No thread waited for a GPU yet." });
    this.errorTable = new Table("Errors", [
      { key: "function", name: "function", text: true, mono: true, show: (r) => r.function },
      { key: "error", name: "error", text: true, mono: true, show: (r) => r.error },
      { key: "rate", name: "per second", show: (r) => rate(r.rate) },
      { key: "total", name: "in all", show: (r) => format.count(r.total) },
    ], { none: "No call of the driver has failed." });
    this.stats = h("dl", { class: "stats", "aria-label": "Now" });
    const wide = card("Kernel launches", "stacked by name; a graph's kernels are counted with it", this.launches.element, this.kernels.element);
    wide.classList.add("wide");
    this.content = h("div", {}, this.stats, h("div", { class: "grid" }, wide,
      card("Copies", "by direction", this.copies.element, this.copyTable.element),
      card("Memory in use", "by type", this.memory.element, this.memoryTable.element),
      card("Waiting for the GPU", "share of time, of all threads together", this.waits.element, this.waitTable.element),
      card("GPU busy", "certainly (lower bound) and at most (upper bound)", this.busy.element, h("p", { class: "hint" }, "The truth lies in the band. Several processes or GPUs add up."), h("h3", {}, "Errors"), this.errorTable.element)));
    this.none = empty("Nothing has come from a GPU program yet",
      h("p", {}, "Start an agent on this host. It finds GPU processes, and sends here by itself:"), command("sudo otel-gpu run --profiles --traces"),
      h("p", { id: "elsewhere" }), h("p", {}, "Or see it work without a GPU: ", h("code", {}, "make demo"), " in a checkout. ", h("a", { href: "#health" }, "Health"), " says what came in and what was refused."));
    this.element = h("div", {}, h("h1", { class: "sr" }, "GPU"), this.none, this.content);
    this.charts = [this.launches, this.copies, this.memory, this.waits, this.busy];
  }

  async refresh() {
    const data = await this.view.ask("api/gpu", { seconds: this.view.seconds });
    const nothing = !data.launches.rows.length && !data.copies.rows.length && !data.memory.rows.length && !data.errors.rows.length;
    this.none.hidden = !nothing;
    this.content.hidden = nothing;
    if (nothing) {
      const at = this.view.state && this.view.state.endpoints;
      this.none.querySelector("#elsewhere").textContent = at ? "Agents elsewhere are told by OTEL_EXPORTER_OTLP_ENDPOINT=" + at.grpc : "";
      return;
    }
    const busy = data.busy;
    const bound = (name) => (busy[name] ? busy[name].now : 0);
    const [rates, share] = [format.short(data.launches.rate + data.launches.graph_rate), data.copies.byte_rate];
    const [size, unit] = format.bytes(share).split(" ");
    const [held, heldUnit] = format.bytes(data.memory.bytes).split(" ");
    this.stats.replaceChildren(
      stat("Kernels started", rates, "/s", format.count(data.launches.total) + " launches in all"),
      stat("Graph launches", format.short(data.graphs.rate), "/s", format.count(data.graphs.total) + " in all"),
      stat("Copied", size, unit + "/s", format.bytes(data.copies.bytes) + " in all"),
      stat("Memory in use", held, heldUnit, "what programs allocated"),
      stat("Waiting for the GPU", format.percent(data.waits.share), "", format.seconds(data.waits.seconds) + " in all"),
      stat("GPU busy", Object.keys(busy).length ? format.percent(bound("lower")).replace(" %", "") + "–" + format.percent(bound("upper")) : "–", "", "lower and upper bound"),
      stat("Errors", format.count(data.errors.total), "", data.errors.total ? data.errors.rows[0].error : "of driver calls", data.errors.total > 0));
    this.launches.set(data.times, data.launches.lines);
    this.kernels.set(data.launches.rows, data.launches.more);
    this.copies.set(data.times, data.copies.lines);
    this.copyTable.set(data.copies.rows, data.copies.more);
    this.memory.set(data.times, data.memory.lines);
    this.memoryTable.set(data.memory.rows, data.memory.more);
    this.waits.set(data.times, data.waits.lines);
    this.waitTable.set(data.waits.rows, data.waits.more);
    this.busy.set(data.times, ["lower", "upper"].filter((name) => busy[name]).map((name) => ({ name, values: busy[name].line })));
    this.errorTable.set(data.errors.rows, data.errors.more);
  }

  themed() { this.charts.forEach((chart) => chart.redraw()); }
}
