"use strict";
const at = (id) => document.getElementById(id);
let state = null, waiting = false;

async function ask(what, given = {}) {
  if (waiting) return;
  waiting = true;
  document.body.setAttribute("aria-busy", "true");
  document.querySelectorAll("button").forEach((button) => { button.disabled = true; });
  at("message").textContent = what === "play" ? `${state.opponent} thinks …` : "";
  let error = "";
  try {
    const body = JSON.stringify({ plies: state ? state.moves.length : 0, ...given });
    const answer = await fetch(what, { method: "POST", headers: { "Content-Type": "application/json" }, body });
    const content = await answer.json();
    if (content.error) error = content.error;
    else state = content;
  } catch {
    error = "The command that serves this page has ended.";
  }
  waiting = false;
  document.body.removeAttribute("aria-busy");
  if (state) draw();
  if (error) at("message").textContent = error;
}

const share = (action) => state.opinion && state.opinion.policy ? `${Math.round(100 * state.opinion.policy[action])} %` : "";

function moveButton(action, text, label) {
  const button = document.createElement("button");
  button.textContent = text;
  button.setAttribute("aria-label", label);
  button.dataset.action = action;
  button.disabled = !state.legal.includes(action);
  button.classList.toggle("advised", Boolean(state.opinion) && state.opinion.action === action);
  button.addEventListener("click", () => ask("play", { action }));
  return button;
}

function drawBoard() {
  const rows = state.board || [], width = rows.length ? rows[0].length : 0, placed = new Set();
  const names = ["empty", state.colours[0], state.colours[1]];
  for (const id of ["columns", "board"]) at(id).style.setProperty("--width", width);
  at("columns").replaceChildren(...(state.in_columns ? rows[0].map((_, column) => {
    placed.add(column);
    return moveButton(column, share(column) ? `${column}: ${share(column)}` : `${column} ↓`, `play in column ${column}`);
  }) : []));
  at("board").replaceChildren(...rows.flatMap((row, line) => row.map((stone, column) => {
    const action = line * width + column, label = `row ${line}, column ${column}, ${names[stone]}`;
    const open = state.in_cells && state.legal.includes(action);
    const cell = open ? moveButton(action, share(action) || String(action), label) : document.createElement("div");
    if (state.in_cells) placed.add(action);
    cell.classList.add("cell", ["empty", "x", "o"][stone]);
    if (!open) { cell.setAttribute("role", "img"); cell.setAttribute("aria-label", label); }
    return cell;
  })));
  at("text").textContent = state.text;
  const others = state.legal.filter((action) => !placed.has(action));
  at("others").replaceChildren(...others.map((action) =>
    moveButton(action, `${action} ${share(action)}`.trim(), `play ${action}`)));
}

function draw() {
  const { person, colours, opponent, moves, opinion } = state;
  document.title = at("title").textContent = state.game;
  at("players").textContent = `You are ${colours[person]}, ${opponent} is ${colours[1 - person]}.`;
  drawBoard();
  at("message").textContent = state.ended || "Your turn.";
  at("moves").replaceChildren(...moves.map(([mover, action]) => {
    const entry = document.createElement("li");
    entry.textContent = `${colours[mover]} ${action}`;
    return entry;
  }));
  at("moves").scrollTop = at("moves").scrollHeight;
  at("undo").disabled = !moves.some(([mover]) => mover === person);
  at("hint").disabled = Boolean(state.ended);
  at("first").disabled = at("second").disabled = false;
  at("opinion").textContent = opinion ? `${opponent} would play ${opinion.action}.` +
    (opinion.value === null ? "" : ` Value for you: ${opinion.value.toFixed(2)} (−1 lost … 1 won).`) : "";
}

at("undo").addEventListener("click", () => ask("undo"));
at("hint").addEventListener("click", () => ask("opinion"));
at("first").addEventListener("click", () => ask("new", { person: 0 }));
at("second").addEventListener("click", () => ask("new", { person: 1 }));
ask("state");
