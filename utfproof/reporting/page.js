"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const find = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };

  // Certificates: canonical text stands once, in the last section; panels show it indented and give it out to the byte.
  const canonical = new Map(all("pre.canonical").map((pre) => [pre.dataset.digest, pre]));

  const pretty = (value, indent = "") => {
    if (value === null || typeof value !== "object") return JSON.stringify(value);
    const inner = indent + "  ";
    if (Array.isArray(value)) {
      if (value.every((item) => item === null || typeof item !== "object")) return `[${value.map((v) => JSON.stringify(v)).join(", ")}]`;
      return `[\n${value.map((item) => inner + pretty(item, inner)).join(",\n")}\n${indent}]`;
    }
    const lines = Object.entries(value).map(([key, item]) => `${inner}${JSON.stringify(key)}: ${pretty(item, inner)}`);
    return lines.length ? `{\n${lines.join(",\n")}\n${indent}}` : "{}";
  };

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = make("textarea", { value: text, className: "hidden" });
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };

  const panel = (digest) => {
    const text = canonical.get(digest).textContent;
    const button = make("button", { type: "button", textContent: "Copy canonical JSON" });
    const said = make("span", { className: "quiet" });
    said.setAttribute("role", "status");
    button.addEventListener("click", async () => {
      said.textContent = (await copy(text)) ? "copied" : "could not copy; download it instead";
    });
    const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    const link = make("a", { className: "download", href: url, download: `${digest}.json`, textContent: "Download" });
    link.setAttribute("aria-label", `Download certificate ${digest}`);
    const hint = make("code", { className: "quiet", textContent: `utfproof check ${digest}.json` });
    const shown = make("pre", { textContent: pretty(JSON.parse(text)), tabIndex: 0 });
    shown.setAttribute("role", "region");
    shown.setAttribute("aria-label", `Certificate ${digest}`);
    const notes = all(":scope > p", canonical.get(digest).parentElement).map((note) => note.cloneNode(true));
    return make("div", { className: "panel" }, make("div", { className: "actions" }, button, link, hint, said), ...notes, shown);
  };

  const folder = find("#_all-certificates");
  if (folder) folder.open = false;
  for (const entry of all("details.certificate")) {
    entry.addEventListener("toggle", () => {
      if (entry.open && !find(".panel", entry)) {
        const made = panel(find("pre.canonical", entry).dataset.digest);
        all(":scope > p", made).forEach((note) => note.remove());
        find(".body", entry).append(made);
      }
    });
  }
  for (const link of all("a.certificate")) {
    const button = make("button", { type: "button", className: "certificate" }, ...link.childNodes);
    button.dataset.certificate = link.dataset.certificate;
    button.setAttribute("aria-expanded", "false");
    link.replaceWith(button);
    button.addEventListener("click", () => {
      const row = button.closest("tr");
      if (row.nextElementSibling?.classList.contains("shown")) {
        row.nextElementSibling.remove();
        button.setAttribute("aria-expanded", "false");
        return;
      }
      const cell = make("td", { colSpan: 5 }, panel(button.dataset.certificate));
      row.after(make("tr", { className: "shown" }, cell));
      button.setAttribute("aria-expanded", "true");
    });
  }

  // Claims: fold, filter, sort.
  const table = find("table.claims");
  const order = [...table.tBodies];
  const claims = order.filter((body) => body.classList.contains("claim"));
  const sections = order.filter((body) => body.classList.contains("section"));
  // d_in and R_V^{l,h} are set with indices: marks of indices count neither in the text nor in what is searched for
  const fold = (text) => text.normalize("NFKC").toLowerCase().replace(/[_^{}]/g, "");
  const words = new Map(claims.map((claim) => [claim, fold(claim.textContent)]));
  const members = new Map(sections.map((section) => [section, []]));
  let current = null;
  for (const body of order) {
    if (members.has(body)) current = body;
    else members.get(current)?.push(body);
  }

  const setOpen = (claim, open) => {
    claim.classList.toggle("open", open);
    find("button.toggle", claim).setAttribute("aria-expanded", String(open));
  };
  claims.forEach((claim, number) => {
    const row = find("tr.evidence", claim);
    row.id = `_evidence-${number}`;
    find("button.toggle", claim).setAttribute("aria-controls", row.id);
    setOpen(claim, false);
    find("tr.summary", claim).addEventListener("click", (event) => {
      if (event.target.closest("a") || String(getSelection())) return;
      setOpen(claim, !claim.classList.contains("open"));
    });
  });

  const form = find("form.filters");
  const search = find("#_search");
  const broken = find("#_broken");
  const sort = find("#_sort");
  const selects = all("select[data-filter]");
  const count = find("#_count");

  const filter = () => {
    const wanted = fold(search.value).split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const claim of claims) {
      const fits =
        wanted.every((word) => words.get(claim).includes(word)) &&
        selects.every((select) => !select.value || claim.dataset[select.dataset.filter].split("\n").includes(select.value)) &&
        (!broken.checked || claim.classList.contains("broken"));
      claim.hidden = !fits;
      shown += fits;
    }
    for (const section of sections) section.hidden = Boolean(sort.value) || members.get(section).every((claim) => claim.hidden);
    count.textContent = `${shown} of ${claims.length} claims shown`;
  };

  const rank = new Map(["holds", "holds after repair", "fails as printed", "open"].map((verdict, index) => [verdict, index]));
  const keys = {
    place: (claim) => claim.id,
    notion: (claim) => claim.dataset.notion,
    verdict: (claim) => String(rank.get(claim.dataset.verdict) ?? 9),
    instance: (claim) => find("td.at", claim).textContent,
    evidence: (claim) => claim.dataset.evidence,
  };
  const collate = new Intl.Collator("en", { numeric: true }).compare;
  const arrange = () => {
    const name = sort.value.slice(0, -1);
    const sign = sort.value.endsWith("-") ? -1 : 1;
    const sorted = name ? [...claims].sort((a, b) => sign * collate(keys[name](a), keys[name](b))) : order;
    table.append(...(name ? sections : []), ...sorted);
    for (const heading of all("th[data-sort]", table)) {
      if (heading.dataset.sort === name) heading.setAttribute("aria-sort", sign < 0 ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    }
  };
  for (const heading of all("th[data-sort]", table)) {
    const button = make("button", { type: "button", className: "sort", textContent: heading.textContent });
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const name = heading.dataset.sort;
      sort.value = sort.value === `${name}+` ? `${name}-` : sort.value === `${name}-` ? "" : `${name}+`;
      update();
    });
  }

  // The address holds either a claim (#thm:name/part) or the state of the filters (#?verdict=open&q=words).
  const state = () => {
    const parts = new URLSearchParams();
    if (search.value.trim()) parts.set("q", search.value.trim());
    for (const select of selects) if (select.value) parts.set(select.dataset.filter, select.value);
    if (broken.checked) parts.set("broken", "1");
    if (sort.value) parts.set("sort", sort.value);
    const text = parts.toString();
    return text ? `#?${text}` : "";
  };
  const update = () => {
    arrange();
    filter();
    history.replaceState(null, "", state() || location.pathname + location.search);
  };
  const choose = (select, value) => {
    select.value = [...select.options].some((option) => option.value === value) ? value : "";
  };
  const restore = (text) => {
    const parts = new URLSearchParams(text);
    search.value = parts.get("q") ?? "";
    for (const select of selects) choose(select, parts.get(select.dataset.filter) ?? "");
    broken.checked = parts.has("broken");
    choose(sort, parts.get("sort") ?? "");
    arrange();
    filter();
  };
  const follow = () => {
    let name = location.hash.slice(1);
    if (name.startsWith("?")) return restore(name.slice(1));
    try {
      name = decodeURIComponent(name);
    } catch {
      return undefined;
    }
    const claim = claims.find((body) => body.id === name);
    if (claim) {
      if (claim.hidden) {
        form.reset();
        restore("");
      }
      setOpen(claim, true);
      claim.scrollIntoView();
    } else if (name.startsWith("certificate-")) {
      const entry = document.getElementById(name);
      if (entry instanceof HTMLDetailsElement) {
        entry.parentElement.open = entry.open = true;
        entry.scrollIntoView();
      }
    }
    return undefined;
  };

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", update);
  form.addEventListener("reset", () => setTimeout(update));
  find("#_open-all").addEventListener("click", () => claims.forEach((claim) => claim.hidden || setOpen(claim, true)));
  find("#_close-all").addEventListener("click", () => claims.forEach((claim) => setOpen(claim, false)));
  addEventListener("hashchange", follow);

  // Pictures: one host at a time.
  const hosts = all(".host");
  if (hosts.length) {
    const shape = find("#_shape");
    const construction = find("#_construction");
    const show = () => {
      let any = false;
      for (const host of hosts) {
        host.hidden = host.dataset.shape !== shape.value || host.dataset.construction !== construction.value;
        any ||= !host.hidden;
      }
      find("#_no-picture").hidden = any;
    };
    for (const select of [shape, construction]) select.addEventListener("change", show);
    shape.form.addEventListener("submit", (event) => event.preventDefault());
    show();
  }

  arrange();
  filter();
  follow();
})();
