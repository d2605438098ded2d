// The timeline of the subjects in the address: `s=group:orders&s=transaction:payments`.
import { useState } from "../vendor/hooks.mjs";
import { useAsked } from "../api.mjs";
import { duration, visible } from "../format.mjs";
import { place, setAll } from "../place.mjs";
import { Timeline, typeName } from "../timeline.mjs";
import { Empty, Failure, Heading, Link, Missing, Name, html } from "../ui.mjs";
import { GroupState } from "./groups.mjs";
import { TransactionState } from "./transactions.mjs";

const SUBJECTS_MAX = 4;
const OFFERED = 12;
const TITLES = {
  group: "Groups",
  transaction: "Transactional ids",
  producer: "Producer ids",
  partition: "Partitions",
  record: "Records of share groups",
  client: "Clients",
};

/** The subjects in the address: an `s` for each, or `type` and `name` of a single subject. */
function subjectsOf(params) {
  const found = params.getAll("s");
  if (params.get("type") && params.get("name")) found.unshift(`${params.get("type")}:${params.get("name")}`);
  return [...new Set(found)].slice(0, SUBJECTS_MAX);
}

function Chooser({ known, subjects, add }) {
  const [type, setType] = useState("group");
  const [name, setName] = useState("");
  const names = known?.[type] ?? [];
  const submit = (event) => {
    event.preventDefault();
    if (name.trim()) {
      add(`${type}:${name.trim()}`);
      setName("");
    }
  };
  return html`<form class="actions" onSubmit=${submit}>
    <label class="choice">
      <span>Show</span>
      <select value=${type} onChange=${({ target }) => setType(target.value)}>
        ${["group", "transaction", "producer", "partition", "client", "record"].map(
          (each) => html`<option value=${each}>${typeName(each)}</option>`,
        )}
      </select>
    </label>
    <input
      data-search
      list="timeline-names"
      aria-label="Name"
      placeholder=${type === "partition" ? "TOPIC-NUMBER" : type === "record" ? "TOPIC-NUMBER:OFFSET:GROUP" : "Name  ( / )"}
      value=${name}
      onInput=${({ target }) => setName(target.value)}
    />
    <datalist id="timeline-names">${names.map(({ name: each }) => html`<option value=${each}></option>`)}</datalist>
    <button class="primary" disabled=${!name.trim() || subjects.length >= SUBJECTS_MAX}>
      ${subjects.length ? "Add below" : "Show"}
    </button>
  </form>`;
}

const STATES = { group: GroupState, transaction: TransactionState };

function Card({ type, subject: { name, state, time_ms, text } }) {
  return html`<${Link} class="card" to="/timeline" params=${{ s: `${type}:${name}` }}>
    <span class="card-head"><${Name} text=${name || "(no name)"} />${state && STATES[type] && html`<${STATES[type]} state=${state} />`}</span>
    ${time_ms !== null && html`<span class="faint">${duration(Math.max(Date.now() - time_ms, 0))} ago: ${visible(text)}</span>`}
  <//>`;
}

function Offers({ known }) {
  const rows = Object.entries(known ?? {}).filter(([, subjects]) => subjects.length);
  if (!rows.length) return html`<${Empty} title="Nothing has happened yet">Groups, transactions and producers appear here when they do something.<//>`;
  return rows.map(
    ([type, subjects]) => html`<section>
      <h2>${TITLES[type]}</h2>
      <div class="offers">
        ${subjects.slice(0, OFFERED).map((subject) => html`<${Card} key=${subject.name} type=${type} subject=${subject} />`)}
      </div>
      ${subjects.length > OFFERED && html`<p class="faint">and more: type a name above</p>`}
    </section>`,
  );
}

export default function TimelinePage() {
  const subjects = subjectsOf(place.value.params);
  const { data, error } = useAsked("/timeline/subjects", {}, { everyMs: subjects.length ? 15_000 : 3000 });
  const show = (next) => setAll({ s: next }, ["type", "name", "since", "until"]);
  return html`
    <${Heading} title="Timeline">
      <${Chooser} known=${data?.subjects} subjects=${subjects} add=${(one) => show([...new Set([...subjects, one])])} />
    <//>
    <${Failure} error=${error} />
    <${Missing} reasons=${data?.missing} />
    ${subjects.length > 0 &&
    html`<p class="chips">
      ${subjects.map((subject) => {
        const [type, ...rest] = subject.split(":");
        return html`<span class="chip" key=${subject}>
          <span class="faint">${typeName(type)}</span> <span class="mono">${visible(rest.join(":"))}</span>
          <button aria-label=${`Take ${subject} away`} onClick=${() => show(subjects.filter((each) => each !== subject))}>×</button>
        </span>`;
      })}
    </p>`}
    ${subjects.length ? html`<${Timeline} subjects=${subjects} />` : !error && html`<${Offers} known=${data?.subjects} />`}
  `;
}
