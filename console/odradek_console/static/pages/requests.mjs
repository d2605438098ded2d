// Requests by API, with percentiles, of the last half minute or since the broker's start.
import { useLive } from "../api.mjs";
import { count, duration } from "../format.mjs";
import { change, param } from "../place.mjs";
import { Empty, Failure, Heading, Loading, Table, html } from "../ui.mjs";

const HEADS = [
  ["name", "API"],
  ["requests", "Requests"],
  ["per_s", "Per second"],
  ["errors", "Errors"],
  ["codes", "Codes"],
  ["mean_ms", "Mean"],
  ["p50_ms", "p50"],
  ["p95_ms", "p95"],
  ["p99_ms", "p99"],
];

const ms = (value) => (value === null ? "–" : `${value >= 100 ? Math.round(value) : value.toPrecision(3)} ms`);

function ordered(rows, sort) {
  const key = sort.replace("-", "");
  const down = sort.startsWith("-");
  const value = (row) => (key === "name" ? row.name : (row.of[key] ?? -1));
  const sorted = [...rows].sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
  return down ? sorted.reverse() : sorted;
}

const Sort = ({ name, label, sort }) => {
  const next = sort === `-${name}` ? name : `-${name}`;
  const mark = sort === name ? " ▲" : sort === `-${name}` ? " ▼" : "";
  return html`<button class="sort" onClick=${() => change({ sort: next })}>${label}${mark}</button>`;
};

export default function Requests() {
  const { data, error, at } = useLive("requests");
  const whole = param("since") === "start";
  const sort = param("sort") || "-requests";
  const rows = (data?.rows ?? [])
    .map((row) => ({ name: row.name, of: whole ? row.total : row.recent }))
    .filter((row) => row.of?.requests);
  return html`
    <${Heading}
      title="Requests"
      about=${data &&
      (whole
        ? `since the broker's start`
        : data.recent_ms
          ? `of the last ${duration(data.recent_ms)}`
          : "measuring, for a moment")}
    >
      <label class="choice">
        <span>Show</span>
        <select value=${whole ? "start" : ""} onChange=${({ target }) => change({ since: target.value })}>
          <option value="">the last half minute</option>
          <option value="start">all since the start</option>
        </select>
      </label>
    <//>
    <${Failure} error=${error} at=${at} />
    ${!data && !error && html`<${Loading} />`}
    ${data && !rows.length && html`<${Empty} title="No requests in this time" />`}
    ${rows.length > 0 &&
    html`<${Table}
      label="Requests by API"
      heads=${HEADS.map(([name, label]) => ({
        label: name === "codes" ? label : html`<${Sort} name=${name} label=${label} sort=${sort} />`,
        align: name === "name" || name === "codes" ? "" : "right",
      }))}
    >
      ${ordered(rows, sort).map(
        ({ name, of }) => html`<tr key=${name}>
          <td>${name}</td>
          <td class="right">${count(of.requests)}</td>
          <td class="right">${of.per_s ?? "–"}</td>
          <td class="right">${count(of.errors)}</td>
          <td>${(of.codes ?? []).map(([code, number, step]) => html`<span class=${step ? "faint" : ""}>${code} ${count(number)}</span> `)}</td>
          <td class="right">${ms(of.mean_ms)}</td>
          <td class="right">${ms(of.p50_ms)}</td>
          <td class="right">${ms(of.p95_ms)}</td>
          <td class="right">${ms(of.p99_ms)}</td>
        </tr>`,
      )}
    <//>
    <p class="faint">Codes in grey are steps of the protocol, such as REBALANCE_IN_PROGRESS, and do not count as errors. Percentiles are estimated from a histogram. A Fetch waits for records, so its times are long where little is written.</p>`}
  `;
}
