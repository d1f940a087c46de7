"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  // Light or dark: the system's choice until the button is pressed.
  const button = document.querySelector("#_theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => {
    button.textContent = dark() ? "Light page" : "Dark page";
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    show();
  });
  system.addEventListener("change", show);
  show();

  // On paper everything is open.
  const paper = matchMedia("print");
  let closed = [];
  const unfold = () => {
    if (paper.matches) closed = [...document.querySelectorAll("details:not([open])")];
    for (const entry of closed) entry.open = paper.matches;
  };
  paper.addEventListener("change", unfold);
  unfold();
})();
