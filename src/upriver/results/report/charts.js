"use strict";
// Numbers to plotly figures. Each function returns {data, layout, text}; nothing here touches the page.

const DASHES = { solid: "solid", dash: "7px,3px", dot: "2px,2px", dashdot: "7px,2.5px,2px,2.5px" };

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function isDark() {
  return document.documentElement.dataset.theme === "dark" && !isDark.printing;
}

function colourOf(agent) {
  return isDark() ? agent.dark : agent.light;
}

function short(x) {
  if (x === null || x === undefined) return "–";
  const size = Math.abs(x);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return x.toExponential(2);
  return String(Number(x.toPrecision(4)));
}

function faded(colour, alpha) {
  const n = parseInt(colour.slice(1), 16);
  return `rgba(${n >> 16},${(n >> 8) & 255},${n & 255},${alpha})`;
}

function escaped(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

function baseLayout(xTitle, yTitle) {
  const axis = (title) => ({
    title: { text: title, font: { size: 12, color: css("--muted") }, standoff: 8 },
    gridcolor: css("--grid"), linecolor: css("--line"), zeroline: false, ticks: "outside",
    tickcolor: css("--line"), tickfont: { size: 11, color: css("--muted") }, automargin: true,
    showspikes: false,
  });
  return {
    xaxis: { ...axis(xTitle), showline: true },
    yaxis: { ...axis(yTitle), rangemode: "tozero" },
    margin: { l: 50, r: 12, t: 10, b: 42 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, color: css("--ink"), size: 12 },
    hoverlabel: {
      bgcolor: css("--card"), bordercolor: css("--line"),
      font: { size: 12, color: css("--ink"), family: getComputedStyle(document.body).fontFamily },
    },
    showlegend: false,
    dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "zoom",
  };
}

function band(x, curve, colour, floor) {
  const low = floor ? curve.low.map((y) => Math.max(y, floor)) : curve.low;
  const high = floor ? curve.high.map((y) => Math.max(y, floor)) : curve.high;
  return {
    x: x.concat([...x].reverse()), y: high.concat([...low].reverse()), type: "scatter",
    mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: faded(colour, 0.16), hoverinfo: "skip",
  };
}

function most(numbers) {
  return numbers.reduce((a, b) => Math.max(a, b));
}

function least(numbers) {
  return numbers.reduce((a, b) => Math.min(a, b));
}

// Lines with bands for the agents chosen; single runs instead of bands if asked for.
function curvesChart(curves, agents, measure, options) {
  const data = [];
  const positive = agents.flatMap((a) => curves[a.name][measure].mean.filter((y) => y > 0));
  const floor = options.log && positive.length ? least(positive) / 10 : 0;
  for (const agent of [...agents].reverse()) {
    const curve = curves[agent.name];
    const colour = colourOf(agent);
    if (options.seeds && agent.name.toLowerCase() !== "optimal") {
      const x = [], y = [];
      for (const run of curve.seeds[measure]) {
        x.push(...curve.seeds.x, null);
        y.push(...run, null);
      }
      data.push({ x, y, type: "scatter", mode: "lines", connectgaps: false, hoverinfo: "skip",
        line: { color: faded(colour, 0.45), width: 0.8 } });
    } else {
      data.push(band(curve.x, curve[measure], colour, floor));
    }
  }
  for (const agent of agents) {
    const curve = curves[agent.name];
    data.push({
      x: curve.x, y: curve[measure].mean, name: escaped(agent.name), type: "scatter", mode: "lines",
      line: { color: colourOf(agent), width: 2, dash: DASHES[agent.dash] },
      customdata: curve[measure].low.map((low, i) => [short(low), short(curve[measure].high[i])]),
      hovertemplate: "%{y:.4~g}  <i>%{customdata[0]} to %{customdata[1]}</i>",
    });
  }
  const unit = options.unit || "episode";
  const layout = baseLayout(unit, measure === "regret" ? "cumulative regret" : measure === "return" ? "return" : "value");
  layout.hovermode = "x unified";
  layout.xaxis.hoverformat = ",d";
  layout.xaxis.unifiedhovertitle = { text: `${unit} %{x}` };
  layout.hoverlabel.namelength = -1;
  if (options.optimal !== undefined && options.optimal !== null) {
    layout.shapes = [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: options.optimal, y1: options.optimal,
      line: { color: css("--ink"), width: 1.2, dash: "6px,4px" } }];
    layout.annotations = [{ xref: "paper", x: 1, xanchor: "right", y: options.optimal,
      yanchor: "bottom", showarrow: false, text: `V* = ${short(options.optimal)}`, font: { size: 11, color: css("--muted") } }];
  }
  const lines = (a) => (options.seeds && a.name.toLowerCase() !== "optimal" ? curves[a.name].seeds[measure].flat() : []);
  const tops = agents.flatMap((a) => curves[a.name][measure].high.concat(lines(a))).concat(options.optimal || 0);
  const bottoms = agents.flatMap((a) => curves[a.name][measure].low.concat(lines(a))).concat(0);
  if (tops.length > 1) layout.yaxis.range = [1.05 * least(bottoms), 1.1 * most(tops)];
  if (options.log) {
    layout.xaxis.type = "log";
    layout.xaxis.dtick = 1;
    if (measure === "regret") {
      layout.yaxis.type = "log";
      layout.yaxis.dtick = 1;
      layout.yaxis.exponentformat = "power";
      delete layout.yaxis.rangemode;
      delete layout.yaxis.range;
    }
  }
  return { data, layout, text: endings(curves, agents, measure, options.seeds, unit) };
}

function endings(curves, agents, measure, seeds, unit) {
  if (!agents.length) return "No agent is chosen.";
  const learners = agents.length > 1 ? agents.filter((a) => a.name.toLowerCase() !== "optimal") : agents;
  const last = learners.map((a) => {
    const c = curves[a.name];
    return [a.name, c[measure].mean.at(-1), c.x.at(-1), c];
  });
  const best = last.reduce((a, b) => ((measure === "regret" ? b[1] < a[1] : b[1] > a[1]) ? b : a));
  const equal = last.filter((l) => short(l[1]) === short(best[1])).map((l) => l[0]);
  const who = equal.length === 1 ? `${equal[0]} is` : `${equal.slice(0, -1).join(", ")} and ${equal.at(-1)} are`;
  const runs = new Set(last.map((l) => l[3].runs));
  const many = runs.size === 1 ? `${[...runs][0]} runs each` : `${Math.min(...runs)} to ${Math.max(...runs)} runs`;
  const how = measure === "return" && best[3].window > 1 ? `, each point the mean of the last ${best[3].window} ${unit}s` : "";
  const shown = seeds ? "Mean (thick) and single runs (thin, at most 20 of an agent)" : "Mean and pointwise 95% band";
  return `${shown}, ${many}${how}. After ${best[2].toLocaleString("en")} ${unit}s ${who} ${measure === "regret" ? "lowest" : "highest"} with ${short(best[1])}.`;
}

function heat(z, x, y, xTitle, yTitle, extra) {
  const layout = baseLayout(xTitle, yTitle);
  layout.xaxis.constrain = "domain";
  layout.yaxis.rangemode = "normal";
  layout.xaxis.showgrid = layout.yaxis.showgrid = false;
  const trace = {
    type: "heatmap", z, x, y, xgap: z[0].length < 60 ? 1 : 0, ygap: z.length < 60 ? 1 : 0,
    colorscale: "Cividis", colorbar: { thickness: 10, outlinewidth: 0, tickfont: { size: 11, color: css("--muted") }, len: 1 },
    ...extra,
  };
  return { data: [trace], layout };
}

function transposed(rows) {
  return rows[0].map((_, i) => rows.map((row) => row[i]));
}

function upTo(n) {
  return Array.from({ length: n }, (_, i) => i + 1);
}

const ACTION_COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#f0e442"];

function policyChart(detail) {
  const n = detail.n_actions;
  const name = (a) => (detail.actions ? detail.actions[a] : `action ${a}`);
  const scale = [];
  for (let a = 0; a < n; a++) {
    const c = ACTION_COLOURS[a % ACTION_COLOURS.length];
    scale.push([a / n, c], [(a + 1) / n, c]);
  }
  const z = transposed(detail.policy);
  const figure = heat(z, upTo(detail.horizon), upTo(detail.n_states), "step h", "state", {
    colorscale: scale, zmin: -0.5, zmax: n - 0.5, text: z.map((row) => row.map((a) => escaped(name(a)))),
    hovertemplate: "step %{x}, state %{y}<br>%{text}<extra></extra>",
  });
  figure.data[0].colorbar.tickvals = upTo(n).map((a) => a - 1);
  figure.data[0].colorbar.ticktext = upTo(n).map((a) => escaped(name(a - 1)));
  figure.text = "The action of the last plan at each step and state.";
  return figure;
}

function valuesChart(detail, against) {
  const minus = (a, b) => a.map((row, h) => row.map((v, s) => v - b[h][s]));
  const table = against === "gap" ? minus(detail.planned, detail.best) : detail[against];
  const z = transposed(table);
  const extra = { hovertemplate: "step %{x}, state %{y}<br>%{z:.4~g}<extra></extra>" };
  if (against === "gap") {
    const edge = most(z.flat().map(Math.abs).concat(1e-9));
    Object.assign(extra, { colorscale: isDark() ? DIVERGING.dark : DIVERGING.light, zmin: -edge, zmax: edge });
  }
  const figure = heat(z, upTo(detail.horizon), upTo(detail.n_states), "step h", "state", extra);
  const start = `${short(detail.planned[0][0])} planned and ${short(detail.best[0][0])} true`;
  figure.text = `Values over (h, s) that the last plan believed in; at the first state and step, ${start}.`;
  return figure;
}

const DIVERGING = {
  light: [[0, "#c25100"], [0.5, "#f7f7f5"], [1, "#00588a"]],
  dark: [[0, "#ff8a3d"], [0.5, "#22272b"], [1, "#56a8e0"]],
};

function visitsChart(detail) {
  const share = detail.visits.map((row) => {
    const total = row.reduce((a, b) => a + b, 0) || 1;
    return row.map((v) => v / total);
  });
  const from = [1, ...detail.until.slice(0, -1).map((k) => k + 1)];
  const spans = detail.until.map((k, i) => (k === from[i] ? `episode ${k}` : `episodes ${from[i]} to ${k}`));
  const z = transposed(share);
  const figure = heat(z, [0, ...detail.until], upTo(detail.n_states), "episode", "state", {
    zmin: 0, customdata: z.map(() => spans), xgap: 0,
    hovertemplate: "%{customdata}, state %{y}<br>%{z:.1%} of the steps<extra></extra>",
  });
  figure.data[0].colorbar.tickformat = ".0%";
  figure.text = "The share of steps spent in each state, as the run went on.";
  return figure;
}

function triplesChart(detail, colour) {
  const t = detail.triples;
  const name = (a) => escaped(detail.actions ? detail.actions[a] : `action ${a}`);
  const busiest = most(t.count.concat(1));
  const layout = baseLayout("true probability", "estimated probability");
  layout.xaxis.range = layout.yaxis.range = [-0.04, 1.04];
  delete layout.yaxis.rangemode;
  layout.hovermode = "closest";
  const data = [
    { x: [0, 1], y: [0, 1], mode: "lines", line: { color: css("--muted"), width: 1, dash: "4px,4px" }, hoverinfo: "skip" },
    {
      x: t.truth, y: t.estimate, mode: "markers", type: "scatter",
      marker: { color: faded(colour, 0.55), line: { color: colour, width: 1 },
        size: t.count.map((n) => 5 + 13 * Math.sqrt(n / busiest)) },
      text: t.s.map((s, i) => `state ${s + 1}, ${name(t.a[i])} → ${t.next[i] + 1}<br>${t.count[i].toLocaleString("en")} visits`),
      hovertemplate: "%{text}<br>estimate %{y:.3f}, truth %{x:.3f}<extra></extra>",
    },
  ];
  const seen = t.count.map((n, i) => [n, t.estimate[i], t.truth[i]]).filter(([n, e]) => n > 0 && e !== null);
  const error = seen.reduce((sum, [n, e, p]) => sum + n * Math.abs(e - p), 0) / seen.reduce((sum, [n]) => sum + n, 0);
  const text = seen.length ? `One point for each reachable triple, larger where (s, a) was visited more. Mean error, weighted by visits: ${short(error)}.` : "Nothing was visited.";
  return { data, layout, text };
}

function tuningChart(entry, agent) {
  const numeric = entry.lines.every((l) => l.x.every((x) => typeof x === "number"));
  const positive = numeric ? entry.lines.flatMap((l) => l.x.filter((x) => x > 0)) : [];
  const log = positive.length > 1 && Math.max(...positive) / Math.min(...positive) > 20;
  const zero = log ? Math.min(...positive) / 10 : 0;
  const place = (x) => (numeric ? (log && x <= 0 ? zero : x) : typeof x === "object" ? JSON.stringify(x) : String(x));
  const dashes = Object.values(DASHES), base = colourOf(agent), shades = entry.lines.length;
  const data = entry.lines.map((line, i) => ({
    x: line.x.map(place), y: line.mean, name: escaped(line.name || agent.name), type: "scatter", mode: "lines+markers",
    line: { color: faded(base, 1 - (0.65 * i) / Math.max(1, shades - 1)), width: 2, dash: dashes[i % dashes.length] },
    marker: { color: line.x.map((_, j) => (line.chosen.includes(j) ? css("--ink") : faded(base, 1 - (0.65 * i) / Math.max(1, shades - 1)))), size: line.x.map((_, j) => (line.chosen.includes(j) ? 14 : 6)), symbol: line.x.map((_, j) => (line.chosen.includes(j) ? "star" : "circle")), opacity: 1 },
    customdata: line.x.map((x, j) => [typeof x === "number" ? short(x) : place(x), short(line.low[j]), short(line.high[j])]),
    error_y: { type: "data", symmetric: false, array: line.high.map((h, j) => h - line.mean[j]), arrayminus: line.low.map((l, j) => line.mean[j] - l), width: 0, thickness: 1 },
    hovertemplate: `${escaped(entry.axis)} %{customdata[0]}<br>%{y:.5~g}  <i>%{customdata[1]} to %{customdata[2]}</i>`,
  }));
  const layout = baseLayout(entry.axis.replaceAll("_", " "), "score");
  layout.hovermode = "closest";
  layout.showlegend = entry.lines.length > 1;
  layout.legend = { orientation: "h", y: -0.22, font: { size: 11 } };
  if (log) {
    const decades = [];
    for (let e = Math.ceil(Math.log10(Math.min(...positive)) - 1e-9); e <= Math.log10(Math.max(...positive)) + 1e-9; e++) decades.push(e);
    layout.xaxis.type = "log";
    layout.xaxis.tickvals = decades.map((e) => 10 ** e);
    layout.xaxis.ticktext = decades.map((e) => (e >= -3 && e <= 3 ? String(Number((10 ** e).toPrecision(3))) : `10<sup>${e}</sup>`));
    if (entry.lines.some((l) => l.x.includes(0))) {
      layout.xaxis.tickvals.unshift(zero);
      layout.xaxis.ticktext.unshift("0");
    }
  }
  const best = entry.lines.flatMap((l) => l.chosen.map((j) => [l.x[j], l.name, l.mean[j]]))[0];
  const chosen = best ? ` Chosen (star): ${entry.axis} ${typeof best[0] === "number" ? short(best[0]) : place(best[0])}${best[1] ? ", " + best[1] : ""}, score ${short(best[2])}.` : "";
  return { data, layout, text: `Mean score of each grid point over ${entry.runs} tuning runs, with 95% intervals.${chosen}` };
}

function secondsChart(rows, agents, unit) {
  const shown = agents.map((a) => [a, rows.find((r) => r.agent === a.name)]).filter(([, r]) => r && r.seconds > 0).reverse();
  const layout = baseLayout(`seconds per 1,000 ${unit}s`, "");
  layout.xaxis.type = "log";
  layout.yaxis.rangemode = "normal";
  layout.yaxis.ticks = "";
  layout.yaxis.tickfont = { size: 12, color: css("--ink") };
  layout.yaxis.showgrid = false;
  layout.margin.l = 20;
  const data = [{
    type: "scatter", mode: "markers+text", x: shown.map(([, r]) => r.seconds), y: shown.map(([a]) => escaped(a.name)),
    marker: { size: 12, color: shown.map(([a]) => colourOf(a)) }, text: shown.map(([, r]) => ` ${short(r.seconds)}`),
    textposition: "middle right", textfont: { color: css("--muted"), size: 11 }, cliponaxis: false,
    hovertemplate: "%{y}: %{x:.3~g} s<extra></extra>",
  }];
  if (shown.length) {
    const times = shown.map(([, r]) => Math.log10(r.seconds));
    layout.xaxis.range = [Math.min(...times) - 0.25, Math.max(...times) + 0.5];
    layout.xaxis.dtick = layout.xaxis.range[1] - layout.xaxis.range[0] > 1.5 ? 1 : "D2";
  }
  const fastest = shown.length ? [...shown].sort((a, b) => a[1].seconds - b[1].seconds)[0] : null;
  return { data, layout, height: 90 + 30 * Math.max(1, shown.length), text: fastest ? `Planning and learning, median over runs; environment and evaluation are not counted. ${fastest[0].name} is quickest with ${short(fastest[1].seconds)} s.` : "No learner is chosen." };
}
