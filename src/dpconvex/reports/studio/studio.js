"use strict";
// Sends what the controls say and shows what comes back. Answers are fragments that the server has escaped.
const find = (id) => document.getElementById(id);

function value(input) {
  if (!("log" in input.dataset)) return Number(input.value);
  const number = 10 ** Number(input.value);
  return number >= 10 ? Math.round(number) : Number(number.toPrecision(2));
}

function complain(text) {
  const words = document.createElement("p");
  words.className = "bad";
  words.textContent = text;
  find("forecast").replaceChildren(words);
}

let waiting = 0;
let asked = 0;
function plan() {
  const wish = {};
  for (const control of find("wish").elements) {
    wish[control.name] = control.type === "range" ? value(control) : control.value;
    const shown = control.parentElement.querySelector("output");
    if (shown) shown.textContent = wish[control.name].toLocaleString("en");
  }
  for (const name of ["columns", "per_person"]) wish[name] = Math.max(1, Math.round(wish[name]));
  const chosen = find("wish").elements.task.selectedOptions[0].dataset;
  find("level").hidden = !chosen.level;
  find("level").firstElementChild.textContent = chosen.level;
  clearTimeout(waiting);
  // At once: no number stands beside a choice that it does not belong to.
  find("forecast").classList.add("waiting");
  find("forecast").setAttribute("aria-busy", "true");
  const number = ++asked;
  waiting = setTimeout(async () => {
    try {
      const answer = await fetch("/forecast", { method: "POST", body: JSON.stringify(wish) });
      const found = await answer.text();
      if (number === asked && answer.ok) find("forecast").innerHTML = found;
      if (number === asked && !answer.ok) complain(found);
    } catch (error) {
      if (number === asked) complain(error.message);
    }
    if (number === asked) {
      find("forecast").classList.remove("waiting");
      find("forecast").removeAttribute("aria-busy");
    }
  }, 100);
}
find("wish").addEventListener("input", plan);

plan();
