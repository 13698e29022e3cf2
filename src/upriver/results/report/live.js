"use strict";
// Ask the server how the sweep goes, and show it, until it is finished.

const $ = (id) => document.getElementById(id);
const EVERY = 1000, SELDOM = 5000;
let last = null;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) if (value) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function clock(seconds) {
  const all = Math.round(seconds), hours = Math.floor(all / 3600), minutes = Math.floor((all % 3600) / 60);
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${all % 60} s` : `${all} s`;
}

function number(x, digits) {
  return x === null ? "–" : x.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function row(group) {
  const fill = element("i");
  fill.style.width = `${(100 * group.done) / Math.max(1, group.total)}%`;
  const bar = element("div", { class: "progress", "aria-hidden": "true" }, fill);
  const mean = group.sd === null ? number(group.mean, 2) : `${number(group.mean, 2)} ± ${number(group.sd, 2)}`;
  return element("tr", { class: group.best ? "best" : "" }, element("th", { scope: "row" }, group.agent),
    element("td", {}, bar), element("td", {}, `${group.done} / ${group.total}`), element("td", { class: group.failed ? "bad" : "none" }, group.failed ? String(group.failed) : "–"),
    element("td", {}, mean), element("td", {}, number(group.lost, 1)));
}

function title(env) {
  return element("tr", { class: "group" }, element("th", { scope: "rowgroup", colspan: "6" }, env));
}

function show(found) {
  last = found;
  const left = found.left === null ? "" : ` · about ${clock(found.left)} left`;
  const failed = found.failed ? ` · ${found.failed} failed` : "";
  $("status").textContent = `${found.state[0].toUpperCase()}${found.state.slice(1)} · ${found.done.toLocaleString("en")} of ${found.total.toLocaleString("en")} runs${failed}${left}`;
  document.body.dataset.state = found.state;
  $("bar").firstChild.style.width = `${(100 * found.done) / Math.max(1, found.total)}%`;
  $("bar").setAttribute("aria-valuemax", found.total);
  $("bar").setAttribute("aria-valuenow", found.done);
  const names = [...new Set(found.groups.map((g) => g.env))];
  const select = $("env");
  if (names.length + 1 !== select.options.length) {
    const chosen = select.value;
    select.replaceChildren(element("option", {}, "all"), ...names.map((n) => element("option", { value: n }, n)));
    select.options[0].value = "";
    select.value = names.includes(chosen) ? chosen : "";
  }
  const head = ["agent", "", "runs", "failed", "mean return", "episodes lost"];
  const rows = found.groups.filter((g) => !select.value || g.env === select.value);
  const more = found.more ? [element("tr", {}, element("td", { colspan: "6", class: "none" }, `and ${found.more} more`))] : [];
  $("groups").replaceChildren(element("thead", {}, element("tr", {}, ...head.map((h, i) => element("th", { scope: "col", class: i < 1 ? "words" : "" }, h)))), element("tbody", {}, ...rows.flatMap((g, i) => (i && rows[i - 1].env === g.env ? [row(g)] : [title(g.env), row(g)])), ...more));
  const notices = [];
  if (found.failures.length) {
    const lines = found.failures.slice(0, 10).map((f) => element("li", {}, `${f.env}, ${f.agent}, seed ${f.seed}: ${f.error}`));
    notices.push(element("div", { class: "notice" }, `${found.failed} runs failed`, element("ul", {}, ...lines)));
  }
  if (found.unreadable) notices.push(element("div", { class: "notice" }, `${found.unreadable} files cannot be read`));
  $("notices").replaceChildren(...notices);
}

async function look() {
  let wait = EVERY;
  try {
    const answer = await fetch("/status.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const found = await answer.json();
    show(found);
    if (found.state === "finished") wait = SELDOM;
  } catch {
    $("status").textContent = `${last ? `${last.done} of ${last.total} runs when last seen · ` : ""}no answer: upriver watch has ended`;
    wait = SELDOM;
  }
  setTimeout(look, wait);
}

const preferred = window.matchMedia("(prefers-color-scheme: dark)");
document.documentElement.dataset.theme = preferred.matches ? "dark" : "light";
$("theme").addEventListener("click", () => {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
});
$("env").addEventListener("change", () => last && show(last));
look();
