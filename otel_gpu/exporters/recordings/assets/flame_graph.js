"use strict";
(function () {
  const ROW_HEIGHT = 21;
  const MIN_FRAME_PX = 0.4;
  const KINDS = {
    cpython: { name: "Python", hue: 212, saturation: 68, lightness: 74 },
    native: { name: "C/C++", hue: 35, saturation: 88, lightness: 71 },
    kernel: { name: "Linux", hue: 8, saturation: 66, lightness: 73 },
    cuda: { name: "CUDA kernel", hue: 96, saturation: 48, lightness: 66 },
    marker: { name: "Marker", hue: 268, saturation: 38, lightness: 81 },
    truncated: { name: "Truncated", hue: 220, saturation: 8, lightness: 74 },
  };
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const KEPT = "otel-gpu flame graph";
  const OUTSIDE_PYTHON = new Set(["native", "kernel"]);
  const INTERPRETER = /^(?:lib)?python\d[\d.]*[dmt]*(?:\.so[\d.]*|\.exe)?$/;
  const CALLS_OF_C = /^(?:libffi\.so|_ctypes\.|_cffi_backend\.|libffi-)/;
  const MAX_FOLDED_NAMES = 12;
  let graph, root, deepest, chart, current = null, term = "", matched = null, widths = "both", pythonOnly = false;
  const settings = { orientation: "icicle", fold: true, ...kept() };

  // A choice stays, also when the page is loaded again; where a browser keeps nothing it stays as long as the page.
  function kept() {
    try {
      const { orientation, fold } = JSON.parse(localStorage.getItem(KEPT)) || {};
      return { ...(["icicle", "flame"].includes(orientation) && { orientation }), ...(typeof fold === "boolean" && { fold }) };
    } catch { return {}; }
  }

  function choose(changes) {
    Object.assign(settings, changes);
    try { localStorage.setItem(KEPT, JSON.stringify(settings)); } catch { /* it is not kept */ }
    press();
    draw();
  }

  function scaled(value, base, units) {
    let i = 0;
    while (Math.abs(value) >= base && i < units.length - 1) { value /= base; i += 1; }
    return (i === 0 ? rounded(value) : value.toPrecision(value >= 100 ? 4 : 3)) + " " + units[i];
  }

  function duration(ns) {
    const size = Math.abs(ns);
    if (size >= 3600e9) return (ns / 3600e9).toFixed(2) + " h";
    if (size >= 120e9) return (ns / 60e9).toFixed(1) + " min";
    return scaled(ns, 1000, ["ns", "µs", "ms", "s"]);
  }

  // What values are multiplied with: recordings of different lengths are compared by what happened in a second.
  function per(_, column) { return graph.perSecond ? 1e9 / graph.durations[column] : 1; }

  const totals = () => graph.totals.map((total, column) => total * per(total, column));

  function amount(value) { return total(value) + (graph.perSecond ? "/s" : ""); }

  function rounded(value) {
    return Number.isInteger(value) || Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
  }

  function total(value) {
    if (graph.unit === "bytes") return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
    if (graph.unit === "nanoseconds") return duration(value);
    const count = rounded(value);
    return graph.nanosecondsEach ? count + " ≈ " + duration(value * graph.nanosecondsEach) : count;
  }

  function share(value, total) {
    if (!total) return "–";
    if (!value) return "0 %";
    const percent = (100 * value) / total;
    return (percent > 0 && percent < 0.01 ? "<0.01" : percent.toFixed(percent < 1 ? 2 : 1)) + " %";
  }

  // What `amount` rounds, to the last unit.
  function exact(value) {
    if (graph.perSecond) return "";
    const unit = { bytes: "B", nanoseconds: "ns" }[graph.unit];
    const all = Math.abs(value).toLocaleString("en") + " " + unit;
    return unit && all !== amount(Math.abs(value)) ? signed(value, () => all).replace("+", "") : "";
  }

  const signed = (value, text) => (value > 0 ? "+" : value < 0 ? "−" : "") + text(Math.abs(value));

  function width(values) {
    if (widths === "before") return values[0];
    if (widths === "after") return values[values.length - 1];
    return values.reduce((a, b) => a + b, 0);
  }

  function base(path) { return path.slice(path.lastIndexOf("/") + 1); }

  // What only carries calls from Python to Python, or from there to C.
  function carries(columns, i) {
    if (data.kinds[columns.kind[i]] !== "native") return "";
    const file = base(data.strings[columns.place[i]]);
    return INTERPRETER.test(file) ? "interpreter" : CALLS_OF_C.test(file) ? "libffi" : "";
  }

  // Of each frame in a run of two or more such frames: what it is, and the how manieth of its run. Others have null.
  function runs(columns) {
    const count = columns.parent.length;
    const found = new Array(count).fill(null);
    const longest = new Array(count).fill(0);
    for (let i = 1; i < count; i += 1) {
      const what = carries(columns, i);
      if (!what) continue;
      const before = found[columns.parent[i]];
      found[i] = { what, place: before ? before.place + 1 : 1, head: before ? before.head : i };
      longest[found[i].head] = Math.max(longest[found[i].head], found[i].place);
    }
    return found.map((one) => (one && longest[one.head] > 1 ? one : null));
  }

  function blank(name, kind, place) {
    return {
      name, kind, place, values: graph.totals.map(() => 0), lines: new Map(), children: [], byKey: new Map(),
      folded: null, depth: 0, hint: "",
    };
  }

  function note(fold, run, name, isEnd) {
    fold.what.add(run.what);
    if (fold.names.size < MAX_FOLDED_NAMES) fold.names.add(name);
    fold.most = Math.max(fold.most, run.place);
    if (isEnd) fold.least = Math.min(fold.least, run.place);
  }

  // Parents come before their children. A frame that is not shown is its caller's; what was apart only by it is one.
  function plant(columns) {
    const count = columns.parent.length;
    const run = settings.fold ? runs(columns) : new Array(count).fill(null);
    const goesOn = new Array(count).fill(false);
    const ends = new Array(count).fill(false);
    for (let i = 1; i < count; i += 1) (run[i] ? goesOn : ends)[columns.parent[i]] = true;
    const top = blank(data.strings[columns.name[0]], data.kinds[columns.kind[0]], data.strings[columns.place[0]]);
    const each = columns.values.map(per);
    top.values = columns.values.map((column, c) => column[0] * each[c]);
    const shown = [top];
    deepest = 0;
    for (let i = 1; i < count; i += 1) {
      const parent = shown[columns.parent[i]];
      const name = data.strings[columns.name[i]];
      const kind = data.kinds[columns.kind[i]];
      const place = data.strings[columns.place[i]];
      if (pythonOnly && OUTSIDE_PYTHON.has(kind)) { shown[i] = parent; continue; }
      const goesOnFromParent = run[i] && run[i].place > 1;
      if (goesOnFromParent) {
        shown[i] = parent;
        note(parent.folded, run[i], name, ends[i] || !goesOn[i]);
        continue;
      }
      const key = run[i] ? "" : [kind, name, place].join("\n");
      let node = parent.byKey.get(key);
      if (!node) {
        node = blank(name, kind, place);
        node.depth = parent.depth + 1;
        deepest = Math.max(deepest, node.depth);
        if (run[i]) node.folded = { what: new Set(), names: new Set(), least: Infinity, most: 0 };
        parent.byKey.set(key, node);
        parent.children.push(node);
      }
      if (run[i]) note(node.folded, run[i], name, ends[i] || !goesOn[i]);
      columns.values.forEach((column, c) => { node.values[c] += column[i] * each[c]; });
      const lines = columns.lines[i] || [];
      for (let at = 0; at < lines.length; at += 2) node.lines.set(lines[at], (node.lines.get(lines[at]) || 0) + lines[at + 1]);
      shown[i] = node;
    }
    new Set(shown).forEach(finish);
    return top;
  }

  function finish(node) {
    node.value = width(node.values);
    node.lines = [...node.lines].sort((a, b) => b[1] - a[1]).flat();
    delete node.byKey;
    if (!node.folded) return;
    const { what, names, least, most } = node.folded;
    node.name = "[" + [...what].sort().join(", ") + ": " + (least < most ? least + "–" + most : most) + " frames]";
    node.place = "";
    node.hint = [...names].join(", ") + (names.size < MAX_FOLDED_NAMES ? "" : ", …");
  }

  function hash(text) {
    let h = 2166136261;
    for (let i = 0; i < text.length; i += 1) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
    return (h >>> 0) / 4294967296;
  }

  function hsl(hue, saturation, lightness) {
    return "hsl(" + Math.round(hue) + " " + Math.round(saturation) + "% " + Math.round(lightness - (dark.matches ? 8 : 0)) + "%)";
  }

  function color(node) {
    const d = node.data;
    const dimmed = term && !node.highlight;
    const dim = dark.matches ? 58 : 86;
    if (graph.differential) {
      const [before, after] = d.values;
      const change = before + after ? (after - before) / (before + after) : 0;
      const strength = Math.sqrt(Math.abs(change));
      if (dimmed) return "hsl(220 8% " + dim + "%)";
      if (!change) return "hsl(220 10% 84%)";
      return "hsl(" + (change > 0 ? 6 : 214) + " " + Math.round(30 + 58 * strength) + "% " + Math.round(88 - 24 * strength) + "%)";
    }
    if (!node.parent) return hsl(220, 14, 84);
    const kind = KINDS[d.kind] || KINDS.marker;
    if (dimmed) return "hsl(" + kind.hue + " 12% " + dim + "%)";
    const spread = hash(d.name) - 0.5;
    const paler = d.folded ? 0.4 : 1;
    return hsl(kind.hue + 14 * spread, kind.saturation * paler, kind.lightness + 9 * spread + (d.folded ? 8 : 0));
  }

  function itself(d, column) {
    return d.values[column] - d.children.reduce((sum, child) => sum + child.values[column], 0);
  }

  function row(table, cells) {
    const line = table.insertRow();
    cells.forEach((text) => { line.insertCell().textContent = text; });
  }

  function describe(node) {
    const d = node.data;
    const tip = $("tip");
    const name = document.createElement("b");
    name.textContent = d.name;
    const place = document.createElement("div");
    place.className = "place";
    const kind = node.parent ? (KINDS[d.kind] || KINDS.marker).name : "";
    const one = d.lines.length === 2 ? ":" + d.lines[0] : "";
    place.textContent = d.folded ? d.hint : [kind, d.place && d.place + one].filter(Boolean).join(" · ");
    const table = document.createElement("table");
    if (graph.differential) {
      const [before, after] = d.values;
      const grown = before ? signed(after - before, (v) => share(v, before)) : "new";
      row(table, ["before", amount(before), share(before, totals()[0]), exact(before)]);
      row(table, ["after", amount(after), share(after, totals()[1]), exact(after)]);
      row(table, ["change", signed(after - before, amount), grown, exact(after - before)]);
    } else {
      row(table, ["total", amount(d.values[0]), share(d.values[0], totals()[0]), exact(d.values[0])]);
      row(table, ["itself", amount(itself(d, 0)), share(itself(d, 0), totals()[0]), exact(itself(d, 0))]);
      if (d.lines.length > 2) {
        for (let i = 0; i < d.lines.length; i += 2) {
          const value = d.lines[i + 1];
          row(table, ["line " + d.lines[i], amount(value), share(value, d.values[0]), exact(value)]);
        }
      }
    }
    tip.replaceChildren(name, place, table);
  }

  function follow(event) {
    const tip = $("tip");
    const gap = 14;
    const x = Math.min(event.clientX + gap, window.innerWidth - tip.offsetWidth - gap);
    const below = event.clientY + gap;
    const y = below + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - gap : below;
    tip.style.left = Math.max(gap, x) + "px";
    tip.style.top = Math.max(gap, y) + "px";
  }

  function tooltip() {}
  tooltip.show = function (event, node) {
    describe(node);
    $("tip").hidden = false;
    follow(event);
  };
  tooltip.hide = function () { $("tip").hidden = true; };
  tooltip.destroy = tooltip.hide;

  function fact(name, value, title = "") {
    const group = document.createElement("div");
    const dt = document.createElement("dt");
    const dd = document.createElement("dd");
    dt.textContent = name;
    dd.textContent = value;
    dd.title = title;
    group.append(dt, dd);
    $("facts").append(group);
  }

  function facts() {
    $("facts").replaceChildren();
    const last = graph.totals.length - 1;
    if (graph.differential) {
      fact("Before", amount(totals()[0]), exact(totals()[0]));
      fact("After", amount(totals()[1]), exact(totals()[1]));
      fact("Change", signed(totals()[1] - totals()[0], amount));
    } else {
      fact("Total", amount(totals()[0]), exact(totals()[0]));
      fact("Distinct stacks", graph.stacks[0].toLocaleString("en"));
    }
    const lengths = graph.durations.map(duration);
    fact("Recorded", graph.differential && lengths[0] !== lengths[last] ? lengths.join(" / ") : lengths[last]);
    fact("Truncated stacks", share(graph.truncated[last], graph.totals[last]));
  }

  function legend() {
    $("legend").replaceChildren();
    const entry = (text, swatch) => {
      const span = document.createElement("span");
      span.textContent = text;
      span.style.setProperty("--swatch", swatch);
      $("legend").append(span);
    };
    if (graph.differential) {
      entry("grew", "hsl(6 88% 64%)");
      entry("as before", "hsl(220 10% 84%)");
      entry("shrank", "hsl(214 88% 64%)");
      return;
    }
    const used = new Set(graph.columns.kind.slice(1).map((i) => data.kinds[i]));
    if (pythonOnly) OUTSIDE_PYTHON.forEach((kind) => used.delete(kind));
    Object.keys(KINDS).filter((kind) => used.has(kind)).forEach((kind) => {
      entry(KINDS[kind].name, "hsl(" + KINDS[kind].hue + " " + KINDS[kind].saturation + "% " + KINDS[kind].lightness + "%)");
    });
  }

  function draw() {
    tooltip.hide();
    current = null;
    root = plant(graph.columns);
    const quiet = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    const host = $("chart");
    host.replaceChildren();
    $("empty").hidden = root.value > 0;
    if (!root.value) return;
    chart = flamegraph.chart()
      .width(host.clientWidth)
      .cellHeight(ROW_HEIGHT)
      .height((deepest + 1) * ROW_HEIGHT)
      .minFrameSize(MIN_FRAME_PX)
      .transitionDuration(quiet ? 0 : 200)
      .inverted(settings.orientation === "icicle")
      .sort((a, b) => b.data.value - a.data.value || (a.data.name < b.data.name ? -1 : 1))
      .selfValue(false)
      .setColorMapper(color)
      .setSearchMatch((node) => matched !== null && matched.test(words(node.data)))
      .setSearchHandler(() => {})
      .setDetailsHandler(() => {})
      .tooltip(tooltip);
    flamegraph.select(host).datum(root).call(chart);
    if (term) search(term);
  }

  const words = (d) => d.name + " " + d.place + " " + d.hint;

  // The frames that are drawn, from their callers on and from left to right.
  function drawn() {
    return [...$("chart").querySelectorAll("g.frame")].filter((g) => g.__data__ && g.getBoundingClientRect().width)
      .sort((a, b) => a.__data__.depth - b.__data__.depth || a.__data__.x0 - b.__data__.x0);
  }

  function goTo(g) {
    $("chart").querySelectorAll("g.current").forEach((one) => one.classList.remove("current"));
    if (!g) return;
    current = g.__data__;
    g.classList.add("current");
    g.parentNode.append(g);
    describe(current);
    $("tip").hidden = false;
    const box = g.querySelector("rect").getBoundingClientRect();
    if (box.top < 90 || box.bottom > window.innerHeight) window.scrollBy(0, box.top - window.innerHeight / 2);
    const now = g.querySelector("rect").getBoundingClientRect();
    follow({ clientX: Math.max(now.left, 0), clientY: now.bottom });
    $("spoken").textContent = [current.data.name, ...Array.from($("tip").querySelectorAll("tr"), (line) =>
      Array.from(line.cells, (cell) => cell.textContent).filter(Boolean).join(" "))].join(", ");
  }

  // Where an arrow key leads from the current frame.
  function neighbour(key) {
    const frames = drawn();
    const from = current && frames.find((g) => g.__data__ === current);
    if (!from) return frames.find((g) => !g.__data__.parent) || frames[0];
    const toCallees = settings.orientation === "icicle" ? "ArrowDown" : "ArrowUp";
    if (key === "ArrowDown" || key === "ArrowUp") {
      if (key !== toCallees) return frames.find((g) => g.__data__ === current.parent) || from;
      const callees = frames.filter((g) => g.__data__.parent === current);
      return callees.reduce((most, g) => (most && most.__data__.value >= g.__data__.value ? most : g), null) || from;
    }
    const level = frames.filter((g) => g.__data__.depth === current.depth);
    return level[level.indexOf(from) + (key === "ArrowRight" ? 1 : -1)] || from;
  }

  function nextMatch(step) {
    const matches = drawn().filter((g) => g.__data__.highlight);
    const at = matches.findIndex((g) => g.__data__ === current);
    if (matches.length) goTo(matches[(at < 0 ? (step > 0 ? 0 : matches.length - 1) : at + step + matches.length) % matches.length]);
  }

  function zoom() {
    const g = current && drawn().find((one) => one.__data__ === current);
    if (g) g.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  }

  function escaped(text) {
    return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  }

  function found(node) {
    if (matched.test(words(node))) return node.value;
    return node.children.reduce((sum, child) => sum + found(child), 0);
  }

  function search(text) {
    term = text.trim();
    if (!chart) return;
    if (!term) {
      matched = null;
      $("found").textContent = "";
      chart.clear();
      return;
    }
    try { matched = new RegExp(term, "i"); } catch { matched = new RegExp(escaped(term), "i"); }
    chart.search(term);
    const value = found(root);
    $("found").textContent = graph.differential ? share(value, root.value) : amount(value) + " · " + share(value, root.value);
  }

  function show(index) {
    graph = data.graphs[index];
    widths = "both";
    $("python").hidden = !graph.columns.kind.some((i) => data.kinds[i] === "cpython");
    $("fold").hidden = !runs(graph.columns).some(Boolean);
    if ($("python").hidden) pythonOnly = false;
    $("title").textContent = graph.title + (graph.differential ? ": difference" : "");
    $("title").title = graph.description;
    $("subtitle").textContent = [graph.process, graph.when, graph.description].filter(Boolean).join("  ·  ");
    $("widths").hidden = !graph.differential;
    $("process").replaceChildren();
    data.processes[graph.processIndex].forEach((pair) => row($("process"), pair));
    $("notes").textContent = graph.notes.join(" ");
    facts();
    legend();
    press();
    draw();
  }

  function press() {
    const pressed = (button, is) => button.setAttribute("aria-pressed", String(is));
    $("widths").querySelectorAll("button").forEach((button) => pressed(button, button.value === widths));
    $("orientation").querySelectorAll("button").forEach((button) => pressed(button, button.value === settings.orientation));
    pressed($("python"), pythonOnly);
    pressed($("fold"), settings.fold);
  }

  function togglePython() {
    if ($("python").hidden) return;
    pythonOnly = !pythonOnly;
    legend();
    press();
    draw();
  }

  const toggleFold = () => choose({ fold: !settings.fold });
  const turn = () => choose({ orientation: settings.orientation === "icicle" ? "flame" : "icicle" });

  function toggleKeys() {
    $("keys").hidden = !$("keys").hidden;
    $("help").setAttribute("aria-expanded", String(!$("keys").hidden));
  }

  function reset() {
    $("search").value = "";
    search("");
    goTo(null);
    current = null;
    tooltip.hide();
    if (chart) chart.resetZoom();
  }

  // One entry a graph, those of one process together: there may be many of either.
  function fillSelector() {
    const several = new Set(data.graphs.map((one) => one.process)).size > 1;
    const groups = new Map();
    data.graphs.forEach((one, i) => {
      let into = $("graphs");
      if (several) {
        into = groups.get(one.process);
        if (!into) {
          into = document.createElement("optgroup");
          into.label = one.process;
          groups.set(one.process, into);
          $("graphs").append(into);
        }
      }
      into.append(new Option(several ? one.title + " — " + one.process : one.title, String(i)));
    });
    $("choice").hidden = data.graphs.length < 2;
  }

  const KEYS = {
    p: togglePython, f: () => $("fold").hidden || toggleFold(), i: turn, n: () => nextMatch(1), N: () => nextMatch(-1), "?": toggleKeys,
  };

  function onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const on = document.activeElement;
    if (event.key === "Escape") { reset(); return; }
    if (on === $("search")) {
      if (event.key === "Enter") { search($("search").value); $("chart").focus(); nextMatch(event.shiftKey ? -1 : 1); }
      return;
    }
    if (on === $("graphs")) return;
    if (event.key === "/") {
      event.preventDefault();
      $("search").focus();
    } else if (on === $("chart") && event.key.startsWith("Arrow")) {
      event.preventDefault();
      goTo(neighbour(event.key));
    } else if (on === $("chart") && event.key === "Enter") {
      zoom();
    } else if (Object.hasOwn(KEYS, event.key)) {
      KEYS[event.key]();
    }
  }

  function start() {
    fillSelector();
    $("graphs").addEventListener("change", (event) => show(Number(event.target.value)));
    const label = document.createElement("span");
    label.textContent = "Width";
    $("widths").append(label);
    ["both", "before", "after"].forEach((value) => {
      const button = document.createElement("button");
      button.type = "button";
      button.value = button.textContent = value;
      button.addEventListener("click", () => { widths = value; press(); draw(); });
      $("widths").append(button);
    });
    let waiting;
    $("search").addEventListener("input", (event) => {
      clearTimeout(waiting);
      waiting = setTimeout(() => search(event.target.value), 120);
    });
    $("reset").addEventListener("click", () => chart && chart.resetZoom());
    $("python").addEventListener("click", togglePython);
    $("fold").addEventListener("click", toggleFold);
    $("help").addEventListener("click", toggleKeys);
    $("orientation").querySelectorAll("button").forEach((button) => {
      button.addEventListener("click", () => choose({ orientation: button.value }));
    });
    $("chart").addEventListener("mousemove", (event) => { if (!$("tip").hidden) follow(event); });
    $("chart").addEventListener("blur", () => { goTo(null); tooltip.hide(); });
    document.addEventListener("keydown", onKey);
    let resizing;
    dark.addEventListener("change", draw);
    window.addEventListener("resize", () => {
      clearTimeout(resizing);
      resizing = setTimeout(draw, 150);
    });
    if (data.graphs.length) show(0);
    else $("empty").hidden = false;
  }

  start();
})();
