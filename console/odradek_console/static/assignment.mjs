// The assignment of a group as a picture: partitions as cells with the numbers of their members.
import { useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.mjs";
import { count, visible } from "./format.mjs";
import { Name, html } from "./ui.mjs";

const CELL_PX = 30;
const GAP_PX = 2;
const LEFT_PX = 46;
const CELLS_MAX = 3000;

/** The colour of a member, which differs from its neighbours' colours. */
export const hue = (number) => ({ "--hue": `${Math.round((number * 137.508) % 360)}` });

/** The member's number in its colour. */
export const Swatch = ({ number }) => html`<span class="swatch" style=${hue(number)}>${number + 1}</span>`;

const numbers = (members) => members.map((each) => each + 1).join(", ");

// A cell of the server's array: partition, owners, future owners (null: unknown), and for tasks the
// members with a standby and with a warm-up.
function cellOf([partition, owners, targets, ...more], tasks) {
  const [standby, warmup] = tasks ? more : [[], []];
  const leaving = targets ? owners.filter((each) => !targets.includes(each)) : [];
  const coming = targets ? targets.filter((each) => !owners.includes(each)) : [];
  return { partition, owners, leaving, coming, standby, warmup };
}

function stateOf({ owners, leaving, coming }) {
  if (!owners.length) return coming.length ? "coming" : "nobody";
  return leaving.length ? "leaving" : "owned";
}

function textsOf({ owners, coming, leaving }) {
  const has = owners.length > 1 ? `${owners[0] + 1}+${owners.length - 1}` : owners.length ? `${owners[0] + 1}` : "";
  if (!leaving.length && (owners.length || !coming.length)) return [has || "–"];
  return [has, `→${coming.length ? coming[0] + 1 : ""}`].filter(Boolean);
}

function sentenceOf(cell, topic, what) {
  const told = [];
  if (cell.owners.length) told.push(`member ${numbers(cell.owners)} has it`);
  if (cell.leaving.length) told.push(`member ${numbers(cell.leaving)} is to give it back`);
  if (cell.coming.length) told.push(`member ${numbers(cell.coming)} is to get it`);
  if (cell.standby.length) told.push(`standby on member ${numbers(cell.standby)}`);
  if (cell.warmup.length) told.push(`member ${numbers(cell.warmup)} warms up for it`);
  return `${what} ${visible(topic)}-${cell.partition}: ${told.join(", ") || "nobody has it"}`;
}

function Cell({ cell, x, y, topic, what, picked }) {
  const state = stateOf(cell);
  const owner = cell.owners[0] ?? cell.coming[0];
  const dim = picked !== null && ![...cell.owners, ...cell.coming, ...cell.standby, ...cell.warmup].includes(picked);
  const texts = textsOf(cell);
  const side = CELL_PX - GAP_PX;
  return html`<g class=${`cell ${state}${dim ? " dim" : ""}`} style=${owner === undefined ? {} : hue(owner)} transform=${`translate(${x} ${y})`}>
    <title>${sentenceOf(cell, topic, what)}</title>
    <rect width=${side} height=${side} rx="3" />
    ${(state === "leaving" || state === "nobody") &&
    html`<rect class="pattern" width=${side} height=${side} rx="3" />`}
    ${texts.map((text, line) => html`<text x=${side / 2} y=${side / 2 + 4 + (texts.length - 1) * (line * 12 - 6)}>${text}</text>`)}
    ${cell.standby.length > 0 && html`<text class="copies" x=${side - 2} y="9">s</text>`}
    ${cell.warmup.length > 0 && html`<text class="copies" x=${side - 2} y=${side - 2}>w</text>`}
  </g>`;
}

const Patterns = () => html`<svg class="defs" width="0" height="0" aria-hidden="true">
  <defs>
    <pattern id="pattern-leaving" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <rect width="2" height="6" />
    </pattern>
    <pattern id="pattern-nobody" width="6" height="6" patternUnits="userSpaceOnUse">
      <circle cx="3" cy="3" r="1" />
    </pattern>
  </defs>
</svg>`;

const KEY = [
  ["owned", "3", "member 3 has it"],
  ["leaving", "3→5", "3 is to give it to 5"],
  ["coming", "→5", "nobody has it yet, 5 is to get it"],
  ["nobody", "–", "nobody has it"],
];

/** The picture. `topics`: `{topic, partitions, cells}` of the server; `tasks`: cells are tasks. */
export function Assignment({ topics, picked, tasks = false }) {
  const box = useRef(null);
  const [columns, setColumns] = useState(20);
  useLayoutEffect(() => {
    const measure = () => setColumns(Math.max(5, Math.floor((box.current.clientWidth - LEFT_PX) / CELL_PX)));
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const what = tasks ? "Task" : "Partition";
  // Cells are drawn again only if owners change, which is seldom; the lag changes all the time.
  const owners = JSON.stringify(topics.map(({ topic, cells }) => [topic, cells.map((cell) => cell.slice(0, tasks ? 5 : 3))]));
  return useMemo(() => {
    const even = tasks ? columns : columns >= 20 ? columns - (columns % 10) : columns;
    let left = CELLS_MAX;
    const drawn = topics.map(({ topic, partitions, cells }) => {
      const shown = cells.slice(0, Math.max(left, 0));
      left -= shown.length;
      const rows = Math.ceil(shown.length / even);
      return html`<figure class="assigned" key=${topic}>
        <figcaption>
          <${Name} text=${topic} /> <span class="faint">${count(partitions)} ${tasks ? "tasks" : "partitions"}${shown.length < partitions && `, the first ${count(shown.length)} are drawn`}</span>
        </figcaption>
        <svg role="img" aria-label=${`Assignment of ${visible(topic)}: the table of partitions says the same`}
          width=${LEFT_PX + Math.min(even, shown.length) * CELL_PX} height=${rows * CELL_PX}>
          ${Array.from({ length: rows }, (_, row) => html`<text class="begins" x=${LEFT_PX - 6} y=${row * CELL_PX + CELL_PX / 2 + 3}>${shown[row * even][0]}</text>`)}
          ${shown.map((each, index) => html`<${Cell}
            key=${each[0]} cell=${cellOf(each, tasks)} topic=${topic} what=${what} picked=${picked}
            x=${LEFT_PX + (index % even) * CELL_PX} y=${Math.floor(index / even) * CELL_PX} />`)}
        </svg>
      </figure>`;
    });
    return html`<div ref=${box}>
      <${Patterns} />
      <p class="key">
        ${KEY.map(([state, text, means]) => html`<span class="key-entry"><svg width="40" height="28" aria-hidden="true">
          <g class=${`cell ${state}`} style=${hue(2)}><rect width="40" height="28" rx="3" />
          ${(state === "leaving" || state === "nobody") && html`<rect class="pattern" width="40" height="28" rx="3" />`}
          <text x="20" y="18">${text}</text></g></svg> ${means}</span>`)}
        ${tasks && html`<span class="key-entry">s: has a standby</span><span class="key-entry">w: a member warms up for it</span>`}
      </p>
      ${drawn}
    </div>`;
  }, [owners, columns, picked]);
}
