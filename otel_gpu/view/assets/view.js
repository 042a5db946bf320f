// Which page is shown, of which process, of how long ago? And how is it kept up to date?
import { h } from "./elements.js";
import * as format from "./format.js";
import { FlamesPage } from "./flames.js";
import { GpuPage } from "./gpu.js";
import { FabricPage, HealthPage } from "./metrics.js";
import { RequestsPage } from "./requests.js";

const $ = (id) => document.getElementById(id);
const WINDOWS = [[60, "1 min"], [180, "3 min"], [900, "15 min"], [3600, "1 h"]];
const REFRESH_MS = 1000;
const SLOW_MS = 4000;
const PAGES = { gpu: GpuPage, flames: FlamesPage, requests: RequestsPage, fabric: FabricPage, health: HealthPage };

class Failed extends Error {
  constructor(status, why) { super(why); this.status = status; }
}

class View {
  constructor() {
    this.seconds = 180;
    this.process = "";
    this.pages = {};
    this.state = null;
    this.paused = false;
    this.dark = window.matchMedia("(prefers-color-scheme: dark)");
  }

  async ask(path, parameters) {
    const asked = new URLSearchParams({ process: this.process, ...parameters });
    const answer = await fetch(path + "?" + asked, { cache: "no-store" });
    if (answer.status === 401) { location.assign("./"); }
    if (!answer.ok) throw new Failed(answer.status, (await answer.json().catch(() => ({}))).error || answer.statusText);
    return answer.json();
  }

  start() {
    this.theme(stored("theme") || "");
    $("window").append(...WINDOWS.map(([seconds, text]) => h("button", { type: "button", value: seconds, onclick: () => { this.seconds = seconds; this.press(); this.refresh(true); } }, text)));
    this.press();
    $("process").addEventListener("change", () => { this.process = $("process").value; this.refresh(true); });
    $("pause").addEventListener("click", () => this.pause());
    $("theme").addEventListener("click", () => this.theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark", true));
    this.dark.addEventListener("change", () => this.theme(stored("theme") || ""));
    window.addEventListener("hashchange", () => this.go());
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.refresh(true); });
    document.addEventListener("keydown", (event) => this.key(event));
    this.go();
    this.tick();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.key !== "Escape") return;
    const names = Object.keys(PAGES);
    if (event.key >= "1" && event.key <= String(names.length)) location.hash = "#" + names[Number(event.key) - 1];
    else if (event.key === "t") $("theme").click();
    else if (event.key === " " && !/^(BUTTON|A)$/.test(event.target.tagName) && !event.target.classList.contains("scroll")) { event.preventDefault(); this.pause(); }
    else if (this.page && this.page.key) this.page.key(event);
  }

  pause() {
    this.paused = !this.paused;
    $("pause").setAttribute("aria-pressed", String(this.paused));
    $("pause-text").textContent = this.paused ? "Paused" : "Live";
    if (!this.paused) this.refresh(true);
  }

  theme(wanted, keep = false) {
    const chosen = wanted || (this.dark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = chosen;
    $("theme-text").textContent = chosen === "dark" ? "Dark" : "Light";
    $("theme").setAttribute("aria-label", "Theme: " + chosen);
    if (keep) try { localStorage.setItem("theme", chosen); } catch { /* it is forgotten then */ }
    Object.values(this.pages).forEach((page) => page.themed && page.themed());
  }

  press() {
    [...$("window").children].forEach((b) => b.setAttribute("aria-pressed", String(Number(b.value) === this.seconds)));
  }

  go() {
    if (location.hash === "#main" && this.page) {
      // The way past the heading leads to the content of this page, and not to another one.
      history.replaceState(null, "", this.at);
      $("main").focus();
      return;
    }
    this.at = location.hash || "#gpu";
    const [name, detail] = location.hash.slice(1).split("/");
    this.name = PAGES[name] ? name : "gpu";
    this.page = this.pages[this.name] = this.pages[this.name] || new PAGES[this.name](this);
    [...$("tabs").children].forEach((tab) => {
      if (tab.hash === "#" + this.name) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    });
    const title = [...$("tabs").children].find((tab) => tab.hash === "#" + this.name).firstChild.textContent;
    document.title = title + " · otel-gpu";
    $("main").setAttribute("aria-label", title);
    $("window").hidden = this.name === "flames" || this.name === "requests";
    $("process-field").hidden = this.name === "health";
    $("main").replaceChildren(this.page.element);
    if (this.page.open) this.guard(() => this.page.open(detail));
    else this.refresh(true);
  }

  async guard(work) {
    try {
      await work();
      $("trouble").hidden = true;
    } catch (error) {
      $("trouble").hidden = false;
      $("trouble").textContent = error instanceof Failed ? "The view could not answer: " + error.message : "The view does not answer. Is `otel-gpu view` still running? The page tries again by itself.";
      if (!(error instanceof TypeError) && !(error instanceof Failed)) console.error(error);
    }
  }

  async refresh(now = false) {
    if ((this.paused && !now) || document.hidden || this.busy) { this.again = this.again || now; return; }
    this.busy = true;
    await this.guard(async () => {
      this.state = await this.ask("api/state", {});
      this.show();
      await this.page.refresh(false);
    });
    this.busy = false;
    if (this.again) { this.again = false; await this.refresh(true); }
  }

  show() {
    const state = this.state;
    const options = [["", "all processes"], ...state.processes.map((p) => [String(p.number), p.name])];
    const shown = options.map((o) => o.join("\u0000")).join("\u0001");
    if (shown !== this.options) {
      this.options = shown;
      $("process").replaceChildren(...options.map(([value, text]) => h("option", { value }, text)));
      if (!options.some(([value]) => value === this.process)) this.process = "";
      $("process").value = this.process;
    }
    $("lost-badge").hidden = !state.lost;
    $("lost-badge").textContent = "!";
    $("lost-badge").title = format.count(state.lost) + " not kept";
    [...$("window").children].forEach((b) => { b.hidden = Number(b.value) > Math.max(state.keep, 180); });
    $("endpoints").textContent = "OTLP to " + state.endpoints.grpc + " (gRPC) and " + state.endpoints.http + " (HTTP)";
    $("stats").textContent = "otel-gpu " + state.version + " · " + format.short(state.points) + " points, " + format.short(state.spans) + " spans, " + format.short(state.samples) + " samples taken · " + format.clock(state.now);
  }

  async tick() {
    const began = performance.now();
    await this.refresh();
    const took = performance.now() - began;
    setTimeout(() => this.tick(), this.page instanceof GpuPage ? Math.max(REFRESH_MS, 4 * took) : SLOW_MS / 2);
  }
}

function stored(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}

new View().start();
