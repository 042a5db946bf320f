// Which code does it? The flame graph that recordings have, of any stretch of time, or of how one differs from another.
import { card, command, empty, h } from "./elements.js";
import * as format from "./format.js";

const LENGTHS = [["30", "last 30 s"], ["60", "last minute"], ["300", "last 5 minutes"], ["900", "last 15 minutes"], ["all", "all that is kept"], ["custom", "from … to …"]];
const OTHERS = [["", "nothing"], ["before", "the time just before"], ["custom", "from … to …"]];

function times(unix) {
  const d = new Date(unix * 1000);
  return [d.getHours(), d.getMinutes(), d.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}

function choice(label, options, changed) {
  const select = h("select", { onchange: changed }, options.map(([value, text]) => h("option", { value }, text)));
  return [h("label", { class: "field" }, h("span", {}, label), select), select];
}

function stretch(label, changed) {
  const [from, to] = [0, 1].map((i) => h("input", { type: "time", step: "1", "aria-label": label + (i ? " to" : " from"), onchange: changed }));
  return { element: h("span", { class: "field", hidden: true }, h("span", {}, label), from, "–", to), from, to };
}

export class FlamesPage {
  constructor(view) {
    this.view = view;
    const draw = () => this.draw();
    [this.kindField, this.kind] = choice("Profile", [], draw);
    [this.ofField, this.of] = choice("Process", [], draw);
    [this.lengthField, this.length] = choice("Time", LENGTHS, draw);
    [this.otherField, this.other] = choice("Compared with", OTHERS, draw);
    this.first = stretch("From", draw);
    this.second = stretch("Compared with", draw);
    this.length.value = "all";
    this.frame = h("iframe", { title: "Flame graph" });
    this.frame.addEventListener("load", () => this.loaded());
    this.said = h("p", { class: "hint", role: "status" });
    const graph = h("section", { class: "card frame", "aria-label": "Flame graph" }, this.frame);
    this.content = h("div", {}, h("div", { class: "controls" }, this.kindField, this.ofField, this.lengthField, this.first.element, this.otherField, this.second.element,
      h("button", { type: "button", class: "primary", onclick: draw }, "Draw again"), this.said), graph);
    this.none = empty("No profile has come yet", h("p", {}, "Profiles are taken where they are asked for (Linux 5.17 or later):"), command("sudo otel-gpu run --profiles"),
      h("p", {}, "Or record one process into a file: ", h("code", {}, "otel-gpu record PID --duration 10 -o launches.html")));
    this.element = h("div", {}, h("h1", { class: "sr" }, "Flame graphs"), this.none, this.content);
    this.kinds = [];
  }

  async refresh() {
    const data = await this.view.ask("api/profiles", {});
    this.kinds = data.kinds;
    this.none.hidden = this.kinds.length > 0;
    this.content.hidden = !this.kinds.length;
    if (!this.kinds.length) return;
    const changed = this.fill(this.kind, [...new Map(this.kinds.map((k) => [k.type, k.title]))]);
    const those = this.kinds.filter((k) => k.type === this.kind.value);
    const moved = this.fill(this.of, those.map((k) => [String(k.process), k.name]));
    // A graph that somebody looks at does not change under their eyes.
    if (changed || moved || !this.drawn) this.draw();
  }

  fill(select, options) {
    const now = options.map((o) => o.join("\u0000")).join("\u0001");
    if (select.shown === now) return false;
    const chosen = select.value;
    select.shown = now;
    select.replaceChildren(...options.map(([value, text]) => h("option", { value }, text)));
    if (options.some(([value]) => value === chosen)) { select.value = chosen; return false; }
    return true;
  }

  window(stretchOf, kind) {
    const day = new Date(kind.end * 1000);
    const at = (input, otherwise) => {
      if (!input.value) { input.value = times(otherwise); return otherwise; }
      const [hours, minutes, secs] = input.value.split(":").map(Number);
      const time = new Date(day);
      time.setHours(hours, minutes, secs || 0, 0);
      return time.getTime() / 1000;
    };
    return [at(stretchOf.from, kind.start), at(stretchOf.to, kind.end)];
  }

  draw() {
    const those = this.kinds.filter((k) => k.type === this.kind.value);
    this.fill(this.of, those.map((k) => [String(k.process), k.name]));
    const kind = those.find((k) => String(k.process) === this.of.value);
    if (!kind) return;
    this.first.element.hidden = this.length.value !== "custom";
    this.second.element.hidden = this.other.value !== "custom";
    let [from, to] = [kind.start - 1, kind.end + 1];
    if (this.length.value === "custom") [from, to] = this.window(this.first, kind);
    else if (this.length.value !== "all") from = to - Number(this.length.value);
    else if (this.other.value === "before") from = (kind.start + kind.end) / 2;
    const asked = new URLSearchParams({ type: kind.type, process: kind.process });
    let earlier = null;
    if (this.other.value === "before") earlier = [from - (to - from), from];
    if (this.other.value === "custom") earlier = this.window(this.second, kind);
    if (earlier) { asked.set("window", earlier.join("-")); asked.set("other", from + "-" + to); } else asked.set("window", from + "-" + to);
    this.said.textContent = (earlier ? format.clock(earlier[0]) + "–" + format.clock(earlier[1]) + " and " : "") + format.clock(from) + "–" + format.clock(to);
    this.drawn = true;
    this.frame.src = "flame?" + asked;
  }

  loaded() {
    const inside = this.frame.contentDocument;
    if (!inside || !inside.body) return;
    inside.documentElement.dataset.theme = document.documentElement.dataset.theme;
    const fit = () => { this.frame.style.height = Math.max(380, inside.body.scrollHeight + 8) + "px"; };
    fit();
    new ResizeObserver(fit).observe(inside.body);
  }

  themed() { const inside = this.frame.contentDocument; if (inside) inside.documentElement.dataset.theme = document.documentElement.dataset.theme; }
}
