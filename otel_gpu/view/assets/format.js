// How are numbers, bytes and times written?
const SI = ["", "k", "M", "G", "T", "P"];
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function scaled(value, base, units) {
  let size = Math.abs(value);
  let i = 0;
  while (size >= base && i < units.length - 1) { size /= base; i += 1; }
  const digits = i === 0 && Number.isInteger(size) ? 0 : size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return [(value < 0 ? "−" : "") + size.toFixed(digits), units[i]];
}

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
export const count = (value) => (isNumber(value) ? value.toLocaleString("en", { maximumFractionDigits: 2 }) : "–");

export function short(value) {
  if (!isNumber(value)) return "–";
  if (Math.abs(value) < 1000) return value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0 });
  return scaled(value, 1000, SI).join("");
}

export const bytes = (value) => (isNumber(value) ? scaled(value, 1024, BINARY).join(" ") : "–");

export function seconds(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size >= 3600) return (value / 3600).toFixed(2) + " h";
  if (size >= 120) return (value / 60).toFixed(1) + " min";
  if (size >= 1) return value.toFixed(size >= 10 ? 1 : 2) + " s";
  if (size >= 1e-3) return (value * 1e3).toFixed(size >= 0.1 ? 0 : size >= 0.01 ? 1 : 2) + " ms";
  if (size >= 1e-6) return (value * 1e6).toFixed(size >= 1e-4 ? 0 : 1) + " µs";
  return (value * 1e9).toFixed(0) + " ns";
}

export const percent = (value) => (isNumber(value) ? (value * 100).toFixed(value < 0.1 ? 1 : 0) + " %" : "–");
export const clock = (unix) => new Date(unix * 1000).toLocaleTimeString("en-GB", { hour12: false });

export function quantity(value, unit) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (unit === "By") return bytes(value);
  if (unit === "By/s") return bytes(value) + "/s";
  if (unit === "s") return seconds(value);
  if (unit === "Hz") return short(value) + "Hz";
  if (unit === "W" || unit === "J") return short(value) + " " + unit;
  if (unit === "Cel") return count(value) + " °C";
  return Number.isInteger(value) ? value.toLocaleString("en") : short(value);
}

const DIRECTIONS = {
  MemcpyHostToDevice: "host → GPU", MemcpyDeviceToHost: "GPU → host", MemcpyDeviceToDevice: "within a GPU",
  MemcpyPeer: "GPU → GPU", MemcpyHostToHost: "host → host", MemcpyDefault: "by address",
};
export const direction = (kind) => DIRECTIONS[kind] || kind;
