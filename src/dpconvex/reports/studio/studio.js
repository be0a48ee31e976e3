"use strict";
// Sends what the controls say and shows what comes back. Answers are fragments that the server has escaped.
const find = (id) => document.getElementById(id);

// The session is kept for this tab and origin alone; a cookie would reach other ports of the machine.
async function enter() {
  const token = location.hash.slice(1);
  if (!token) return;
  history.replaceState(null, "", "/");
  const answer = await fetch("/session", { method: "POST", body: token });
  if (!answer.ok) return;
  const found = await answer.json();
  sessionStorage.setItem("session", found.session);
  sessionStorage.setItem("ledger", found.ledger ? "yes" : "");
}

async function send(path, body) {
  const headers = { "X-Studio": sessionStorage.getItem("session") || "" };
  const answer = await fetch(path, { method: body === undefined ? "GET" : "POST", body, headers });
  if (answer.ok) return answer;
  throw new Error(await answer.text());
}

function complain(place, error) {
  const words = document.createElement("p");
  words.className = "bad";
  words.textContent = error.message;
  find(place).replaceChildren(words);
}

for (const tab of document.querySelectorAll('[role="tab"]')) {
  tab.addEventListener("click", () => {
    for (const other of document.querySelectorAll('[role="tab"]')) {
      other.setAttribute("aria-selected", String(other === tab));
      find(other.getAttribute("aria-controls")).hidden = other !== tab;
    }
    if (tab.id === "tab-ledger") showLedger();
  });
}

function value(input) {
  if (!("log" in input.dataset)) return Number(input.value);
  const number = 10 ** Number(input.value);
  return number >= 10 ? Math.round(number) : Number(number.toPrecision(2));
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
  find("wanted").hidden = !chosen.planned;
  clearTimeout(waiting);
  // At once: no number stands beside a choice that it does not belong to.
  find("forecast").classList.add("waiting");
  find("forecast").setAttribute("aria-busy", "true");
  const number = ++asked;
  waiting = setTimeout(async () => {
    try {
      const found = await (await send("/forecast", JSON.stringify(wish))).text();
      if (number === asked) find("forecast").innerHTML = found;
    } catch (error) {
      if (number === asked) complain("forecast", error);
    }
    if (number === asked) {
      find("forecast").classList.remove("waiting");
      find("forecast").removeAttribute("aria-busy");
    }
  }, 100);
}
find("wish").addEventListener("input", plan);

let typed = 0;
function checkSchema() {
  clearTimeout(typed);
  typed = setTimeout(async () => {
    try {
      find("schema-result").innerHTML = await (await send("/schema", find("toml").value)).text();
    } catch (error) {
      complain("schema-result", error);
    }
  }, 200);
}
find("toml").addEventListener("input", checkSchema);
find("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([find("toml").value], { type: "text/plain" }));
  link.download = "bounds.toml";
  link.click();
});

async function showLedger() {
  try {
    find("timeline").innerHTML = await (await send("/ledger")).text();
  } catch (error) {
    complain("timeline", error);
  }
}

async function verify(file) {
  try {
    const found = await (await send("/model", file)).json();
    find("verdict").innerHTML = found.verdict;
    find("report").srcdoc = found.report;
    find("report").hidden = !found.report;
  } catch (error) {
    find("report").hidden = true;
    complain("verdict", error);
  }
}
find("file").addEventListener("change", (event) => event.target.files.length && verify(event.target.files[0]));
for (const kind of ["dragover", "dragleave", "drop"]) {
  find("drop").addEventListener(kind, (event) => {
    event.preventDefault();
    find("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files.length) verify(event.dataTransfer.files[0]);
  });
}

enter().finally(() => {
  find("tab-ledger").hidden = !sessionStorage.getItem("ledger");
  plan();
  checkSchema();
});
