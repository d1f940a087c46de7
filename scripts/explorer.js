"use strict";
// The numbers stand in the page (DATA): nothing is fetched.
const DATA = JSON.parse(document.getElementById("data").textContent);
const controls = ["H", "L", "d", "b"].map((name) => document.getElementById(name));
const stream = document.getElementById("stream");
const targets = document.getElementById("targets");
const known = document.getElementById("known");

function cell(row, text, className) {
  const made = document.createElement("td");
  made.textContent = text;
  if (className) made.className = className;
  row.append(made);
}

function show() {
  const [H, L, d, b] = controls.map((control) => Number(control.value));
  controls.forEach((control) => { document.getElementById(control.id + "-value").textContent = control.value; });
  const shape = [H, L, d, b, Number(stream.checked)].join(",");
  const found = DATA.shapes[shape];
  const body = document.getElementById("rows");
  body.replaceChildren();
  document.getElementById("shape").textContent =
    `(H, L, d, d_in) = (${H}, ${L}, ${d}, ${b})` + (stream.checked ? ", with a residual stream" : "");
  if (found === undefined) {
    document.getElementById("paper").textContent = "";
    const row = document.createElement("tr");
    cell(row, "not computed for this page: run utfproof frontier");
    row.firstChild.colSpan = 4;
    body.append(row);
    return;
  }
  DATA.notions.forEach((notion, index) => {
    const [lower, upper, below, above] = found[1][index * DATA.targets.length + Number(targets.value)];
    const row = document.createElement("tr");
    cell(row, notion);
    cell(row, lower === upper ? String(lower) : `${lower} … ${upper === 0 ? "no host known" : upper}`, "m");
    cell(row, DATA.bounds[below]);
    cell(row, DATA.bounds[above]);
    body.append(row);
  });
  const [paper, looped] = found[0];
  document.getElementById("paper").textContent = paper === 0 ? "The paper has no residual stream."
    : `The paper's dimension is ${paper}, for looped hosts ${looped}.`;
}

for (const control of [...controls, stream, targets]) control.addEventListener("input", show);
known.addEventListener("input", () => {
  if (known.value === "") return;
  const [H, L, d, b, residual] = known.value.split(",").map(Number);
  const values = { H, L, d, b };
  controls.forEach((control) => {
    control.max = Math.max(Number(control.max), values[control.id]);
    control.value = values[control.id];
  });
  stream.checked = Boolean(residual);
  show();
});
show();
