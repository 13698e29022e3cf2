"use strict";
// Controls and tables; figures come from charts.js.

// objects without a prototype, because an agent may be called constructor
const bare = (x) => Object.assign(Object.create(null), x);
const DATA = JSON.parse(document.getElementById("data").textContent, (_, v) => (v && typeof v === "object" && !Array.isArray(v) ? bare(v) : v));
const AGENTS = bare(Object.fromEntries(DATA.agents.map((a) => [a.name, a])));
const hidden = new Set();
const $ = (id) => document.getElementById(id);
const environment = () => DATA.environments.find((e) => e.name === $("env").value) || DATA.environments[0];
const present = () => DATA.agents.filter((a) => a.name in DATA.curves[environment().name]);
const fixed = (x, digits) => (x === null ? "–" : x.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
const setTheme = (dark) => (document.documentElement.dataset.theme = dark ? "dark" : "light");
const rowsHere = () => DATA.table.filter((r) => r.env === environment().name);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Fill a menu; the entry chosen before stays where it exists, else the wanted one is chosen.
function fillMenu(id, names, wanted = names[0]) {
  const chosen = names.includes($(id).value) ? $(id).value : wanted;
  $(id).replaceChildren(...names.map((n) => element("option", { value: n }, n)));
  $(id).value = chosen;
  return chosen;
}

function swatch(agent) {
  const dash = DASHES[agent.dash].replace("solid", "").replaceAll("px", ""), made = element("span");
  const line = `<line x1="1" x2="25" y1="5" y2="5" stroke-width="2.6" stroke="${colourOf(agent)}" stroke-dasharray="${dash}"/>`;
  const mark = `<path transform="translate(13 5) scale(4)" d="${MARKERS[agent.marker][1]}" fill="${colourOf(agent)}"/>`;
  made.innerHTML = `<svg class="swatch" viewBox="0 0 26 10" aria-hidden="true">${line}${mark}</svg>`;
  return made.firstChild;
}

function plot(id, figure) {
  const box = $(id);
  if (figure.height) box.style.height = `${figure.height}px`;
  if (isDark.printing) figure.layout.width = box.closest(".pair") ? 330 : 680;
  Plotly.react(box, figure.data, figure.layout, { displayModeBar: false, responsive: !isDark.printing, doubleClick: "reset" });
  if (figure.ends?.length) {
    const { range, _length } = box._fullLayout.yaxis;
    Plotly.relayout(box, { annotations: [...(figure.layout.annotations || []), ...labelEnds(figure.ends, range, _length)] });
  }
  $(`${id}-text`).textContent = figure.text;
}

// A table of rows {cells, class}; a cell is a node or text, or [text, class], and the first is the row's heading.
function fillTable(id, head, rows, words = 1) {
  const titles = head.map((n, i) => element("th", { scope: "col", class: i < words ? "words" : undefined }, n));
  const body = rows.map((row) => element("tr", { class: row.class }, ...row.cells.map((cell, i) => {
    if (i === 0) return element("th", { scope: "row" }, ...[cell].flat());
    const [text, kind] = Array.isArray(cell) ? cell : [cell, i < words ? "words" : undefined];
    return element("td", { class: kind }, text);
  })));
  $(id).replaceChildren(element("thead", {}, element("tr", {}, ...titles)), element("tbody", {}, ...body));
}

function drawCurves() {
  const { name, optimal, unit } = environment(), curves = DATA.curves[name];
  const agents = present().filter((a) => !hidden.has(a.name));
  const shared = { log: $("log").checked, seeds: $("seeds").checked, unit };
  $("learning-title").textContent = unit === "step" ? "What a step earns" : "What an episode earns";
  plot("learning", curvesChart(curves, agents, $("measure").value, { ...shared, optimal }));
  const regret = curvesChart(curves, agents, "regret", shared);
  if (shared.log && agents.some((a) => !(curves[a.name].regret.mean.at(-1) > 0))) regret.text += " An agent without regret has no line on a log scale.";
  plot("regret", regret);
}

// A share of the runs with its exact 95% interval.
const share = ([middle, low, high]) => middle === null ? "–" : `${fixed(100 * middle, 0)}% [${fixed(100 * low, 0)}, ${fixed(100 * high, 0)}]`;

function drawTable() {
  const { name, unit } = environment(), rows = rowsHere();
  const learners = rows.filter((r) => r.agent.toLowerCase() !== "optimal");
  const most = Math.max(...learners.map((r) => r.mean));
  const digits = Math.max(...rows.map((r) => Math.abs(r.mean))) >= 1000 ? 1 : 2;
  fillTable("totals", ["agent", "runs", `${unit}s`, "mean ± sd", "95% interval", "of optimum", `${unit}s lost`, "stuck"], rows.map((r) => ({
    class: learners.length > 1 && learners.includes(r) && (r.high ?? r.mean) >= most ? "best" : undefined,
    cells: [[swatch(AGENTS[r.agent]), r.agent], r.runs, r.episodes.toLocaleString("en"), `${fixed(r.mean, digits)} ± ${fixed(r.sd, digits)}`,
      r.low === null ? "–" : `${fixed(r.low, digits)} to ${fixed(r.high, digits)}`, r.share === null ? "–" : `${fixed(100 * r.share, 1)}%`, fixed(r.lost, 1), share(r.stuck)],
  })));
  $("totals").prepend(element("caption", {}, `Total return on ${name}`));
}

function drawChips() {
  const button = (attributes, children, change) => {
    const made = element("button", { type: "button", class: "chip", ...attributes }, ...children);
    made.addEventListener("click", () => { change(); drawChips(); drawCurves(); });
    return made;
  };
  const chips = present().map(({ name }) => button({ "aria-pressed": String(!hidden.has(name)), "data-agent": name },
    [swatch(AGENTS[name]), name], () => hidden.delete(name) || hidden.add(name)));
  const plain = { class: "chip plain" }, none = () => DATA.agents.forEach((a) => hidden.add(a.name));
  $("agents").replaceChildren(...chips, element("span", { class: "together" }, button(plain, ["all"], () => hidden.clear()), button(plain, ["none"], none)));
}

const drawAll = () => [drawChips, drawCurves, drawTable].forEach((draw) => draw());

function notice(text, lines) {
  const items = lines.slice(0, 20).map((l) => element("li", {}, l));
  if (items.length) $("notices").append(element("div", { class: "notice", role: "status" }, text, element("ul", {}, ...items)));
}

function drawOnce() {
  const places = DATA.environments.length;
  $("summary").textContent = `${DATA.runs.toLocaleString("en")} runs of ${DATA.agents.length} agents on ${places} environment${places === 1 ? "" : "s"}`;
  fillMenu("env", DATA.environments.map((e) => e.name));
  $("env").closest(".field").hidden = places < 2;
  notice(`${DATA.failures.length} runs failed and are not shown.`, DATA.failures.map((f) => `${f.env}, ${f.agent}, seed ${f.seed}: ${f.error}`));
  notice(`${DATA.problems.length} files could not be read and were left out.`, DATA.problems);
  if (DATA.made.length) $("commands").append(element("p", { class: "note" }, "Made by"), element("pre", {}, DATA.made.join("\n")));
  $("commands").append(element("p", { class: "note" }, "To make it again from this folder, and to read it"), element("pre", {}, DATA.commands.join("\n")));
  $("specs").append(...DATA.specs.map((s) => element("details", {}, element("summary", {}, s.file), element("pre", {}, s.text))));
  fillTable("settings", ["environment", "agent", "settings"], DATA.table.map((r) => ({ cells: [r.env, r.agent, r.settings] })), 3);
  $("foot").textContent = `Upriver ${DATA.version} · runs made on ${DATA.platforms.join("; ")}`;
}

const changes = { env: drawAll, log: drawCurves, seeds: drawCurves, measure: drawCurves };
for (const [id, draw] of Object.entries(changes)) $(id).addEventListener("change", draw);
const preferred = matchMedia("(prefers-color-scheme: dark)");
setTheme(preferred.matches);
preferred.addEventListener("change", (e) => { setTheme(e.matches); drawAll(); });
$("theme").addEventListener("click", () => { setTheme(!isDark()); drawAll(); });
for (const [event, printing] of [["beforeprint", true], ["afterprint", false]]) addEventListener(event, () => { isDark.printing = printing; drawAll(); });

// At first only the best learners are drawn.
DATA.agents.filter((a) => a.name.toLowerCase() !== "optimal").slice(MOST).forEach((a) => hidden.add(a.name));
[drawOnce, drawAll].forEach((draw) => draw());
for (const s of document.querySelectorAll("main > section:not([hidden])")) document.querySelector("nav").append(element("a", { href: `#${s.id}` }, s.querySelector("h2").textContent));
// plotly measures text in a drawing outside the page, which screen readers should ignore
$("js-plotly-tester")?.setAttribute("aria-hidden", "true");
