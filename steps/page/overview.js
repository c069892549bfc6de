"use strict";
const table = document.getElementById("experiments"), text = document.getElementById("text"), whole = document.getElementById("whole");
const boxes = [...document.querySelectorAll("[name=state]")], rows = table ? [...table.tBodies[0].rows] : [];
const words = new Map(rows.map((row) => [row, [row.dataset.state, row.dataset.algorithm, row.dataset.game, row.dataset.started,
  row.querySelector("th").textContent, row.querySelector("th small")?.title ?? ""].join(" ").toLowerCase()]));
const NUMBERS = new Set(["value", "fraction", "spent"]);
let sorted = "", down = false;

const filter = () => {
  const wanted = text.value.toLowerCase().split(/\s+/).filter(Boolean), states = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
  let shown = 0;
  for (const row of rows) {
    const fits = (!states.size || states.has(row.dataset.state)) && (!whole.checked || row.dataset.kind === "study" || row.dataset.kind === "search")
      && wanted.every((word) => words.get(row).includes(word));
    row.hidden = !fits;
    shown += fits;
  }
  document.getElementById("shown").textContent = shown === rows.length ? "" : `${shown} of ${rows.length} shown`;
};

const compare = (a, b) => {
  const [x, y] = [a.dataset[sorted], b.dataset[sorted]];
  if (x === "" || y === "") return (x === "") - (y === "");
  const order = NUMBERS.has(sorted) ? x - y : x < y ? -1 : x > y ? 1 : 0;
  return down ? -order : order;
};

const sort = () => {
  table?.querySelectorAll("thead button").forEach((button) => {
    const own = button.dataset.key === sorted;
    if (own) button.parentElement.setAttribute("aria-sort", down ? "descending" : "ascending");
    else button.parentElement.removeAttribute("aria-sort");
  });
  if (sorted) table?.tBodies[0].append(...[...rows].sort(compare));
};

const keep = () => history.replaceState(null, "", "#" + new URLSearchParams(
  [["q", text.value], ["sort", sorted], ["down", down ? "1" : ""], ["whole", whole.checked ? "1" : ""],
    ...boxes.filter((box) => box.checked).map((box) => ["state", box.value])].filter(([, value]) => value)));

const restore = () => {
  const kept = new URLSearchParams(location.hash.slice(1));
  text.value = kept.get("q") ?? "";
  whole.checked = kept.has("whole");
  down = kept.has("down");
  boxes.forEach((box) => { box.checked = kept.getAll("state").includes(box.value); });
  const key = kept.get("sort");
  sorted = [...document.querySelectorAll("thead button")].some((button) => button.dataset.key === key) ? key : "";
};

document.getElementById("choice").addEventListener("input", () => { filter(); keep(); });
document.getElementById("choice").addEventListener("submit", (event) => event.preventDefault());
table?.querySelectorAll("thead button").forEach((button) => button.addEventListener("click", () => {
  const key = button.dataset.key;
  // The largest number and the newest start come first, the first letter otherwise.
  down = key === sorted ? !down : NUMBERS.has(key) || key === "started";
  sorted = key;
  sort();
  keep();
}));
restore();
filter();
sort();

if (table?.dataset.served !== undefined && rows.some((row) => row.dataset.state === "running"))
  setInterval(() => { if (!document.hidden && document.activeElement !== text) location.reload(); }, 20000);
