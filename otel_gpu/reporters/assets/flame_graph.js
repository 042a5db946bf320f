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
  let flip = () => {};
  let graph, root, chart, term = "", matched = null, inverted = null, widths = "both";

  function scaled(value, base, units) {
    let i = 0;
    while (Math.abs(value) >= base && i < units.length - 1) { value /= base; i += 1; }
    return (i === 0 ? value.toLocaleString("en") : value.toPrecision(value >= 100 ? 4 : 3)) + " " + units[i];
  }

  function duration(ns) {
    const size = Math.abs(ns);
    if (size >= 3600e9) return (ns / 3600e9).toFixed(2) + " h";
    if (size >= 120e9) return (ns / 60e9).toFixed(1) + " min";
    return scaled(ns, 1000, ["ns", "µs", "ms", "s"]);
  }

  function amount(value) {
    if (graph.unit === "bytes") return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
    if (graph.unit === "nanoseconds") return duration(value);
    const count = value.toLocaleString("en");
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

  function plant(columns) {
    const nodes = columns.parent.map((parent, i) => ({
      name: data.strings[columns.name[i]],
      kind: data.kinds[columns.kind[i]],
      place: data.strings[columns.place[i]],
      values: columns.values.map((column) => column[i]),
      lines: columns.lines[i] || [],
      children: [],
    }));
    nodes.forEach((node, i) => {
      node.value = width(node.values);
      if (i > 0) nodes[columns.parent[i]].children.push(node);
    });
    return nodes[0];
  }

  function depth(parents) {
    const depths = [0];
    let deepest = 0;
    for (let i = 1; i < parents.length; i += 1) {
      depths[i] = depths[parents[i]] + 1;
      deepest = Math.max(deepest, depths[i]);
    }
    return deepest;
  }

  function hash(text) {
    let h = 2166136261;
    for (let i = 0; i < text.length; i += 1) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
    return (h >>> 0) / 4294967296;
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
    if (!node.parent) return "hsl(220 14% 84%)";
    const kind = KINDS[d.kind] || KINDS.marker;
    if (dimmed) return "hsl(" + kind.hue + " 12% " + dim + "%)";
    const spread = hash(d.name) - 0.5;
    return "hsl(" + Math.round(kind.hue + 14 * spread) + " " + kind.saturation + "% " + Math.round(kind.lightness + 9 * spread) + "%)";
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
    place.textContent = [kind, d.place && d.place + one].filter(Boolean).join(" · ");
    const table = document.createElement("table");
    const self = (column) => d.values[column] - d.children.reduce((sum, child) => sum + child.values[column], 0);
    if (graph.differential) {
      const [before, after] = d.values;
      const grown = before ? signed(after - before, (v) => share(v, before)) : "new";
      row(table, ["before", amount(before), share(before, graph.totals[0]), exact(before)]);
      row(table, ["after", amount(after), share(after, graph.totals[1]), exact(after)]);
      row(table, ["change", signed(after - before, amount), grown, exact(after - before)]);
    } else {
      row(table, ["total", amount(d.values[0]), share(d.values[0], graph.totals[0]), exact(d.values[0])]);
      row(table, ["itself", amount(self(0)), share(self(0), graph.totals[0]), exact(self(0))]);
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
      fact("Before", amount(graph.totals[0]), exact(graph.totals[0]));
      fact("After", amount(graph.totals[1]), exact(graph.totals[1]));
      fact("Change", signed(graph.totals[1] - graph.totals[0], amount));
    } else {
      fact("Total", amount(graph.totals[0]), exact(graph.totals[0]));
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
    Object.keys(KINDS).filter((kind) => used.has(kind)).forEach((kind) => {
      entry(KINDS[kind].name, "hsl(" + KINDS[kind].hue + " " + KINDS[kind].saturation + "% " + KINDS[kind].lightness + "%)");
    });
  }

  function draw() {
    tooltip.hide();
    root = plant(graph.columns);
    const quiet = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    const host = $("chart");
    host.replaceChildren();
    $("empty").hidden = root.value > 0;
    if (!root.value) return;
    const height = (depth(graph.columns.parent) + 1) * ROW_HEIGHT;
    // Deep stacks hang from the top, so that their roots are in sight; until a reader says otherwise.
    const hangs = inverted === null ? height > window.innerHeight - host.getBoundingClientRect().top : inverted;
    flip = () => { inverted = !hangs; draw(); };
    chart = flamegraph.chart()
      .width(host.clientWidth)
      .cellHeight(ROW_HEIGHT)
      .height(height)
      .minFrameSize(MIN_FRAME_PX)
      .transitionDuration(quiet ? 0 : 200)
      .inverted(hangs)
      .sort((a, b) => b.data.value - a.data.value || (a.data.name < b.data.name ? -1 : 1))
      .selfValue(false)
      .setColorMapper(color)
      .setSearchMatch((node) => matched !== null && matched.test(node.data.name + " " + node.data.place))
      .setSearchHandler(() => {})
      .setDetailsHandler(() => {})
      .tooltip(tooltip);
    flamegraph.select(host).datum(root).call(chart);
    if (term) search(term);
  }

  function escaped(text) {
    return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  }

  function found(node) {
    if (matched.test(node.name + " " + node.place)) return node.value;
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
    Array.from($("widths").querySelectorAll("button")).forEach((button) => {
      button.setAttribute("aria-pressed", String(button.value === widths));
    });
  }

  function start() {
    data.graphs.forEach((one, i) => $("graphs").add(new Option(one.title + " — " + one.process, String(i))));
    $("graphs").hidden = data.graphs.length < 2;
    $("graphs").addEventListener("change", (event) => show(Number(event.target.value)));
    $("widths").append("Width:");
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
    $("invert").addEventListener("click", () => flip());
    $("chart").addEventListener("mousemove", (event) => { if (!$("tip").hidden) follow(event); });
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && document.activeElement !== $("search")) {
        event.preventDefault();
        $("search").focus();
      } else if (event.key === "Escape") {
        $("search").value = "";
        search("");
        if (chart) chart.resetZoom();
      }
    });
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
