"use strict";
(() => {
  const claims = [...document.querySelectorAll("details.claim")];
  const form = document.querySelector("form");
  if (form && claims.length) {
    const fold = (text) => text.normalize("NFKC").toLowerCase().replace(/[_^{}]/g, "");
    const words = new Map(claims.map((claim) => [claim, fold(claim.textContent)]));
    const filter = () => {
      const wanted = fold(form.q.value).split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const claim of claims) {
        const fits = [...form.querySelectorAll("select")].every(
          (select) => !select.value || claim.dataset[select.name].split("\n").includes(select.value));
        claim.hidden = !fits || !wanted.every((word) => words.get(claim).includes(word));
        shown += !claim.hidden;
      }
      for (const section of document.querySelectorAll("section.claims"))
        section.hidden = !section.querySelector("details.claim:not([hidden])");
      document.getElementById("count").textContent = `${shown} of ${claims.length} claims shown`;
    };
    form.hidden = false;
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    filter();
  }
  const follow = () => {
    for (let at = document.getElementById(decodeURIComponent(location.hash.slice(1))); at; at = at.parentElement)
      if (at instanceof HTMLDetailsElement) at.open = true;
  };
  addEventListener("hashchange", follow);
  follow();
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((entry) => { entry.open = true; }));
})();
