// States as bands over time and events on them, for one or more subjects on one time axis.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.mjs";
import { useLive } from "./api.mjs";
import { duration, time, visible, zoneName } from "./format.mjs";
import { change, param } from "./place.mjs";
import { Badge, Failure, Loading, Missing, Toggle, html } from "./ui.mjs";

const LANE_PX = 30;
const BAND_TOP_PX = 9;
const MARK_PX = 7;
const AXIS_PX = 26;
const LABEL_PX = 190;
const NARROW_LABEL_PX = 92;
const SPAN_MS_MIN = 20;
const SENTENCES_MAX = 400;
// Steps between two marks of the axis.
const STEPS_MS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5,
  216e5, 432e5, 864e5, 1728e5, 6048e5, 2592e6,
];
const TYPES = {
  group: "group",
  transaction: "transactional id",
  producer: "producer id",
  partition: "partition",
  record: "record",
  client: "client",
};

/** The words for a type of subject. */
export const typeName = (type) => TYPES[type] ?? type;

// A component that listens to one subject. The page cannot do it for all subjects, because the
// number of subjects changes and the number of hooks must not.
function Listener({ subject, give }) {
  const state = useLive(`timeline:${subject}`);
  useEffect(() => give(subject, state), [state]);
  return null;
}

function useNow(running) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => document.hidden || setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [running]);
  return now;
}

function extent(found, now) {
  let first = Infinity;
  let last = -Infinity;
  for (const { data } of found) {
    for (const { time_ms, last_time_ms } of data?.events ?? []) {
      first = Math.min(first, time_ms);
      last = Math.max(last, last_time_ms);
    }
    for (const { bands } of data?.lanes ?? []) {
      if (bands.length) first = Math.min(first, bands[0].start_ms);
    }
    if (data) last = Math.max(last, now + data.skew_ms);
  }
  if (!Number.isFinite(first)) return { from: now - 60_000, to: now };
  const room = Math.max((last - first) * 0.02, 50);
  return { from: first - room, to: Math.max(last, first + 1000) + room };
}

/**
 * The timeline of `subjects`, texts such as "group:orders". The address keeps the part of time that
 * is shown as `since` and `until`; without them everything up to the present is shown.
 */
export function Timeline({ subjects, title = null }) {
  const [found, setFound] = useState(new Map());
  const [chosen, setChosen] = useState(null);
  const [cursor, setCursor] = useState(null);
  const box = useRef(null);
  const [width, setWidth] = useState(900);
  const follows = !param("since");
  const now = useNow(follows);
  const give = (subject, state) => setFound((old) => new Map(old).set(subject, state));

  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.max(280, entry.contentRect.width)));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);

  const shown = subjects.map((subject) => ({ subject, ...(found.get(subject) ?? { data: null, error: null }) }));
  const whole = extent(shown, now);
  const from = follows ? whole.from : Number(param("since"));
  const to = follows ? whole.to : Math.max(Number(param("until")), from + SPAN_MS_MIN);
  const labelPx = Math.max(NARROW_LABEL_PX, Math.min(LABEL_PX, Math.round(width * 0.27)));
  const scale = {
    from,
    to,
    labelPx,
    width,
    x: (ms) => labelPx + ((ms - from) / (to - from)) * (width - labelPx),
    ms: (x) => from + ((x - labelPx) / (width - labelPx)) * (to - from),
  };

  const move = (next) => {
    const span = Math.max(SPAN_MS_MIN, Math.min(next.to - next.from, 1.5 * (whole.to - whole.from)));
    const middle = (next.from + next.to) / 2;
    change({ since: String(Math.round(middle - span / 2)), until: String(Math.round(middle + span / 2)) });
  };
  const zoom = (factor, at = (from + to) / 2) => move({ from: at - (at - from) * factor, to: at + (to - at) * factor });
  const pan = (share) => move({ from: from + share * (to - from), to: to + share * (to - from) });
  const fit = () => change({ since: "", until: "" });

  const events = useMemo(() => {
    const every = [];
    for (const { subject, data } of shown) {
      data?.events.forEach((event, index) => every.push({ ...event, subject, id: `${subject} ${index}` }));
    }
    return every.sort((one, other) => one.time_ms - other.time_ms);
  }, [found, subjects.join("\n")]);
  const quiet = param("connections") !== "1";
  const told = quiet ? events.filter((event) => !event.name.startsWith("client_") || event.tone !== "none") : events;
  const inView = told.filter((event) => event.last_time_ms >= from && event.time_ms <= to);

  const choose = (event) => {
    setChosen(event.id);
    if (event.time_ms < from || event.time_ms > to) {
      const half = (to - from) / 2;
      move({ from: event.time_ms - half, to: event.time_ms + half });
    }
  };
  const step = (by) => {
    if (!told.length) return;
    const index = told.findIndex((event) => event.id === chosen);
    const next = index < 0 ? (by > 0 ? 0 : told.length - 1) : index + by;
    choose(told[Math.max(0, Math.min(next, told.length - 1))]);
  };
  const keys = {
    ArrowLeft: () => pan(-0.2),
    ArrowRight: () => pan(0.2),
    ArrowUp: () => step(-1),
    ArrowDown: () => step(1),
    "+": () => zoom(0.5),
    "=": () => zoom(0.5),
    "-": () => zoom(2),
    0: fit,
  };
  const press = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  };

  const drag = useRef(null);
  const xOf = (event) => event.clientX - box.current.getBoundingClientRect().left;
  const pointer = {
    onPointerDown: (event) => {
      if (event.button === 0) drag.current = { x: xOf(event), from, to };
    },
    onPointerMove: (event) => {
      const x = xOf(event);
      setCursor(x >= labelPx ? scale.ms(x) : null);
      const began = drag.current;
      if (!began || !event.buttons) {
        drag.current = null;
      } else if (Math.abs(x - began.x) > 3) {
        const by = ((began.x - x) / (width - labelPx)) * (began.to - began.from);
        move({ from: began.from + by, to: began.to + by });
      }
    },
    onPointerUp: () => {
      drag.current = null;
    },
    onPointerLeave: () => {
      drag.current = null;
      setCursor(null);
    },
    onDblClick: (event) => zoom(0.4, scale.ms(xOf(event))),
  };
  useEffect(() => {
    // A template cannot set this listener, which must be able to keep the page from scrolling.
    const element = box.current;
    const wheel = (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, scale.ms(xOf(event)));
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  });

  return html`<div class="timeline">
    ${subjects.map((subject) => html`<${Listener} key=${subject} subject=${subject} give=${give} />`)}
    <div class="timeline-tools actions">
      ${title}
      <button onClick=${() => zoom(0.5)} title="Zoom in ( + )">Zoom in</button>
      <button onClick=${() => zoom(2)} title="Zoom out ( − )">Zoom out</button>
      <button onClick=${() => pan(-0.5)} title="Earlier ( ← )">Earlier</button>
      <button onClick=${() => pan(0.5)} title="Later ( → )">Later</button>
      <button onClick=${fit} disabled=${follows} title="All of it, and what comes ( 0 )">Everything, live</button>
      ${events.some((event) => event.name.startsWith("client_")) && html`<${Toggle} name="connections" label="Connections in words" />`}
      <span class="faint">
        ${cursor === null ? `${time(from)} to ${time(to)} (${zoneName()})` : `${time(cursor)} (${zoneName()})`}
      </span>
    </div>
    <div class="timeline-parts">
      <div
        class="timeline-box"
        ref=${box}
        tabindex="0"
        role="application"
        aria-label="Timeline. Left and right move it, plus and minus zoom, up and down choose an event, 0 shows everything. The sentences beside it say the same as the picture."
        onKeyDown=${press}
        ...${pointer}
      >
        <${Axis} scale=${scale} cursor=${cursor} />
        ${shown.map(
          (each) =>
            html`<${SubjectLanes} key=${each.subject} ...${each} scale=${scale} now=${now} cursor=${cursor} chosen=${chosen} choose=${choose} />`,
        )}
      </div>
      <${SentenceList} events=${inView} all=${told.length} several=${subjects.length > 1} chosen=${chosen} choose=${choose} follows=${follows} />
    </div>
  </div>`;
}

function Axis({ scale, cursor }) {
  const room = (scale.width - scale.labelPx) / 110;
  const stepMs = STEPS_MS.find((each) => (scale.to - scale.from) / each <= room) ?? STEPS_MS[STEPS_MS.length - 1];
  const marks = [];
  let day = "";
  for (let ms = Math.ceil(scale.from / stepMs) * stepMs; ms <= scale.to && marks.length < 50; ms += stepMs) {
    const text = time(ms);
    const shown = stepMs < 1000 ? text.slice(11, 23) : stepMs < 60_000 ? text.slice(11, 19) : text.slice(11, 16);
    const today = text.slice(0, 10);
    const x = scale.x(ms);
    if (x > scale.width - 84) break;
    marks.push({ x, text: today === day ? shown : `${today.slice(5)} ${shown}` });
    day = today;
  }
  return html`<svg class="axis" width=${scale.width} height=${AXIS_PX} aria-hidden="true">
    ${marks.map(
      ({ x, text }) => html`<line x1=${x} x2=${x} y1=${AXIS_PX - 6} y2=${AXIS_PX} /><text x=${x + 3} y=${AXIS_PX - 9}>${text}</text>`,
    )}
    ${cursor !== null && html`<line class="cursor" x1=${scale.x(cursor)} x2=${scale.x(cursor)} y1="0" y2=${AXIS_PX} />`}
  </svg>`;
}

function SubjectLanes({ subject, data, error, at, scale, now, cursor, chosen, choose }) {
  const [type, ...rest] = subject.split(":");
  const name = rest.join(":");
  return html`<section class="timeline-subject">
    <h2><span class="faint">${typeName(type)}</span> <span class="mono">${visible(name)}</span></h2>
    <${Failure} error=${error} at=${data && at} />
    ${data ? html`<${Drawing} ...${{ subject, data, scale, now, cursor, chosen, choose }} />` : !error && html`<${Loading} />`}
    ${data?.states.length > 0 &&
    html`<details class="now" open=${data.states.length <= 3}>
      <summary>Now</summary>
      <ul>
        ${data.states.slice(0, 50).map((text) => html`<li title=${visible(text)}>${visible(shortened(text))}</li>`)}
      </ul>
    </details>`}
    <${Missing} reasons=${data ? notes(data) : []} />
  </section>`;
}

function notes(data) {
  const found = [...data.missing];
  if (data.nothing) found.unshift(data.nothing);
  if (data.complete_since_ms > (data.started_ms ?? 0) && data.dropped > 0) {
    found.push(`Events before ${time(data.complete_since_ms)} were dropped: the broker keeps the newest ones.`);
  }
  if (data.lanes_left_out) found.push(`${data.lanes_left_out} more members have no lane here.`);
  return found;
}

function Drawing({ subject, data, scale, now, cursor, chosen, choose }) {
  const lanes = [...data.lanes];
  const known = new Map(lanes.map((lane, index) => [lane.key, index]));
  if (data.events.some((event) => !known.has(event.lane)) && !known.has("state")) {
    known.set("state", lanes.length);
    lanes.push({ key: "state", label: "events", kind: "events", bands: [] });
  }
  const height = Math.max(1, lanes.length) * LANE_PX;
  const present = now + data.skew_ms;
  const laneOf = (event) => known.get(event.lane) ?? known.get("state") ?? 0;
  return html`<svg class="lanes" width=${scale.width} height=${height} role="img" aria-label=${`Lanes of ${subject}`}>
    ${lanes.map((lane, index) => html`<${LaneRow} key=${lane.key} ...${{ lane, index, scale, present }} />`)}
    ${marksOf(data.events, scale).map(
      ({ event, index, x }) => html`<${Mark}
        key=${index}
        event=${event}
        x=${x}
        y=${laneOf(event) * LANE_PX + MARK_PX}
        chosen=${chosen === `${subject} ${index}`}
        choose=${() => choose({ ...event, id: `${subject} ${index}` })}
      />`,
    )}
    ${cursor !== null && html`<line class="cursor" x1=${scale.x(cursor)} x2=${scale.x(cursor)} y1="0" y2=${height} />`}
  </svg>`;
}

// The marks of the events in view. Of several events at nearly the same pixel the worst is drawn.
function marksOf(events, scale) {
  const rank = { none: 0, good: 0, busy: 0, warning: 1, error: 2 };
  const drawn = new Map();
  events.forEach((event, index) => {
    if (event.time_ms < scale.from || event.time_ms > scale.to) return;
    const x = scale.x(event.time_ms);
    const place = `${event.lane} ${Math.round(x / 3)}`;
    const there = drawn.get(place);
    if (!there || rank[event.tone] >= rank[there.event.tone]) drawn.set(place, { event, index, x });
  });
  return [...drawn.values()];
}

function LaneRow({ lane, index, scale, present }) {
  const y = index * LANE_PX;
  const rows = [];
  let lastX = -Infinity;
  lane.bands.forEach((band, number) => {
    const end = band.end_ms ?? Math.max(present, band.start_ms);
    if (end < scale.from || band.start_ms > scale.to) return;
    const x = Math.max(scale.labelPx, scale.x(band.start_ms));
    const right = Math.min(scale.width, scale.x(end));
    if (right - lastX < 0.7) return;
    lastX = right;
    const wide = Math.max(1, right - x);
    const about = `${band.state}\n${time(band.start_ms)} to ${band.end_ms === null ? "now" : time(band.end_ms)}: ${duration(end - band.start_ms)}\n${band.text}`;
    rows.push(html`<g key=${number} class=${`band ${band.tone}${band.end_ms === null ? " lasts" : ""}`}>
      <title>${visible(about)}</title>
      <rect x=${x} y=${y + BAND_TOP_PX} width=${wide} height=${LANE_PX - BAND_TOP_PX - 3} rx="3" />
      ${wide > 34 &&
      html`<svg x=${x} y=${y} width=${wide - 4} height=${LANE_PX}><text x="6" y=${LANE_PX / 2 + 7}>${visible(band.state)}</text></svg>`}
    </g>`);
  });
  return html`<g>
    <svg x="0" y=${y} width=${scale.labelPx - 8} height=${LANE_PX}>
      <title>${visible(lane.label)}</title>
      <text class="lane-label" x="6" y=${LANE_PX / 2 + 6}>${visible(shortened(lane.label))}</text>
    </svg>
    <line class="lane-line" x1=${scale.labelPx} x2=${scale.width} y1=${y + LANE_PX - 0.5} y2=${y + LANE_PX - 0.5} />
    ${rows}
  </g>`;
}

// Ids of members end in a UUID; its first digits tell members apart.
const shortened = (text) => text.replace(/\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/gi, "$1…");

function Mark({ event, x, y, chosen, choose }) {
  const shape =
    event.tone === "error"
      ? html`<path d=${`M${x} ${y - 6}l5.5 6-5.5 6-5.5-6z`} />`
      : event.tone === "warning"
        ? html`<path d=${`M${x} ${y - 6}l5.5 10h-11z`} />`
        : html`<circle cx=${x} cy=${y} r="3.5" />`;
  return html`<g class=${`mark ${event.tone}${chosen ? " chosen" : ""}`} onClick=${choose}>
    <title>${`${time(event.time_ms)}\n${visible(event.text)}`}</title>
    ${shape}
  </g>`;
}

function SentenceList({ events, all, several, chosen, choose, follows }) {
  const list = useRef(null);
  const shown = events.slice(-SENTENCES_MAX);
  useEffect(() => {
    const element = list.current?.querySelector("[aria-current]");
    if (element) element.scrollIntoView({ block: "nearest" });
    else if (follows && list.current) list.current.scrollTop = list.current.scrollHeight;
  }, [chosen, shown.length]);
  let before = null;
  return html`<aside class="sentences-of" aria-label="Events in words">
    <h2>In words <span class="faint">(${zoneName()})</span></h2>
    ${all === 0 && html`<p class="faint">Nothing has happened yet.</p>`}
    ${all > 0 && !shown.length && html`<p class="faint">Nothing happened in this part of time.</p>`}
    ${events.length > shown.length && html`<p class="faint">The last ${shown.length} of ${events.length}; zoom in for the others.</p>`}
    <ol ref=${list} tabindex="0">
      ${shown.map((event) => {
        const after = before === null ? "" : `+${duration(event.time_ms - before)}`;
        before = event.time_ms;
        return html`<li key=${event.id} aria-current=${event.id === chosen ? "true" : null}>
          <button title=${visible(event.text)} onClick=${() => choose(event)}>
            <span class="when"><time>${time(event.time_ms).slice(11)}</time> <span class="faint">${after}</span></span>
            ${event.tone === "warning" && html`<${Badge} level="warning">note<//> `}
            ${event.tone === "error" && html`<${Badge} level="error">wrong<//> `}
            ${several && html`<span class="faint">${visible(event.subject.replace(":", " "))}: </span>`}
            ${visible(shortened(event.text))}${event.times > 1 && html` <span class="faint">(${event.times} times)</span>`}
          </button>
        </li>`;
      })}
    </ol>
  </aside>`;
}
