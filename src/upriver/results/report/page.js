"use strict";
// Controls and tables; figures come from charts.js.

// objects without a prototype: an agent may be called constructor
const bare = (x) => Object.assign(Object.create(null), x);
const DATA = JSON.parse(document.getElementById("data").textContent, (_, v) => (v && typeof v === "object" && !Array.isArray(v) ? bare(v) : v));
const AGENTS = bare(Object.fromEntries(DATA.agents.map((a) => [a.name, a])));
const state = { env: DATA.environments[0].name, hidden: new Set(), log: false, seeds: false };
const $ = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

function options(select, names, chosen) {
  select.replaceChildren(...names.map((n) => {
    const made = element("option", { value: n }, n);
    made.selected = n === chosen;
    return made;
  }));
}

function swatch(agent) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "swatch");
  svg.setAttribute("viewBox", "0 0 26 10");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  const dash = agent.dash === "solid" ? "" : DASHES[agent.dash].replaceAll("px", "");
  for (const [k, v] of Object.entries({ x1: 1, x2: 25, y1: 5, y2: 5, stroke: colourOf(agent), "stroke-width": 2.6, "stroke-dasharray": dash })) line.setAttribute(k, v);
  svg.append(line);
  return svg;
}

function plot(id, figure) {
  const box = $(id);
  if (figure.height) box.style.height = `${figure.height}px`;
  if (plot.width) figure.layout.width = plot.width(box);
  Plotly.react(box, figure.data, figure.layout, {
    displayModeBar: false, responsive: !plot.width, doubleClick: "reset",
  });
  $(`${id}-text`).textContent = figure.text;
}

function present() {
  return DATA.agents.filter((a) => a.name in DATA.curves[state.env]);
}

function learners() {
  return present().filter((a) => !["optimal", "random", "always"].includes(a.name.toLowerCase()));
}

function environment() {
  return DATA.environments.find((e) => e.name === state.env);
}

function drawCurves() {
  const curves = DATA.curves[state.env];
  const agents = present().filter((a) => !state.hidden.has(a.name));
  const { optimal, unit } = environment();
  const shared = { log: state.log, seeds: state.seeds, unit };
  $("learning-title").textContent = unit === "step" ? "What a step earns" : "What an episode earns";
  plot("learning", curvesChart(curves, agents, $("measure").value, { ...shared, optimal }));
  const regret = curvesChart(curves, agents, "regret", shared);
  if (state.log && agents.some((a) => !(curves[a.name].regret.mean.at(-1) > 0))) regret.text += " An agent without regret has no line on a log scale.";
  plot("regret", regret);
}

function drawTime() {
  const rows = DATA.table.filter((r) => r.env === state.env);
  plot("seconds", secondsChart(rows, learners().filter((a) => !state.hidden.has(a.name)), environment().unit));
}

function drawInside() {
  const kept = DATA.detail[state.env] || {};
  const names = present().map((a) => a.name).filter((n) => n in kept);
  const any = Object.keys(DATA.detail).length > 0;
  $("inside").hidden = !any;
  $("inside-charts").hidden = !names.length;
  if (!any) return;
  const select = $("inside-agent");
  const wanted = names.includes(select.value) ? select.value : names.find((n) => n.toLowerCase() === "ucrl-mnl") || names.find((n) => n.toLowerCase() !== "optimal") || names[0];
  options(select, names, wanted);
  $("inside-note").textContent = names.length
    ? "The first run that kept its last plan; every tenth seed does, on problems that are small enough to draw."
    : "No run on this environment kept its last plan: only seeds that are multiples of ten do, and only on problems small enough to draw.";
  if (!names.length) return;
  const detail = kept[wanted];
  plot("policy", policyChart(detail));
  plot("values", valuesChart(detail, $("against").value));
  plot("visits", visitsChart(detail));
  $("triples").closest("figure").hidden = !detail.triples;
  if (detail.triples) plot("triples", triplesChart(detail, colourOf(AGENTS[wanted])));
}

function drawTuning() {
  const places = Object.keys(DATA.tuning);
  $("tuning").hidden = !places.length;
  if (!places.length) return;
  const env = places.includes($("tuning-env").value) ? $("tuning-env").value : places.includes(state.env) ? state.env : places[0];
  options($("tuning-env"), places, env);
  const names = Object.keys(DATA.tuning[env]);
  const agent = names.includes($("tuning-agent").value) ? $("tuning-agent").value : names[0];
  options($("tuning-agent"), names, agent);
  const look = AGENTS[agent] || { name: agent, light: "#0072b2", dark: "#56a8e0", dash: "solid" };
  plot("grid", tuningChart(DATA.tuning[env][agent], look));
}

function cell(text, kind) {
  return element("td", { class: kind }, text);
}

function head(names, words = 1) {
  return element("thead", {}, element("tr", {}, ...names.map((n, i) => element("th", { scope: "col", class: i < words ? "words" : undefined }, n))));
}

function fixed(x, digits) {
  return x === null ? "–" : x.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function drawTable() {
  const table = $("totals");
  const rows = DATA.table.filter((r) => r.env === state.env);
  const unit = environment().unit;
  const learners = rows.filter((r) => r.agent.toLowerCase() !== "optimal");
  const most = Math.max(...learners.map((r) => r.mean));
  const among = (r) => learners.length > 1 && learners.includes(r) && r.high >= most;
  const digits = Math.max(...rows.map((r) => Math.abs(r.mean))) >= 1000 ? 1 : 2;
  table.replaceChildren(
    element("caption", {}, `Total return on ${state.env}`),
    head(["agent", "runs", `${unit}s`, "mean ± sd", "95% interval", "IQM", "of optimum", `${unit}s lost`]),
    element("tbody", {}, ...rows.map((r) => element("tr", { class: among(r) ? "best" : undefined },
      element("th", { scope: "row" }, swatch(AGENTS[r.agent]), r.agent),
      cell(r.runs), cell(r.episodes.toLocaleString("en")), cell(`${fixed(r.mean, digits)} ± ${fixed(r.sd, digits)}`),
      cell(`${fixed(r.low, digits)} to ${fixed(r.high, digits)}`), cell(fixed(r.iqm, digits)),
      cell(r.share === null ? "–" : `${fixed(100 * r.share, 1)}%`), cell(fixed(r.lost, 1))))));
}

function drawPaper() {
  $("paper").hidden = !DATA.paper.length;
  const rows = DATA.paper.map((r) => {
    const ratio = r.paper_mean ? r.mean / r.paper_mean : null;
    return element("tr", {}, element("th", { scope: "row" }, r.method), cell(`${r.n_states}, ${r.horizon}`), cell(r.episodes), cell(r.runs),
      cell(`${fixed(r.mean, 2)} ± ${fixed(r.sd, 2)}`), cell(`${fixed(r.ci_low, 2)} to ${fixed(r.ci_high, 2)}`),
      r.paper_mean === null ? cell("not printed", "none") : cell(`${fixed(r.paper_mean, 2)} ± ${fixed(r.paper_sd, 2)}`),
      cell(ratio === null ? "–" : ratio.toFixed(2)));
  });
  $("printed").replaceChildren(head(["method", "S, H", "episodes", "runs", "ours", "95% interval", "printed", "ratio"]), element("tbody", {}, ...rows));
}

function drawChips() {
  const chips = present().map((agent) => {
    const made = element("button", { type: "button", class: "chip", "aria-pressed": String(!state.hidden.has(agent.name)), "data-agent": agent.name }, swatch(agent), agent.name);
    made.addEventListener("click", () => {
      if (!state.hidden.delete(agent.name)) state.hidden.add(agent.name);
      made.setAttribute("aria-pressed", String(!state.hidden.has(agent.name)));
      drawCurves();
      drawTime();
    });
    return made;
  });
  const all = (label, hide) => {
    const made = element("button", { type: "button", class: "chip plain" }, label);
    made.addEventListener("click", () => {
      state.hidden = new Set(hide ? DATA.agents.map((a) => a.name) : []);
      drawChips();
      drawCurves();
      drawTime();
    });
    return made;
  };
  $("agents").replaceChildren(...chips, element("span", { class: "together" }, all("all", false), all("none", true)));
}

function drawAll() {
  drawChips();
  drawCurves();
  drawTable();
  drawInside();
  drawTuning();
  drawTime();
}

function once() {
  const seeds = DATA.environments.length === 1 ? "1 environment" : `${DATA.environments.length} environments`;
  $("summary").textContent = `${DATA.runs.toLocaleString("en")} runs of ${DATA.agents.length} agents on ${seeds}`;
  options($("env"), DATA.environments.map((e) => e.name), state.env);
  drawPaper();
  if (DATA.failures.length) notice(`${DATA.failures.length} runs failed and are not shown.`, DATA.failures.map((f) => `${f.env}, ${f.agent}, seed ${f.seed}: ${f.error}`));
  for (const note of DATA.notes) $("notices").append(element("p", { class: "note" }, note));
  if (DATA.problems.length) notice(`${DATA.problems.length} files could not be read and were left out.`, DATA.problems);
  $("commands").append(element("pre", {}, DATA.commands.join("\n")));
  $("specs").append(...DATA.specs.map((s) => element("details", {}, element("summary", {}, s.file), element("pre", {}, s.text))));
  $("settings").append(head(["environment", "agent", "numbers"], 3), element("tbody", {}, ...DATA.table.map((r) => element("tr", {}, element("th", { scope: "row" }, r.env), cell(r.agent, "words"), cell(r.settings, "words")))));
  $("foot").textContent = `Upriver ${DATA.version} · runs made on ${DATA.platforms.join("; ")}`;
}

function notice(text, lines) {
  const more = lines.slice(0, 20).map((l) => element("li", {}, l));
  $("notices").append(element("div", { class: "notice", role: "status" }, text, element("ul", {}, ...more)));
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

const preferred = window.matchMedia("(prefers-color-scheme: dark)");
setTheme(preferred.matches ? "dark" : "light");
preferred.addEventListener("change", (e) => { setTheme(e.matches ? "dark" : "light"); drawAll(); });
$("theme").addEventListener("click", () => { setTheme(isDark() ? "light" : "dark"); drawAll(); });
$("env").addEventListener("change", (e) => { state.env = e.target.value; $("tuning-env").value = state.env; drawAll(); });
$("log").addEventListener("change", (e) => { state.log = e.target.checked; drawCurves(); });
$("seeds").addEventListener("change", (e) => { state.seeds = e.target.checked; drawCurves(); });
$("measure").addEventListener("change", drawCurves);
$("against").addEventListener("change", drawInside);
$("inside-agent").addEventListener("change", drawInside);
for (const id of ["tuning-env", "tuning-agent"]) $(id).addEventListener("change", drawTuning);
window.addEventListener("beforeprint", () => {
  isDark.printing = true;
  plot.width = (box) => (box.closest(".pair") ? 330 : 680);
  drawAll();
});
window.addEventListener("afterprint", () => {
  isDark.printing = false;
  plot.width = null;
  drawAll();
});

once();
drawAll();
$("env").closest(".field").hidden = DATA.environments.length < 2;
document.querySelector("nav").append(...[...document.querySelectorAll("main > section:not([hidden])")].map((s) => element("a", { href: `#${s.id}` }, s.querySelector("h2").textContent)));
// plotly measures text in a drawing outside the page, which nobody should be told about
$("js-plotly-tester")?.setAttribute("aria-hidden", "true");
