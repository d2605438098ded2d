// The list of groups of all kinds: pages from the server, sorted and filtered there.
import { useEffect, useState } from "../vendor/hooks.mjs";
import { get } from "../api.mjs";
import { count, duration, visible } from "../format.mjs";
import { change, go, param } from "../place.mjs";
import { Badge, Empty, Heading, Link, Missing, Name, NoneYet, Search, VirtualTable, html } from "../ui.mjs";

const REFRESH_MS = 5000;
const LEVELS = { Stable: "good", Empty: "none", Dead: "error" };
const KINDS = { classic: "classic", consumer: "consumer (KIP-848)", share: "share", streams: "streams" };

const VERDICTS = { OK: "good", WARNING: "warning", STALLED: "error", STOPPED: "error" };

/** The broker's verdict about a group, with the sentence for it. */
export const Verdict = ({ verdict }) =>
  verdict && html`<span title=${visible(verdict.text)}><${Badge} level=${VERDICTS[verdict.verdict] ?? "none"}>${visible(verdict.verdict)}<//></span>`;

/** The state of a group; states of a rebalance are warnings. */
export const GroupState = ({ state }) =>
  state ? html`<${Badge} level=${LEVELS[state] ?? "warning"}>${visible(state)}<//>` : html`<span class="faint">unknown</span>`;

const OLDEST = "The age of the oldest record that the group has not read";

/** The age of the oldest unread record, if anything is known of it. */
const LagTime = ({ row }) => {
  const unknown = row.lag_ms === null || (row.lag_at_least && row.lag_ms < 1000);
  if (unknown) return html`<span class="faint" title=${`${OLDEST}: unknown`}>unknown</span>`;
  return html`<span title=${OLDEST}>${row.lag_at_least ? "≥ " : ""}${row.lag_ms ? duration(row.lag_ms) : "0 s"}</span>`;
};

const COLUMNS = [
  { key: "group", label: "Group", sort: true, narrow: "12rem", cell: (row) => html`<${Link} to="/group" params=${{ id: row.group }}><${Name} text=${row.group} /><//>` },
  { key: "state", label: "State", sort: true, width: "11.5rem", cell: (row) => html`<${GroupState} state=${row.state} />` },
  { key: "type", label: "Kind", sort: true, width: "6.5rem", cell: (row) => visible(row.type) },
  { key: "members", label: "Members", sort: true, align: "right", width: "6rem", cell: (row) => count(row.members) },
  { key: "topics", label: "Topics", sort: true, align: "right", width: "5rem", cell: (row) => count(row.topics) },
  { key: "lag", label: "Lag, records", sort: true, align: "right", width: "8rem", narrow: "8rem", cell: (row) => row.missing ? html`<span class="faint" title=${visible(row.missing)}>no answer</span>` : count(row.lag) },
  { key: "lag_ms", label: "Lag, time", align: "right", width: "6.5rem", cell: (row) => html`<${LagTime} row=${row} />` },
  { key: "verdict", label: "Verdict", width: "7rem", narrow: "7rem", cell: (row) => html`<${Verdict} verdict=${row.verdict} />` },
  { key: "coordinator", label: "Coordinator", sort: true, align: "right", width: "7rem", cell: (row) => row.coordinator },
];

const Choice = ({ name, label, options }) => html`<label class="choice">
  <span>${label}</span>
  <select value=${param(name)} onChange=${({ target }) => change({ [name]: target.value })}>
    <option value="">all</option>
    ${options.map(([value, text]) => html`<option value=${value}>${text}</option>`)}
  </select>
</label>`;

/** Options with the number of groups of each; the chosen option stays even without any group. */
const options = (counts, chosen, names = {}) =>
  Object.entries({ ...(chosen ? { [chosen]: 0 } : {}), ...counts }).map(([value, number]) => [
    value,
    `${visible(names[value] ?? value)} (${count(number)})`,
  ]);

export default function Groups() {
  const wanted = { filter: param("filter"), state: param("state"), type: param("type"), lag_min: param("lag_min") || "0" };
  const [turn, setTurn] = useState(0);
  const [about, setAbout] = useState({ states: {}, types: {}, known: null, listed: 0 });
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setTurn((old) => old + 1), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const load = async (offset, limit, sort, signal) => {
    const page = await get("/groups", { offset, limit, sort, ...wanted }, signal);
    setAbout(page);
    return page;
  };
  const filtered = Object.entries(wanted).some(([name, value]) => value && !(name === "lag_min" && value === "0"));
  const late = about.known !== null && about.known < about.listed;
  return html`
    <${Heading} title="Groups">
      <${Search} label="Search groups" />
      <${Choice} name="state" label="State" options=${options(about.states, wanted.state)} />
      <${Choice} name="type" label="Kind" options=${options(about.types, wanted.type, KINDS)} />
      <${Choice} name="lag_min" label="Lag" options=${[["1", "1 or more"], ["1000", "1,000 or more"], ["1000000", "1,000,000 or more"]]} />
    <//>
    ${late &&
    html`<${Missing} reasons=${[`The lag of ${count(about.known)} of ${count(about.listed)} groups is known so far; the others are looked at one after the other.`]} />`}
    <${VirtualTable}
      label="Groups"
      columns=${COLUMNS}
      load=${load}
      reset=${JSON.stringify(wanted)}
      refresh=${turn}
      sort="group"
      rowKey=${(row) => row.group}
      open=${(row) => go("/group", { id: row.group })}
      empty=${filtered
        ? html`<${Empty} title="No group is like this" />`
        : html`<${NoneYet} title="No groups to show">Read as one: <code>odradek consume TOPIC --group NAME</code><//>`}
    />
  `;
}
