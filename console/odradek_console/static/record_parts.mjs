// Shared parts of the pages about records: tabs of a topic, fields and choices that the address
// keeps, and the panel of a record.
import { useEffect, useState } from "./vendor/hooks.mjs";
import { query, useAsked } from "./api.mjs";
import { bytes, count, time, visible, zoneId, zoneName } from "./format.mjs";
import { change, param, place } from "./place.mjs";
import { Badge, Failure, Heading, Link, Loading, Name, Table, Time, TimeHead, html } from "./ui.mjs";

const TABS = [
  ["", "/topic", "Partitions"],
  ["records", "/topic/records", "Records"],
  ["tail", "/topic/tail", "Live tail"],
  ["settings", "/topic", "Settings"],
  ["groups", "/topic", "Groups"],
];

/** The head of all pages of one topic. */
export function TopicHead({ name, tab, children }) {
  return html`
    <${Heading} title=${name}>${children}<//>
    <nav class="tabs" aria-label="Parts of the topic">
      ${TABS.map(
        ([key, path, label]) => html`<${Link}
          to=${path}
          params=${{ name, tab: path === "/topic" ? key : "" }}
          aria-current=${tab === key ? "page" : null}
          >${label}<//
        >`,
      )}
    </nav>
  `;
}

/** The parameters of the address that choose records, in the server's form. */
export function chosen() {
  const { params } = place.value;
  const names = ["partitions", "isolation", "filter", "key_format", "value_format"];
  // Only times without a zone depend on it, and other views stay as they are when it changes.
  const timed = param("scope") === "time" || param("filter").includes("time");
  return { topic: params.get("name") ?? "", ...given(names), ...(timed && { zone: zoneId() }) };
}

export function given(names) {
  const found = {};
  for (const name of names) if (param(name)) found[name] = param(name);
  return found;
}

const LONGEST_IN_LIST = 400;
const LONGEST_HEADER = 160;

/** The beginning of a key, value or header in one line. */
export function Field({ field, longest = LONGEST_IN_LIST }) {
  if (!field) return null;
  if (field.bytes === null) return html`<span class="faint">null</span>`;
  if (field.bytes === 0) return html`<span class="faint">empty</span>`;
  const text = visible(field.text.slice(0, longest).replace(/[ \t\r\n]+/g, " "));
  const more = field.cut || field.text.length > longest;
  return html`<span class="mono">${text}${more && "…"}</span>`;
}

const MARKERS = { commit: "Commit marker", abort: "Abort marker", control: "Control record" };

/** A control record in words. */
export const markerWords = (row) =>
  `${MARKERS[row.marker]} of producer ${row.producer_id}, epoch ${row.producer_epoch}`;

const keyOf = (row) => `${row.partition}:${row.offset}`;

const DATE_CHARACTERS = 10;

/** The day of all records of a list, or "" if they are of several days. */
function dayOf(rows) {
  let [first, last] = [Infinity, -Infinity];
  for (const { timestamp } of rows) [first, last] = [Math.min(first, timestamp), Math.max(last, timestamp)];
  const day = time(first).slice(0, DATE_CHARACTERS);
  return rows.length && first >= 0 && day === time(last).slice(0, DATE_CHARACTERS) ? day : "";
}

/** The columns of a list of records: the day once in the head, and headers only if there are some. */
export function recordColumns(rows) {
  const day = dayOf(rows);
  return columnsFor(day, rows.some(({ headers }) => headers?.length));
}

const columnsFor = (day, headers) => [
  {
    key: "offset",
    label: "Offset",
    width: "6.5rem",
    narrow: "5.5rem",
    align: "right",
    cell: (row) => html`<button
      class="link"
      aria-label=${`Offset ${row.offset} of partition ${row.partition}`}
      aria-pressed=${param("record") === keyOf(row)}
      onClick=${() => change({ record: keyOf(row) })}
    >
      ${count(row.offset)}
    </button>`,
  },
  { key: "partition", label: "Partition", width: "5.5rem", align: "right", cell: (row) => row.partition },
  {
    key: "timestamp",
    label: day ? html`${day} <span class="faint">(${zoneName()})</span>` : html`<${TimeHead} label="Time" />`,
    width: day ? "11rem" : "15.5rem",
    cell: (row) => html`<${Time} ms=${row.timestamp} short=${day !== ""} />`,
  },
  {
    key: "key",
    label: "Key",
    width: "11rem",
    narrow: "8rem",
    cell: (row) =>
      row.kind === "marker" ? html`<${Badge}>${row.marker}<//>` : html`<${Field} field=${row.key} />`,
  },
  {
    key: "value",
    label: "Value",
    narrow: "13rem",
    cell: (row) =>
      row.kind === "marker"
        ? html`<span class="faint">${markerWords(row)}</span>`
        : html`<${Field} field=${row.value} />`,
  },
  { key: "size", label: "Size", width: "5.5rem", align: "right", cell: (row) => bytes(row.value?.bytes) },
  headers && {
    key: "headers",
    label: "Headers",
    width: "12rem",
    cell: (row) =>
      (row.headers ?? []).map(
        ([name, field], index) =>
          html`${index > 0 && ", "}<span class="mono">${visible(name.slice(0, 60))}=</span><${Field} field=${field} />`,
      ),
  },
].filter(Boolean);

export const recordKey = (row) => (row.kind === "marker" ? `m${keyOf(row)}` : keyOf(row));

/** A choice among texts, kept in the parameter `name` of the address; the first is the default. */
export function Choice({ name, label, options }) {
  const [first] = options[0];
  return html`<label class="choice">
    <span>${label}</span>
    <select value=${param(name) || first} onChange=${({ target }) => change({ [name]: target.value === first ? "" : target.value })}>
      ${options.map(([value, text]) => html`<option value=${value}>${text}</option>`)}
    </select>
  </label>`;
}

/** A field for the parameter `name` of the address, which changes on leaving the field or Enter. */
export function TextChoice({ name, label, placeholder, width = "8rem", search = false }) {
  const value = param(name);
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const take = () => text !== value && change({ [name]: text });
  return html`<label class="choice">
    <span>${label}</span>
    <input
      type=${search ? "search" : "text"}
      data-search=${search ? "" : null}
      spellcheck="false"
      autocomplete="off"
      style=${{ width }}
      value=${text}
      placeholder=${placeholder}
      onInput=${({ target }) => setText(target.value)}
      onBlur=${take}
      onKeyDown=${(event) => event.key === "Enter" && take()}
    />
  </label>`;
}

/** The formats of keys and values, kept in the address. */
export function FormatChoices({ formats }) {
  if (formats.length < 2) return html`<span class="choice">Hidden values: their type and length</span>`;
  const options = formats.map((name) => [name, name]);
  return html`
    <${Choice} name="key_format" label="Keys as" options=${options} />
    <${Choice} name="value_format" label="Values as" options=${options} />
  `;
}

export const Isolation = () => html`<${Choice}
  name="isolation"
  label="Transactions"
  options=${[
    ["read_uncommitted", "all records"],
    ["read_committed", "committed only"],
  ]}
/>`;

/** Rare choices: open if there is room, or if one of the choices is set. */
export function More({ names, children }) {
  const open = matchMedia("(min-width: 900px)").matches || names.some((name) => param(name));
  return html`<details class="more" open=${open}>
    <summary>More choices</summary>
    <div class="controls">${children}</div>
  </details>`;
}

/** The rules of filters, in a few lines. */
export const FilterHelp = () => html`<details class="help">
  <summary>How to filter</summary>
  <ul>
    <li><code>order 17</code> – both words are in the key, the value or a header; <code>"a b"</code> with the space</li>
    <li><code>key=k7</code>, <code>value~text</code>, <code>header.kind=order</code>, <code>header.trace</code> (is there)</li>
    <li><code>$.customer.city=Prague</code>, <code>$.items[*].price>100</code> – paths into JSON</li>
    <li><code>time>=2026-05-01T12:00</code> (${zoneName()}), <code>time&lt;2026-05-01T12:00Z</code> (UTC)</li>
    <li><code>partition=3</code>, <code>offset>=1000</code></li>
    <li><code>!key=k7</code> – not; several conditions must all hold; <code>~</code> contains, <code>=</code> is equal</li>
  </ul>
</details>`;

// --- The panel of one record ----------------------------------------------------------------------

const FATES = {
  committed: ["good", "committed"],
  aborted: ["error", "aborted"],
  open: ["warning", "not ended yet"],
};

/** The panel of the record in the parameter `record` of the address, `PARTITION:OFFSET`. */
export function RecordPanel({ topic, rows }) {
  const name = param("record");
  const [partition, offset] = name.split(":");
  useEffect(() => {
    const press = (event) => event.key === "Escape" && change({ record: "" });
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  const at = rows.findIndex((row) => keyOf(row) === name);
  const step = (index) => rows[index] && change({ record: keyOf(rows[index]) });
  return html`<aside class="panel" aria-label="Record">
    <header>
      <h2>Partition ${partition}, offset ${count(Number(offset))}</h2>
      <div class="actions">
        <button disabled=${at <= 0} onClick=${() => step(at - 1)} aria-label="Record above">↑</button>
        <button disabled=${at < 0 || at >= rows.length - 1} onClick=${() => step(at + 1)} aria-label="Record below">↓</button>
        <button onClick=${() => change({ record: "" })}>Close</button>
      </div>
    </header>
    <${RecordDetails} key=${name} topic=${topic} partition=${partition} offset=${offset} />
  </aside>`;
}

const LONGER = 16;

function RecordDetails({ topic, partition, offset }) {
  const [characters, setCharacters] = useState(65536);
  const asked = { topic, partition, offset, characters, ...given(["key_format", "value_format"]) };
  const { data, error } = useAsked("/record", asked);
  if (error) return html`<${Failure} error=${error} />`;
  if (!data) return html`<${Loading} />`;
  if (data.kind === "marker") {
    return html`<p>${markerWords(data)}, written at <${Time} ms=${data.timestamp} />. It is no record: it ends the
      transaction of the producer in this partition.</p>`;
  }
  const place = { topic, partition, offset };
  const longer = characters < data.most_characters && (() => setCharacters(Math.min(characters * LONGER, data.most_characters)));
  return html`
    <${Content} title="Key" part="key" field=${data.key} place=${place} formats=${data.formats} longer=${longer} />
    <${Content} title="Value" part="value" field=${data.value} place=${place} formats=${data.formats} longer=${longer} />
    <${Headers} headers=${data.headers} total=${data.header_count} place=${place} />
    <${Facts} data=${data} />
  `;
}

const COLOURED_CHARACTERS_MAX = 200_000;
const JSON_PART = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d[\d.eE+-]*/g;

/** JSON with names, texts and other values in their colours. A very long text stays plain. */
function coloured(text) {
  if (text.length > COLOURED_CHARACTERS_MAX) return visible(text);
  const parts = [];
  let end = 0;
  for (const { 0: whole, 1: quoted, 2: colon, index } of text.matchAll(JSON_PART)) {
    parts.push(visible(text.slice(end, index)));
    const kind = colon ? "json-name" : quoted ? "json-text" : "json-value";
    parts.push(html`<span class=${kind}>${visible(quoted ?? whole)}</span>`, colon ?? "");
    end = index + whole.length;
  }
  return [...parts, visible(text.slice(end))];
}

const COPIED_MS = 1500;

/** A button that copies a text. Browsers offer this only on this machine and over HTTPS. */
function Copy({ text }) {
  const [done, setDone] = useState(false);
  if (!navigator.clipboard) return null;
  const copy = () =>
    navigator.clipboard.writeText(text).then(() => {
      setDone(true);
      setTimeout(() => setDone(false), COPIED_MS);
    });
  return html`<button onClick=${copy}>${done ? "Copied" : "Copy"}</button>`;
}

function Content({ title, part, field, place, formats, longer }) {
  const isNull = field.bytes === null;
  return html`<section class="content">
    <h3>${title} <span class="faint">${isNull ? "" : `${bytes(field.bytes)}, ${field.format}`}</span></h3>
    ${isNull
      ? html`<p class="faint">null</p>`
      : html`
          <div class="actions">
            ${formats.length > 1 && html`<${Choice} name=${`${part}_format`} label="Shown as" options=${formats.map((each) => [each, each])} />`}
            <${Copy} text=${field.text} />
            <a href=${`/api/value${query({ ...place, part })}`} download>Save as a file</a>
          </div>
          ${field.bytes === 0
            ? html`<p class="faint">empty</p>`
            : html`<pre class="data" tabindex="0" aria-label=${title}>${field.format.endsWith("json") ? coloured(field.text) : visible(field.text)}</pre>`}
          ${field.cut &&
          html`<p class="faint">
            The beginning is shown. ${longer ? html`<button onClick=${longer}>Show more</button>` : "The file has the rest."}
          </p>`}
          ${field.attempts.length > 0 &&
          html`<details>
            <summary>${count(field.attempts.length)} ${field.attempts.length === 1 ? "format" : "formats"} did not fit</summary>
            <dl class="facts">
              ${field.attempts.map(({ format, failure }) => html`<dt>${format}</dt><dd>${visible(failure)}</dd>`)}
            </dl>
          </details>`}
        `}
  </section>`;
}

function Headers({ headers, total, place }) {
  if (!total) return html`<p class="faint">No headers.</p>`;
  return html`<section>
    <h3>Headers <span class="faint">${count(total)}</span></h3>
    <${Table} label="Headers" heads=${["Name", "Value", { label: "Size", align: "right" }]}>
      ${headers.map(
        ([name, field], index) => html`<tr>
          <td><${Name} text=${name} /></td>
          <td class="header-value">
            <${Field} field=${field} longest=${LONGEST_HEADER} />
            ${(field.cut || field.text.length > LONGEST_HEADER) &&
            html` <a href=${`/api/value${query({ ...place, part: "header", header: index })}`} download>file</a>`}
          </td>
          <td class="right">${bytes(field.bytes)}</td>
        </tr>`,
      )}
    <//>
    ${headers.length < total && html`<p class="faint">The first ${count(headers.length)} are shown.</p>`}
  </section>`;
}

function Facts({ data }) {
  const { batch } = data;
  const fate = FATES[data.transaction];
  return html`<section>
    <h3>Record and batch</h3>
    <dl class="facts">
      <dt>Time</dt>
      <dd><${Time} ms=${data.timestamp} />, ${data.timestamp_type === "create" ? "set by the producer" : "set by the broker"}</dd>
      <dt>Transaction</dt>
      <dd>${fate ? html`<${Badge} level=${fate[0]}>${fate[1]}<//>` : "none"}</dd>
      <dt>Producer</dt>
      <dd>
        ${batch.producer_id === null
          ? "without idempotence"
          : html`<${Link}
                to="/producer"
                params=${{ id: batch.producer_id, topic: data.topic, partition: data.partition }}
                >${batch.producer_id}<//
              >, epoch ${batch.producer_epoch}, sequence ${data.sequence ?? "none"}`}
      </dd>
      <dt>Batch</dt>
      <dd>
        offsets ${count(batch.base_offset)} to ${count(batch.last_offset)}, ${count(batch.records)}
        ${batch.records === 1 ? " record" : " records"}, ${bytes(batch.size_bytes)}, compression ${batch.compression}
      </dd>
      <dt>Leader epoch</dt>
      <dd>${batch.leader_epoch}</dd>
    </dl>
  </section>`;
}
