// A scan of records: bounded steps until a budget is spent, and the offsets that were read so far.
import { get } from "./api.mjs";
import { bytes, count } from "./format.mjs";

export const ROWS_KEPT = 1000;
const ROWS_OF_RUN = 500;

/** Budgets of one run, in records, bytes and seconds. */
export const BUDGETS = {
  small: { label: "10 s or 64 MiB", s: 10, bytes: 64 * 2 ** 20, records: 100_000 },
  medium: { label: "1 min or 512 MiB", s: 60, bytes: 512 * 2 ** 20, records: 1_000_000 },
  large: { label: "10 min or 8 GiB", s: 600, bytes: 8 * 2 ** 30, records: 20_000_000 },
};

const fresh = () => ({
  state: "reading",
  rows: [],
  dropped: 0,
  read: new Map(),
  records: 0,
  hits: 0,
  hidden: 0,
  markers: 0,
  missing: 0,
  size: 0,
  seconds: 0,
  offsets: 0,
  left: 0,
  held: [],
  notes: [],
  cursor: null,
  before: null,
  partitions: 0,
  all: 0,
  formats: undefined,
  error: null,
});

/** The same offsets in as few ranges as can be. */
export function merge(ranges) {
  const found = [];
  for (const [first, end] of ranges.sort((a, b) => a[0] - b[0])) {
    const last = found.at(-1);
    if (last && first <= last[1]) last[1] = Math.max(last[1], end);
    else found.push([first, end]);
  }
  return found;
}

const byTime = (a, b) => a.timestamp - b.timestamp || a.partition - b.partition || a.offset - b.offset;

function take(scan, answer, newestFirst) {
  const rows = [...scan.rows, ...answer.rows].sort(newestFirst ? (a, b) => byTime(b, a) : byTime);
  scan.dropped += Math.max(rows.length - ROWS_KEPT, 0);
  scan.rows = rows.slice(-ROWS_KEPT);
  for (const { partition, from, to } of answer.read) {
    scan.read.set(partition, merge([...(scan.read.get(partition) ?? []), [from, to]]));
  }
  for (const name of ["records", "hits", "hidden", "markers", "missing", "seconds"]) scan[name] += answer[name];
  scan.size += answer.size_bytes;
  scan.left = answer.left;
  scan.cursor = answer.cursor;
  scan.partitions = answer.partitions;
  scan.all = answer.all_partitions;
  scan.formats = answer.formats;
  scan.notes = [...scan.notes, ...answer.notes].slice(-20);
  // Only the first answer of a scope has these fields.
  if ("before" in answer) {
    scan.before = answer.before;
    scan.held = answer.held;
    scan.offsets += answer.offsets;
  }
}

/**
 * Run a scan until it is done, its budget is spent, or it is aborted. `show(scan)` is called after
 * each step, with a new object. `scan`: null begins a scan, another value continues it; a scan
 * whose scope is read continues with the records before the scope.
 */
export async function run(params, scan, budget, show, signal) {
  const newestFirst = params.order !== "oldest";
  scan = scan ? { ...scan, error: null } : fresh();
  const began = Date.now();
  const start = { rows: 0, records: scan.records, size: scan.size };
  let cursor = scan.cursor ?? scan.before;
  let before = !scan.cursor && scan.before ? "1" : undefined;
  const spent = () =>
    start.rows >= ROWS_OF_RUN ||
    Date.now() - began > budget.s * 1000 ||
    scan.size - start.size > budget.bytes ||
    scan.records - start.records > budget.records;
  scan.state = "reading";
  show({ ...scan });
  try {
    do {
      const answer = await get("/records", { ...params, cursor, before, rows: ROWS_OF_RUN - start.rows }, signal);
      if (signal.aborted) return;
      start.rows += answer.rows.length;
      take(scan, answer, newestFirst);
      cursor = scan.cursor;
      before = undefined;
      show({ ...scan });
    } while (cursor && !spent());
    scan.state = scan.cursor ? "spent" : "read";
  } catch (error) {
    if (signal.aborted) return;
    scan.state = "failed";
    scan.error = error;
  }
  show({ ...scan });
}

const many = (number, one, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;

const span = ([first, end]) => (end - first === 1 ? `offset ${count(first)}` : `offsets ${count(first)} to ${count(end - 1)}`);

/** The offsets, records and bytes that were read, in one sentence. */
export function statement(scan) {
  const parts = [...scan.read.entries()].sort((a, b) => a[0] - b[0]);
  const hits = many(scan.hits, "hit");
  if (!parts.length) return `Nothing was read: ${hits}.`;
  const where =
    parts.length === 1
      ? `${parts[0][1].map(span).join(", ")} of partition ${parts[0][0]}`
      : `${span([Math.min(...parts.map(([, r]) => r[0][0])), Math.max(...parts.map(([, r]) => r.at(-1)[1]))])} of ${many(parts.length, "partition")}`;
  const cost = `${many(scan.records, "record")}, ${bytes(scan.size)} in ${scan.seconds.toFixed(1)} s`;
  return `Read ${where} (${cost}): ${hits}.`;
}

/** The ranges of offsets that were read, by partition. */
export const ranges = (scan) =>
  [...scan.read.entries()]
    .sort((a, b) => a[0] - b[0])
    .map(([partition, found]) => `Partition ${partition}: ${found.map(span).join(", ")}`);

/** Offsets without a record, in words. */
export function gaps(scan) {
  const found = [];
  if (scan.markers) found.push(`${many(scan.markers, "offset")} with a marker that ends a transaction`);
  if (scan.hidden) found.push(`${many(scan.hidden, "record")} of aborted transactions left out`);
  if (scan.missing) found.push(`${many(scan.missing, "offset")} without a record (compacted away, or never used)`);
  return found.length ? `${found.join("; ")}.` : "";
}

/** The offsets that open transactions hold back, in words. */
export const heldWords = (scan) =>
  scan.held.map(
    ({ partition, from, to }) => `Not read, because an open transaction holds it back: ${span([from, to])} of partition ${partition}.`,
  );
