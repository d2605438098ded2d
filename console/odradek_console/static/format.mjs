// Numbers, sizes and times as text. Times are ISO, in the zone of the page.
import { zone } from "./place.mjs";

const whole = new Intl.NumberFormat("en");

/** A whole number with commas; a dash for an unknown one. */
export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** A size: `1.5 GiB`; a dash for an unknown one. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${size} B` : `${size.toFixed(1).replace(/\.0$/, "")} ${UNITS[unit]}`;
}

/** A duration in milliseconds: `350 ms`, `4.2 s`, `12 min`, `3 h 20 min`, `2 d 4 h`. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  const min = Math.floor(s / 60);
  if (min < 60) return `${min} min`;
  const h = Math.floor(min / 60);
  if (h < 24) return min % 60 ? `${h} h ${min % 60} min` : `${h} h`;
  return h % 24 ? `${Math.floor(h / 24)} d ${h % 24} h` : `${h / 24} d`;
}

const formats = new Map();

function formatOf(name) {
  if (!formats.has(name)) {
    formats.set(
      name,
      new Intl.DateTimeFormat("en-GB", {
        timeZone: name === "utc" ? "UTC" : name === "local" ? undefined : name,
        hourCycle: "h23",
        year: "numeric",
        month: "2-digit",
        day: "2-digit",
        hour: "2-digit",
        minute: "2-digit",
        second: "2-digit",
        fractionalSecondDigits: 3,
      }),
    );
  }
  return formats.get(name);
}

// The times that a Date can have.
const DATE_MS_MAX = 8.64e15;

/** A time in ms since 1970: `2026-11-26 21:44:40.123`, in the zone of the page. */
export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  if (!Number.isFinite(ms) || ms > DATE_MS_MAX) return `${ms} ms`;
  const part = {};
  for (const { type, value } of formatOf(zone.value).formatToParts(ms)) part[type] = value;
  return `${part.year}-${part.month}-${part.day} ${part.hour}:${part.minute}:${part.second}.${part.fractionalSecond}`;
}

/** The ms since 1970 of a time; one without a zone is in the zone of the page. Null for a text that is no time. */
export function moment(text) {
  const zoned = /[zZ]$|[+-]\d\d:?\d\d$/.test(text);
  const ms = Date.parse(zoned ? text : `${text.trim().replace(" ", "T")}Z`);
  let found = ms;
  // Twice, since the first guess may be on the other side of a change of the clocks.
  for (let turn = 0; turn < 2 && !zoned; turn += 1) found += ms - Date.parse(`${time(found).replace(" ", "T")}Z`);
  return Number.isNaN(found) ? null : found;
}

/** The IANA name of the page's zone, for the server. */
export const zoneId = (name = zone.value) =>
  name === "utc" ? "UTC" : name === "local" ? Intl.DateTimeFormat().resolvedOptions().timeZone : name;

/** The name of the page's zone, for heads of columns. */
export function zoneName(name = zone.value) {
  if (name === "utc") return "UTC";
  if (name === "local") return `${zoneId("local")}, local`;
  return name;
}

/** The text with control characters as escapes, so that they cannot hide or reorder characters. */
export function visible(text) {
  // C0 and C1 controls except tab and newline; marks of direction, zero width, line separators.
  return String(text).replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g,
    (each) => "\\u" + each.codePointAt(0).toString(16).padStart(4, "0"),
  );
}
