// A group, live: members, assignment as a picture, lag, events.
import { useEffect, useState } from "../vendor/hooks.mjs";
import { get, useLive } from "../api.mjs";
import { Assignment, Swatch } from "../assignment.mjs";
import { Chart } from "../chart.mjs";
import { Events, States, TimelineLink } from "../events.mjs";
import { count, duration, visible } from "../format.mjs";
import { param } from "../place.mjs";
import { Empty, Failure, Figure, Heading, Link, Loading, Missing, Name, Table, VirtualTable, html } from "../ui.mjs";
import { Choice } from "../record_parts.mjs";
import { GroupState, Verdict } from "./groups.mjs";

const MEMBERS_SHOWN = 300;
const POINTS_MAX = 2500;
const SPANS = [
  ["", "all that is kept"],
  ["900", "15 min"],
  ["7200", "2 h"],
  ["86400", "1 day"],
];
const right = (label) => ({ label, align: "right" });
const known = (value) => value !== null && value !== undefined;

const LINES = [
  { label: "Records", scale: "records", color: "--accent", steps: "whole", text: (value) => count(Math.round(value)) },
  { label: "Age of the oldest", scale: "seconds", color: "--warning", dash: [6, 4], text: (value) => duration(value * 1000) },
];

/** The lag that the broker has kept, and then what the console has watched. */
function LagChart({ group, point }) {
  const [points, setPoints] = useState([]);
  const [gaps, setGaps] = useState({ gap_ms: 0, kept_gap_ms: 0 });
  useEffect(() => {
    const stop = new AbortController();
    get("/group/lag", { id: group }, stop.signal).then(
      (found) => {
        setGaps(found);
        setPoints((old) => merged(found.points, old));
      },
      () => {},
    );
    return () => stop.abort();
  }, [group]);
  useEffect(() => {
    if (point) setPoints((old) => merged(old, [point]));
  }, [point]);
  if (points.length < 2) return html`<p class="loading">The line begins with the second point.</p>`;
  // The line has a gap where nobody watched the group. Points of the broker have no age.
  const gapBefore = ([at, , age], [before, , ageBefore]) =>
    at - before > (age === null || ageBefore === null ? gaps.kept_gap_ms : gaps.gap_ms);
  const begin = param("span") ? points.at(-1)[0] - 1000 * Number(param("span")) : 0;
  const drawn = points.filter(([at]) => at >= begin).flatMap((point, number, kept) =>
    number && gapBefore(point, kept[number - 1]) ? [[kept[number - 1][0] + 1, null, null], point] : [point],
  );
  const data = [
    drawn.map(([at]) => at / 1000),
    drawn.map(([, records]) => records),
    drawn.map(([, , age]) => (age === null ? null : age / 1000)),
  ];
  return html`<${Chart} label="Lag over time, in records and as the age of the oldest record that is not read" data=${data} lines=${LINES} />`;
}

function merged(old, more) {
  const last = old.length ? old.at(-1)[0] : -1;
  return [...old, ...more.filter(([at]) => at > last)].slice(-POINTS_MAX);
}

function Members({ data, picked, pick }) {
  if (!data.members_total) {
    return html`<${Empty} title="The group has no members">
      ${data.state === "Empty" ? "Its positions stay until they expire or are deleted." : null}
    <//>`;
  }
  const streams = Boolean(data.streams);
  const some = (name) => data.members.some((member) => known(member[name]) && member[name] !== "");
  const columns = [
    ["Client id", (member) => html`<${Name} text=${member.client_id} />`],
    ["Host", (member) => html`<${Name} text=${member.host} />`],
    some("instance_id") && ["Static id", (member) => html`<${Name} text=${member.instance_id ?? "–"} />`],
    some("process_id") && ["Process", (member) => html`<${Name} text=${member.process_id} />`],
    some("epoch") && [right("Epoch"), (member) => count(member.epoch), "right"],
    [right(streams ? "Tasks" : "Partitions"), (member) => count(member.partitions), "right"],
    streams && [right("Standbys"), (member) => count(member.standby), "right"],
    streams && [right("Warm-ups"), (member) => count(member.warmup), "right"],
    some("gives") && [right("To give"), (member) => count(member.gives), "right"],
    some("gets") && [right("To get"), (member) => count(member.gets), "right"],
    !streams && ["Subscribed to", (member) => html`<${Name} text=${member.topics.join(", ") || "–"} />`],
    ["Member id", (member) => html`<${Name} text=${member.member_id} />`],
  ].filter(Boolean);
  return html`<div class="low">
      <${Table} label="Members" heads=${["No.", ...columns.map(([head]) => head)]}>
        ${data.members.slice(0, MEMBERS_SHOWN).map(
          (member, number) => html`<tr key=${member.member_id} class=${picked === number ? "chosen" : ""}>
            <td>
              <button class="bare" aria-pressed=${picked === number} aria-label=${`Show the partitions of member ${number + 1}`}
                onClick=${() => pick(picked === number ? null : number)}><${Swatch} number=${number} /></button>
            </td>
            ${columns.map(([, cell, align]) => html`<td class=${align ?? ""}>${cell(member)}</td>`)}
          </tr>`,
        )}
      <//>
    </div>
    ${data.members_total > MEMBERS_SHOWN && html`<p class="faint">The first ${count(MEMBERS_SHOWN)} of ${count(data.members_total)} are listed.</p>`}`;
}

const SORTS = { partition: (row) => row.number, position: (row) => row.position, end: (row) => row.end, lag: (row) => row.lag, member: (row) => row.owners[0] };

function sorted(rows, order) {
  const key = SORTS[order.replace(/^-/, "")] ?? SORTS.partition;
  const turn = order.startsWith("-") ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (known(x) !== known(y)) return known(x) ? -1 : 1;
    return (known(x) && turn * (x - y)) || a.number - b.number;
  });
}

function Partitions({ data, turn }) {
  const rows = data.topics.flatMap(({ topic, cells }) =>
    cells.map(([partition, owners, targets, position, end, lag]) => ({ topic, partition, owners, targets, position, end, lag })),
  );
  rows.forEach((row, number) => (row.number = number));
  const most = Math.max(1, ...rows.map((row) => row.lag ?? 0));
  const total = data.topics.reduce((sum, topic) => sum + topic.partitions, 0);
  const what = data.type === "share" ? "Start offset" : "Position";
  const columns = [
    { key: "topic", label: "Topic", narrow: "9rem", cell: (row) => html`<${Name} text=${row.topic} />` },
    { key: "partition", label: "Partition", sort: true, align: "right", width: "7rem", narrow: "5.5rem", cell: (row) => row.partition },
    { key: "lag", label: "Lag", sort: true, width: "16rem", narrow: "13rem", cell: (row) => known(row.lag)
      ? html`<span class="lag"><span class="bar"><span style=${{ width: `${(100 * row.lag) / most}%` }}></span></span> ${count(row.lag)}</span>`
      : html`<span class="faint">${known(row.end) ? "no position yet" : "–"}</span>` },
    { key: "position", label: what, sort: true, align: "right", width: "9rem", cell: (row) => count(row.position) },
    { key: "end", label: "End", sort: true, align: "right", width: "9rem", cell: (row) => count(row.end) },
    data.type !== "streams" && { key: "member", label: "Member", sort: true, width: "14rem", cell: (row) => html`<${Owners} row=${row} members=${data.members} />` },
  ].filter(Boolean);
  if (!rows.length) return html`<${Empty} title="The group has no partitions and no positions" />`;
  const load = (offset, limit, order) => Promise.resolve({ rows: sorted(rows, order).slice(offset, offset + limit), total: rows.length });
  return html`<div class="sized" style=${{ height: `min(28rem, ${(rows.length + 1) * 33 + 30}px)` }}>
      <${VirtualTable} label="Partitions" columns=${columns} load=${load} refresh=${turn} reset=${data.group} sort="partition"
        rowKey=${(row) => `${row.topic} ${row.partition}`} />
    </div>
    ${total > rows.length && html`<p class="faint">The first ${count(rows.length)} of ${count(total)} partitions are shown.</p>`}`;
}

function Owners({ row, members }) {
  if (!row.owners.length) {
    const coming = row.targets?.[0];
    return html`<span class="faint">${known(coming) ? html`nobody yet, to <${Swatch} number=${coming} />` : "nobody"}</span>`;
  }
  const going = row.targets && row.targets.find((each) => !row.owners.includes(each));
  return html`${row.owners.map((each) => html`<${Swatch} number=${each} /> `)}
    ${known(going) ? html`→ <${Swatch} number=${going} />` : visible(members[row.owners[0]]?.client_id ?? "")}`;
}

function Share({ data }) {
  const { share } = data;
  const letters = share.settings["errors.deadletterqueue.topic.name"];
  return html`<section>
    <h2>Records of the share group</h2>
    ${share.missing && html`<${Missing} reasons=${[`In flight, delivery counts: ${share.missing}`]} />`}
    <ul class="states">${share.partitions.map((each) => html`<li>${visible(each.text)}</li>`)}</ul>
    ${share.first_records.length > 0 && html`<h3>First records that are not done with</h3>
      <ul class="states">${share.first_records.map((each) => html`<li><${Link} to="/topic" params=${{ name: each.topic }}>${visible(each.topic)}-${each.partition}<//> at offset ${count(each.offset)}: ${visible(each.text)}</li>`)}</ul>`}
    <p>
      Dead letters: ${letters ? html`they and their causes are <${Link} to="/topic/records" params=${{ name: letters }}>records of ${visible(letters)}<//>.` : "the group has no topic for them, so a record that is given up is lost."}
    </p>
    <dl class="facts">${Object.entries(share.settings).filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd>${visible(value)}</dd>`)}</dl>
  </section>`;
}

function Topology({ streams }) {
  if (!streams.subtopologies.length) return html`<${Empty} title="No member has sent a topology yet" />`;
  const names = (topics) => html`<${Name} text=${topics.join(", ") || "–"} />`;
  return html`<${Table} label="Topology" heads=${["Subtopology", "Reads", "Reads again", "Writes for others", "Changelogs"]}>
    ${streams.subtopologies.map((each) => html`<tr>
      <td><${Name} text=${each.name} /></td><td>${names(each.sources)}</td><td>${names(each.repartition_sources)}</td>
      <td>${names(each.repartition_sinks)}</td><td>${names(each.changelogs)}</td>
    </tr>`)}
  <//>`;
}

function Shown({ data, at }) {
  const [picked, pick] = useState(null);
  const [, records, age, atLeast] = data.point;
  const { streams } = data;
  const shown = streams ? streams.tasks : data.topics;
  const verdict = data.history.states.find((state) => state.name === "now_verdict");
  return html`
    ${verdict && html`<p><${Verdict} verdict=${{ verdict: verdict.details.verdict, text: verdict.text }} /> ${visible(verdict.text.replace(`${verdict.details.verdict}: `, ""))}</p>`}
    <${Missing} reasons=${data.missing} />
    <section class="figures" aria-label="Figures">
      <${Figure} label="Lag, records" value=${count(records)} />
      <${Figure} label="Oldest record not read" value=${!records || age === null || (atLeast && age < 1000) ? "–" : `${atLeast ? "≥ " : ""}${duration(age)}`}
        note=${atLeast ? "it came before the console watched" : null} />
      <${Figure} label="Members" value=${count(data.members_total)} note=${data.assignor && `assignor ${visible(data.assignor)}`} />
      ${known(data.epoch) && html`<${Figure} label="Group epoch" value=${count(data.epoch)}
        note=${data.assignment_epoch === data.epoch ? "assigned" : `assigned: epoch ${count(data.assignment_epoch)}`} />`}
      <${Figure} label="Coordinator" value=${`Node ${data.coordinator.node}`} note=${data.coordinator.host && `${data.coordinator.host}:${data.coordinator.port}`} />
    </section>
    <section><h2>Lag over time <${Choice} name="span" label="Last" options=${SPANS} /></h2><${LagChart} group=${data.group} point=${data.point} /></section>
    <section>
      <h2>Members</h2>
      <${Members} data=${data} picked=${picked} pick=${pick} />
    </section>
    <section>
      <h2>${streams ? "Tasks" : "Assignment"}</h2>
      ${shown.length ? html`<${Assignment} topics=${shown} tasks=${Boolean(streams)} picked=${picked} />` : html`<${Empty} title="Nothing is assigned" />`}
    </section>
    ${streams && html`<section><h2>Topology${known(streams.topology_epoch) && `, epoch ${streams.topology_epoch}`}</h2><${Topology} streams=${streams} /></section>`}
    <section><h2>Partitions</h2><${Partitions} data=${data} turn=${at} /></section>
    ${data.share && html`<${Share} data=${data} />`}
  `;
}

export default function Group({ about }) {
  const id = param("name") || param("id");
  const { data, error, at } = useLive(`group:${id}`);
  const here = data?.group === id ? data : null;
  return html`
    <${Heading} title=${id} about=${here && html`<${GroupState} state=${here.state} /> ${here.type && `${here.type} group`}`}>
      ${about?.write && here?.type && here.type !== "share" &&
      html`<${Link} class="button" to="/write" params=${{ do: "reset", group: id }}>Move offsets<//>`}
      <${TimelineLink} type="group" name=${id} />
    <//>
    <${Failure} error=${error} at=${here ? at : null} />
    ${here
      ? html`
          ${here.state === "Dead"
            ? html`<${Empty} title="The group is gone">This is what the broker remembers of it.<//>`
            : html`<${Shown} data=${here} at=${at} />`}
          <section><h2>Recent events</h2><${States} history=${here.history} without=${/^now_(member|share_partition|verdict)$/} /><${Events} history=${here.history} /></section>
        `
      : !error && html`<${Loading} />`}
  `;
}
