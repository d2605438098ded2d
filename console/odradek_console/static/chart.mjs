// A line chart over time that follows the theme and the zone of the page.
import { useEffect, useLayoutEffect, useRef, useState } from "./vendor/hooks.mjs";
import uPlot from "./vendor/uplot.mjs";
import { time, zoneName } from "./format.mjs";
import { zone } from "./place.mjs";
import { html } from "./ui.mjs";

const HEIGHT_PX = 190;
const SPAN_S_MIN = 30;
// Steps of an axis for whole numbers.
const WHOLE = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((each) => each * 10 ** power)).flat();
// Steps of an axis for bytes: each is a whole number of its unit.
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);
const STEPS = { whole: WHOLE, binary: BINARY };

/** The text of a legend: of the moment under the pointer, or else of the last one. */
const legend = (text) => (plot, value, series, index) => {
  const shown = index === null || index === undefined ? plot.data[series].at(-1) : value;
  return shown === null || shown === undefined ? "–" : text(shown);
};
let styled = false;

function addStyle() {
  if (styled) return;
  styled = true;
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = "/static/vendor/uplot.css";
  document.head.append(link);
}

const zoned = (s) => {
  const name = zone.value;
  const date = new Date(s * 1000);
  return name === "local" ? date : uPlot.tzDate(date, name === "utc" ? "Etc/UTC" : name);
};

/** A number that changes with the theme, so that canvases are drawn again. */
export function useTheme() {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const changed = () => setTurn((old) => old + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", changed);
    const watch = new MutationObserver(changed);
    watch.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      system.removeEventListener("change", changed);
      watch.disconnect();
    };
  }, []);
  return turn;
}

/**
 * A line chart. `data`: `[times in seconds, values, values, ...]`; `lines`: `{label, scale, color,
 * dash, text(value)}`. `color`: the name of a variable of the style sheet; `least`: the lowest top
 * of the axis; `steps`: "whole" or "binary" for the marks of the axis; `spanGaps`: a line goes on
 * over missing values. The second scale has its axis on the right.
 */
export function Chart({ label, data, lines }) {
  const box = useRef(null);
  const plot = useRef(null);
  const theme = useTheme();
  const newest = useRef(data);
  newest.current = data;
  useLayoutEffect(() => {
    addStyle();
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const scales = [...new Set(lines.map((line) => line.scale))];
    const axis = { stroke: color("--faint"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const made = new uPlot(
      {
        width: box.current.clientWidth,
        height: HEIGHT_PX,
        // Room for the half of the last time; a second axis has its own.
        padding: [null, scales.length > 1 ? null : 30, null, null],
        tzDate: zoned,
        cursor: { drag: { x: true, y: false } },
        scales: {
          // A few points after the opening would spread over the whole width without this minimum.
          x: { range: (_, first, last) => [Math.min(first ?? last, last - SPAN_S_MIN), last] },
          ...Object.fromEntries(
            scales.map((name) => [
              name,
              {
                range: (_, __, most) =>
                  [0, Math.max(most ?? 0, lines.find((line) => line.scale === name).least ?? 1) * 1.1],
              },
            ]),
          ),
        },
        axes: [
          { ...axis, values: "{HH}:{mm}:{ss}", space: 90, incrs: WHOLE },
          ...scales.map((name, number) => ({
            ...axis,
            scale: name,
            side: number ? 1 : 3,
            size: 84,
            incrs: STEPS[lines.find((line) => line.scale === name).steps],
            grid: number ? { show: false } : axis.grid,
            values: (_, ticks) => ticks.map(lines.find((line) => line.scale === name).text),
          })),
        ],
        series: [
          { label: `Time (${zoneName()})`, value: legend((s) => time(s * 1000)) },
          ...lines.map((line) => ({
            label: line.label,
            scale: line.scale,
            stroke: color(line.color),
            width: 2,
            dash: line.dash,
            spanGaps: line.spanGaps ?? false,
            value: legend(line.text),
          })),
        ],
      },
      newest.current,
      box.current,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: box.current?.clientWidth ?? 300, height: HEIGHT_PX }));
    watch.observe(box.current);
    return () => {
      watch.disconnect();
      made.destroy();
    };
  }, [theme, zone.value]);
  useEffect(() => plot.current?.setData(data), [data]);
  return html`<div class="chart" role="figure" aria-label=${label} ref=${box}></div>`;
}
