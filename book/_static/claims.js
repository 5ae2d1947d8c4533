/* The page of the claims: search, filter and sort the table and the evidence; follow the dependencies in the graph.
   The page is complete without this script. It asks nothing of any host, and works from file://. */
(() => {
  "use strict";

  const COLUMNS = ["claim", "where", "kind", "statement", "status", "holds instead", "checked in"];
  const STATUSES = ["verified", "corrected", "refuted", "not checked"];

  document.addEventListener("DOMContentLoaded", () => {
    const table = [...document.querySelectorAll("table")].find(isTableOfClaims);
    const graph = document.querySelector(".claims-graph svg");
    if (table) addFilter(table, [...table.tBodies[0].rows].map(described), graph);
    addEventListener("hashchange", showTarget);
    showTarget();
    if (graph) followDependencies(graph);
  });

  function isTableOfClaims(table) {
    const titles = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    return titles.join() === COLUMNS.join();
  }

  /* What is known of a row; a search also looks at the claim's section (label, assumptions, tests). */
  function described(row, place) {
    const [claim, where, kind, , status] = [...row.cells].map((cell) => cell.textContent.trim());
    const section = document.getElementById(claim.toLowerCase());
    const known = {
      row, place, claim, kind, section,
      status: STATUSES.find((name) => status.slice(2).startsWith(name)),
      part: where.split(", ").pop(),
      text: `${row.textContent} ${section ? section.textContent : ""}`.toLowerCase(),
    };
    row.dataset.status = known.status;
    [...row.cells].forEach((cell, column) => { if (cell.textContent.trim()) cell.dataset.title = COLUMNS[column]; });
    return known;
  }

  function addFilter(table, rows, graph) {
    const filter = document.createElement("form");
    filter.id = "claims-filter";
    filter.setAttribute("role", "search");
    filter.setAttribute("aria-label", "Filter the claims");
    filter.innerHTML = `
      <label class="search">Search <input type="search" id="claims-search" autocomplete="off"></label>
      <fieldset><legend>Status (none chosen: all)</legend></fieldset>
      <label>Kind <select id="claims-kind"></select></label>
      <label>Part of the paper <select id="claims-part"></select></label>
      <button type="reset">Show all</button>
      <p id="claims-count" role="status" aria-live="polite"></p>`;
    const marks = new Map(rows.map(({ row, status }) => [status, row.cells[4].textContent.trim()[0]]));
    for (const status of STATUSES) {
      const label = document.createElement("label");
      const count = rows.filter((known) => known.status === status).length;
      label.dataset.look = status;
      label.innerHTML = `<input type="checkbox" data-status="${status}"> <span></span>`;
      label.lastChild.textContent = `${marks.get(status) || ""} ${status} (${count})`;
      filter.querySelector("fieldset").append(label);
    }
    const [kind, part] = filter.querySelectorAll("select");
    fill(kind, rows.map((known) => known.kind));
    fill(part, rows.map((known) => known.part));
    (table.closest(".pst-scrollable-table-container") || table).before(filter);

    const search = filter.querySelector("#claims-search");
    const count = filter.querySelector("#claims-count");
    const boxes = [...filter.querySelectorAll("input[data-status]")];
    const apply = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const chosen = boxes.filter((box) => box.checked).map((box) => box.dataset.status);
      const shown = rows.filter((known) => {
        const fits = (!chosen.length || chosen.includes(known.status))
          && (!kind.value || known.kind === kind.value)
          && (!part.value || known.part === part.value)
          && words.every((word) => known.text.includes(word));
        known.row.hidden = !fits;
        if (known.section) known.section.hidden = !fits;
        if (graph) dim(graph, known.claim, !fits);
        return fits;
      });
      count.textContent = `${shown.length} of ${rows.length} claims`;
      remember({ q: search.value.trim(), status: chosen.join(), kind: kind.value, part: part.value });
    };
    recall({ search, boxes, kind, part });
    filter.addEventListener("input", apply);
    filter.addEventListener("reset", () => setTimeout(apply));
    filter.addEventListener("submit", (event) => event.preventDefault());
    addSorting(table, rows);
    apply();
  }

  /* A link to a claim whose section the filter has folded away shows it all the same. */
  function showTarget() {
    const target = document.getElementById(location.hash.slice(1));
    if (!target || !target.hidden) return;
    target.hidden = false;
    target.scrollIntoView();
  }

  function fill(select, values) {
    select.add(new Option("all", ""));
    for (const value of [...new Set(values)].sort()) select.add(new Option(value, value));
  }

  /* The state of the filter is the query of the address, so that a selection can be linked to. */
  function remember(state) {
    const query = new URLSearchParams(Object.entries(state).filter(([, value]) => value)).toString();
    if (query === location.search.slice(1)) return;
    try {
      history.replaceState(null, "", (query ? `?${query}` : location.pathname) + location.hash);
    } catch (error) { /* some browsers refuse this for file:// */ }
  }

  function recall({ search, boxes, kind, part }) {
    const state = new URLSearchParams(location.search);
    const chosen = (state.get("status") || "").split(",");
    search.value = state.get("q") || "";
    for (const box of boxes) box.checked = chosen.includes(box.dataset.status);
    for (const [select, name] of [[kind, "kind"], [part, "part"]]) {
      const wanted = state.get(name) || "";
      if ([...select.options].some((option) => option.value === wanted)) select.value = wanted;
    }
  }

  function addSorting(table, rows) {
    const headers = [...table.querySelectorAll("thead th")];
    const byStatus = ({ status, row }) => STATUSES.indexOf(status) + row.cells[4].textContent;
    headers.forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "claims-sort";
      button.append(...header.childNodes);
      header.append(button);
      const value = COLUMNS[column] === "status" ? byStatus : ({ row }) => row.cells[column].textContent;
      const compare = (a, b) =>
        (column && value(a).localeCompare(value(b), "en", { numeric: true })) || a.place - b.place;
      button.addEventListener("click", () => {
        const down = header.getAttribute("aria-sort") === "ascending";
        for (const other of headers) other.removeAttribute("aria-sort");
        header.setAttribute("aria-sort", down ? "descending" : "ascending");
        const sorted = [...rows].sort((a, b) => (down ? -1 : 1) * compare(a, b));
        table.tBodies[0].append(...sorted.map(({ row }) => row));
      });
    });
  }

  function dim(graph, claim, away) {
    const box = graph.querySelector(`[data-claim="${claim}"]`);
    if (box) box.classList.toggle("filtered", away);
  }

  /* Under the pointer or the focus: what a claim rests on, and what rests on it. */
  function followDependencies(graph) {
    const arrows = [...graph.querySelectorAll("[data-from]")];
    const reached = (start, from, to) => {
      const found = new Set(start ? [start] : []);
      for (const claim of found) { // a set that grows under its own loop is walked to its end
        for (const { dataset } of arrows) if (dataset[from] === claim) found.add(dataset[to]);
      }
      return found;
    };
    const mark = (claim) => {
      const below = reached(claim, "to", "from");
      const above = reached(claim, "from", "to");
      graph.classList.toggle("following", Boolean(claim));
      for (const box of graph.querySelectorAll("[data-claim]")) {
        box.classList.toggle("near", below.has(box.dataset.claim) || above.has(box.dataset.claim));
      }
      for (const arrow of arrows) {
        const { from, to } = arrow.dataset;
        arrow.classList.toggle("near", (below.has(from) && below.has(to)) || (above.has(from) && above.has(to)));
      }
    };
    for (const type of ["pointerover", "focusin", "pointerleave", "focusout"]) {
      graph.addEventListener(type, (event) => {
        const box = /leave|out/.test(type) ? null : event.target.closest("[data-claim]");
        mark(box ? box.dataset.claim : null);
      });
    }
  }
})();
