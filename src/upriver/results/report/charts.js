"use strict";
// Numbers to plotly figures. Each function returns {data, layout, text}; nothing here changes the page.

const DASHES = { solid: "solid", dash: "7px,3px", dot: "2px,2px", dashdot: "7px,2.5px,2px,2.5px" };
// Of each marker: plotly's name, and a path in a square from -1 to 1.
const MARKERS = {
  o: ["circle", "M-1,0A1,1 0 1,0 1,0A1,1 0 1,0 -1,0Z"], s: ["square", "M-.9,-.9H.9V.9H-.9Z"], "^": ["triangle-up", "M0,-1.1L1.1,.9H-1.1Z"],
  D: ["diamond", "M0,-1.2L1.2,0L0,1.2L-1.2,0Z"], v: ["triangle-down", "M0,1.1L1.1,-.9H-1.1Z"], X: ["x", "M-1.1,-.5L-.5,-1.1L0,-.6L.5,-1.1L1.1,-.5L.6,0L1.1,.5L.5,1.1L0,.6L-.5,1.1L-1.1,.5L-.6,0Z"],
  P: ["cross", "M-.4,-1.2H.4V-.4H1.2V.4H.4V1.2H-.4V.4H-1.2V-.4H-.4Z"], "*": ["star", "M0,-1.3L.35,-.4L1.3,-.35L.55,.25L.8,1.2L0,.65L-.8,1.2L-.55,.25L-1.3,-.35L-.35,-.4Z"], "": ["", ""],
};
const MOST = 6; // agents whose curves are shown at first

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isDark = () => document.documentElement.dataset.theme === "dark" && !isDark.printing;
const colourOf = (agent) => (isDark() ? agent.dark : agent.light);
const isOptimal = (agent) => agent.name.toLowerCase() === "optimal";
const escaped = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const range = (n) => Array.from({ length: n }, (_, i) => i);
const faded = (colour, alpha) => `${colour}${Math.round(255 * alpha).toString(16).padStart(2, "0")}`;

function short(x) {
  if (x === null || x === undefined) return "–";
  const size = Math.abs(x);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return x.toExponential(2);
  return String(Number(x.toPrecision(4)));
}

// What all figures share is plotly's template; a figure adds its titles and what differs.
function makeLayout(xTitle, yTitle, xaxis = {}, yaxis = {}, more = {}) {
  const family = getComputedStyle(document.body).fontFamily;
  const axis = {
    title: { font: { size: 12, color: css("--muted") }, standoff: 8 }, automargin: true, zeroline: false, ticks: "outside",
    gridcolor: css("--grid"), linecolor: css("--line"), tickcolor: css("--line"), tickfont: { size: 11, color: css("--muted") },
  };
  const template = { layout: {
    xaxis: { ...axis, showline: true }, yaxis: axis, margin: { l: 50, r: 12, t: 10, b: 42 }, showlegend: false,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family, color: css("--ink"), size: 12 },
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { size: 12, color: css("--ink"), family }, namelength: -1 },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
  } };
  return { template, xaxis: { title: { text: xTitle }, ...xaxis }, yaxis: { title: { text: yTitle }, ...yaxis }, ...more };
}

// Lines of the agents with their bands, or with single runs instead of bands.
function curvesChart(curves, agents, measure, { log, seeds, unit, optimal }) {
  const logY = log && measure === "regret";
  const positive = agents.flatMap((a) => curves[a.name][measure].mean.filter((y) => y > 0));
  const floor = logY && positive.length ? Math.min(...positive) / 10 : -Infinity;
  const around = agents.toReversed().map((agent) => {
    const curve = curves[agent.name], line = { type: "scatter", mode: "lines", hoverinfo: "skip" };
    if (seeds && !isOptimal(agent)) {
      const runs = curve.seeds[measure], x = runs.flatMap(() => [...curve.seeds.x, null]);
      return { ...line, x, y: runs.flatMap((run) => [...run, null]), line: { color: faded(colourOf(agent), 0.45), width: 0.8 } };
    }
    const y = [...curve[measure].high, ...curve[measure].low.toReversed()].map((v) => Math.max(v, floor));
    return { ...line, x: [...curve.x, ...curve.x.toReversed()], y, line: { width: 0 }, fill: "toself", fillcolor: faded(colourOf(agent), 0.16) };
  });
  const lines = agents.map((agent) => {
    const { x, [measure]: { mean, low, high } } = curves[agent.name];
    return {
      x, y: mean, name: escaped(agent.name), type: "scatter", mode: "lines",
      line: { color: colourOf(agent), width: 2, dash: DASHES[agent.dash] },
      customdata: low.map((l, i) => [short(l), short(high[i])]),
      hovertemplate: "%{y:.4~g}  <i>%{customdata[0]} to %{customdata[1]}</i>",
    };
  });
  const marks = agents.filter((a) => a.marker).map((agent, i) => {
    const { x, [measure]: { mean } } = curves[agent.name], at = spacedPoints(x, log, (i + 0.5) / agents.length);
    return { x: at.map((k) => x[k]), y: at.map((k) => mean[k]), type: "scatter", mode: "markers", hoverinfo: "skip",
      marker: { symbol: MARKERS[agent.marker][0], size: 8, color: colourOf(agent), line: { width: 1, color: css("--card") } } };
  });
  const data = [...around, ...lines, ...marks], more = { hovermode: "x unified" };
  const last = (a) => curves[a.name][measure].mean.at(-1);
  const ends = agents.slice(0, MOST + 1).map((a) => ({ name: a.name, y: logY ? Math.log10(last(a)) : last(a), colour: colourOf(a) }));
  if (optimal !== undefined && optimal !== null && agents.length) {
    const end = Math.max(...agents.map((a) => curves[a.name].x.at(-1))), text = `V* = ${short(optimal)}`;
    data.push({ x: [1, end], y: [optimal, optimal], mode: "lines", hoverinfo: "skip", line: { color: css("--ink"), width: 1.2, dash: "6px,4px" } });
    if (wide()) ends.push({ name: text, y: optimal, colour: css("--ink") });
    else more.annotations = [{ xref: "paper", x: 1, xanchor: "right", y: optimal, yanchor: "bottom", showarrow: false, text, bgcolor: faded(css("--card"), 0.8), font: { size: 11, color: css("--ink") } }];
  }
  const xaxis = { hoverformat: ",d", unifiedhovertitle: { text: `${unit} %{x}` }, ...(log ? { type: "log", dtick: 1 } : {}) };
  const yaxis = logY ? { type: "log", dtick: 1, exponentformat: "power" } : { rangemode: "tozero" };
  const layout = makeLayout(unit, measure === "regret" ? "cumulative regret" : measure, xaxis, yaxis, more);
  const shown = wide() ? ends.filter((e) => Number.isFinite(e.y) && !(optimal && e.name.toLowerCase() === "optimal")) : [];
  if (shown.length) layout.margin = { l: 50, b: 42, t: 10, r: Math.min(150, 16 + 6.4 * Math.max(...shown.map((e) => e.name.length))) };
  return { data, layout, ends: shown, text: describeEnd(curves, agents, measure, seeds, unit) };
}

const wide = () => !isDark.printing && window.innerWidth > 640;

// About eight positions of a curve, evenly spaced on its axis; the offset keeps those of agents apart.
function spacedPoints(x, log, offset) {
  const scale = log ? Math.log : Number, [low, high] = [scale(x[0]), scale(x.at(-1))];
  const found = range(8).map((i) => low + ((i + offset) / 8) * (high - low)).map((v) => x.findIndex((xi) => scale(xi) >= v));
  return [...new Set(found)].filter((k) => k >= 0);
}

// Names beside the ends of lines, as annotations that keep their distance.
function labelEnds(ends, [low, high], height) {
  const gap = 15 / height, sorted = ends.map((e) => ({ ...e, at: (e.y - low) / (high - low) })).sort((a, b) => a.at - b.at);
  sorted.forEach((e, i) => { if (i) e.at = Math.max(e.at, sorted[i - 1].at + gap); });
  sorted.forEach((e, i) => { e.at = Math.min(e.at, Math.max(1, gap * (sorted.length - 1)) - gap * (sorted.length - 1 - i)); });
  return sorted.map((e) => ({ xref: "paper", yref: "paper", x: 1, xshift: 4, y: e.at, xanchor: "left", yanchor: "middle", showarrow: false, text: escaped(e.name), font: { size: 11, color: e.colour } }));
}

function describeEnd(curves, agents, measure, seeds, unit) {
  if (!agents.length) return "No agent is chosen.";
  const learners = agents.length > 1 ? agents.filter((a) => !isOptimal(a)) : agents;
  const last = learners.map((a) => ({ name: a.name, y: curves[a.name][measure].mean.at(-1), curve: curves[a.name] }));
  const best = last.reduce((a, b) => ((measure === "regret" ? b.y < a.y : b.y > a.y) ? b : a));
  const names = last.filter((l) => short(l.y) === short(best.y)).map((l) => l.name);
  const who = names.length === 1 ? `${names[0]} is` : `${names.slice(0, -1).join(", ")} and ${names.at(-1)} are`;
  const runs = [...new Set(last.map((l) => l.curve.runs))];
  const many = runs.length === 1 ? `${runs[0]} run${runs[0] === 1 ? "" : "s"} each` : `${Math.min(...runs)} to ${Math.max(...runs)} runs`;
  const { window, x } = best.curve, smooth = measure === "return" && window > 1 ? `, each point the mean of the last ${window} ${unit}s` : "";
  const shown = seeds ? "Mean (thick) and single runs (thin, at most 20 of an agent)" : "Mean and pointwise 95% band";
  const place = measure === "regret" ? "lowest" : "highest";
  return `${shown}, ${many}${smooth}. After ${x.at(-1).toLocaleString("en")} ${unit}s ${who} ${place} with ${short(best.y)}.`;
}
