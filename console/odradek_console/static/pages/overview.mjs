// The cluster in figures and charts, and its problems in sentences with links to their pages.
import { useEffect, useState } from "../vendor/hooks.mjs";
import { get, useLive } from "../api.mjs";
import { Chart } from "../chart.mjs";
import { bytes, count, duration, time, zoneName } from "../format.mjs";
import { PAGES } from "../routes.mjs";
import { Failure, Figure, Heading, Loading, Missing, Name, Sentences, Table, html } from "../ui.mjs";

const SPAN_MS = 15 * 60_000;
const there = (path) => (PAGES.some((row) => row.path === path) ? path : null);
const right = (label) => ({ label, align: "right" });

const Disks = ({ rows }) => html`<section>
  <h2>Disks</h2>
  <${Table} label="Disks" heads=${["Node", "Directory", ...["Partitions", "Size of logs", "Free", "Of"].map(right)]}>
    ${rows.map(
      (disk) => html`<tr>
        <td>${disk.node}</td>
        <td><${Name} text=${disk.path} /></td>
        <td class="right">${count(disk.partitions)}</td>
        <td class="right">${bytes(disk.size_bytes)}</td>
        <td class="right">${bytes(disk.usable_bytes)}</td>
        <td class="right">${bytes(disk.total_bytes)}</td>
      </tr>`,
    )}
  <//>
</section>`;

/** The samples of the last quarter of an hour: the broker's at first, and then each new sample. */
function useSamples(sample) {
  const [samples, setSamples] = useState([]);
  useEffect(() => {
    const stop = new AbortController();
    get("/throughput", {}, stop.signal).then(
      (past) => setSamples((now) => merged(past.samples, now)),
      () => {},
    );
    return () => stop.abort();
  }, []);
  useEffect(() => {
    if (sample) setSamples((old) => merged(old, [sample]));
  }, [sample?.time_ms]);
  return samples;
}

function merged(old, more) {
  const last = old.at(-1)?.time_ms ?? -1;
  const all = [...old, ...more.filter((each) => each.time_ms > last)];
  return all.filter((each) => each.time_ms > all.at(-1).time_ms - SPAN_MS);
}

// Samples that are further apart than this have a gap between them, for others are missing.
const GAP_MS = 16000;

/** Times and samples, with a gap where samples are missing. */
function withGaps(samples) {
  const times = [];
  const rows = [];
  for (const sample of samples) {
    const before = times.at(-1);
    if (before !== undefined && sample.time_ms - before > GAP_MS) {
      times.push(before + 1);
      rows.push(null);
    }
    times.push(sample.time_ms);
    rows.push(sample);
  }
  return { times, of: (name) => rows.map((row) => row?.[name] ?? null) };
}

const perSecond = (value) => (value === null || value === undefined ? "–" : `${bytes(Math.round(value))}/s`);
const rate = (value) => (value === null || value === undefined ? "–" : `${count(Math.round(value * 10) / 10)}/s`);
const milliseconds = (value) => (value === null || value === undefined ? "–" : `${Math.round(value * 100) / 100} ms`);

function Charts({ samples }) {
  const { times, of } = withGaps(samples);
  if (!samples.length) return html`<p class="faint">Charts begin with the second measurement, in a moment.</p>`;
  const seconds = times.map((ms) => ms / 1000);
  const chart = (label, line, ...series) =>
    html`<figure class="boxed">
      <figcaption>${label}</figcaption>
      <${Chart}
        label=${label}
        data=${[seconds, ...series.map(([name]) => of(name))]}
        lines=${series.map(([, text, color]) => ({ label: text, color, scale: "y", ...line }))}
      />
    </figure>`;
  return html`<section class="charts" aria-label="The last fifteen minutes">
    ${chart("Bytes", { text: perSecond, least: 1024, steps: "binary" }, ["in_bytes", "written", "--accent"], ["out_bytes", "read", "--warning"])}
    ${chart("Requests", { text: rate }, ["requests", "all", "--accent"], ["errors", "with errors", "--error"])}
    ${chart("Connections", { text: count, steps: "whole" }, ["connections", "open", "--accent"])}
    ${chart("Flush to disk", { text: milliseconds, spanGaps: true }, ["flush_ms", "mean", "--accent"])}
  </section>`;
}

function Broker({ broker, samples }) {
  const { counters } = broker;
  const latest = samples.at(-1);
  return html`
    <section class="figures" aria-label="The broker">
      <${Figure} label="Written" value=${perSecond(latest?.in_bytes)} />
      <${Figure} label="Read" value=${perSecond(latest?.out_bytes)} />
      <${Figure} label="Requests" value=${rate(latest?.requests)} to="/requests" note=${latest && `${rate(latest.errors)} with errors`} />
      <${Figure} label="Connections" value=${count(counters.connections)} to="/connections" />
      <${Figure} label="Flush to disk" value=${milliseconds(latest?.flush_ms)} note="mean" />
      <${Figure}
        label="Broker"
        value=${broker.version}
        note=${html`<span title=${`since ${time(broker.started_ms)} (${zoneName()})`}>up ${duration(broker.now_ms - broker.started_ms)}</span>`}
      />
    </section>
    <${Charts} samples=${samples} />
  `;
}

const Cluster = ({ data }) => html`<section class="figures" aria-label="The cluster">
  <${Figure} label="Nodes" value=${data.cluster ? count(data.cluster.nodes.length) : "–"} />
  <${Figure} label="Topics" value=${count(data.topics.topics)} to="/topics" note=${`and ${count(data.topics.internal_topics)} internal`} />
  <${Figure} label="Partitions" value=${count(data.topics.partitions)} />
  <${Figure}
    label="Groups"
    value=${data.groups ? count(Object.values(data.groups).reduce((sum, each) => sum + each, 0)) : "–"}
    to=${there("/groups")}
    note=${data.groups &&
    Object.entries(data.groups)
      .map(([state, number]) => `${count(number)} ${state}`)
      .join(", ")}
  />
  <${Figure} label="Open transactions" value=${count(data.open_transactions)} to=${there("/transactions")} />
</section>`;

export default function Overview() {
  const { data, error, at } = useLive("overview");
  const { data: broker, error: unknown } = useLive("throughput");
  const samples = useSamples(broker?.sample);
  return html`
    <${Heading} title="Overview" about=${data?.cluster && `Cluster ${data.cluster.cluster_id}`} />
    <${Failure} error=${error} at=${at} />
    ${data
      ? html`
          <section aria-label="What is wrong now">
            ${data.problems.length
              ? html`<${Sentences} rows=${data.problems} />`
              : !error && html`<p class="all-well"><span class="badge good">Good</span> Nothing is wrong that the brokers know of.</p>`}
          </section>
          ${broker && html`<${Broker} broker=${broker} samples=${samples} />`}
          <${Cluster} data=${data} />
          ${data.disks.length > 0 && html`<${Disks} rows=${data.disks} />`}
          <${Missing} reasons=${[...data.missing, ...(unknown && !error ? [`Throughput and connections: ${unknown.detail || unknown.message}.`] : [])]} />
        `
      : !error && html`<${Loading} />`}
  `;
}
