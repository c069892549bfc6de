"use strict";
const box = document.getElementById("lightbox");
document.querySelectorAll(".zoom").forEach((button) => button.addEventListener("click", () => {
  const [small, large] = [button.querySelector("img"), box.querySelector("img")];
  large.src = small.src;
  large.alt = small.alt;
  box.showModal();
}));
box.addEventListener("click", (event) => { if (event.target === box) box.close(); });

const filter = document.getElementById("changed-only"), parameters = document.getElementById("parameters");
filter?.addEventListener("change", () => parameters.classList.toggle("only-changed", filter.checked));

const unfold = () => { const run = document.getElementById(location.hash.slice(1)); if (run && run.tagName === "DETAILS") run.open = true; };
addEventListener("hashchange", unfold);
unfold();

if (!matchMedia("(prefers-reduced-motion: reduce)").matches)
  document.querySelectorAll("video[data-main]").forEach((film) => film.play().catch(() => {}));
