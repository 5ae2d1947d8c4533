// A displayed formula that is too long for its line gets smaller; one that would get too small keeps its size and
// scrolls. A formula in a line of text always keeps its size; one that has to scroll is marked.
"use strict";
(() => {
  const SMALLEST = 0.6;

  function excess(block) {
    const boxes = [block, ...block.querySelectorAll("mjx-container")];
    return Math.max(...boxes.map((box) => box.scrollWidth / (box.clientWidth || box.scrollWidth || 1)));
  }

  function fit(block) {
    delete block.dataset.shrunk;
    // The number beside a formula keeps its room, so one step is not always enough.
    for (let scale = 1, step = 0; step < 4; step++) {
      const over = excess(block);
      if (over <= 1.005) return;
      scale *= 0.99 / over;
      if (scale < SMALLEST) break;
      block.style.setProperty("--shrunk", `${scale}em`);
      block.dataset.shrunk = "";
    }
    delete block.dataset.shrunk;
  }

  // A box that scrolls is marked, and can be reached by the keyboard.
  function mark(box) {
    const scrolls = excess(box) > 1.005;
    box.toggleAttribute("data-scrolls", scrolls);
    if (scrolls) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }

  // A line may break beside a formula, but must not begin with the mark that follows one, or end with a parenthesis.
  function keepTogether(formula) {
    const after = formula.nextSibling;
    const before = formula.previousSibling;
    const mark = after && after.nodeType === Node.TEXT_NODE ? after.data.match(/^[.,;:)\]?’”]+/) : null;
    const open = before && before.nodeType === Node.TEXT_NODE ? before.data.match(/[(\[“]+$/) : null;
    if (!mark && !open) return;
    const pair = document.createElement("span");
    pair.className = "with-mark";
    formula.replaceWith(pair);
    if (open) {
      before.data = before.data.slice(0, -open[0].length);
      pair.append(open[0]);
    }
    pair.append(formula);
    if (mark) {
      after.data = after.data.slice(mark[0].length);
      pair.append(mark[0]);
    }
  }

  // A long name of a module or a notebook may break at its dots and underscores.
  function breakable(element) {
    const text = element.firstChild;
    if (!text || text.nodeType !== Node.TEXT_NODE || !/^\s*\w*[._][\w.]+\s*$/.test(text.data)) return;
    const parts = text.data.split(/(?<=[._])/);
    text.replaceWith(...parts.flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part])));
  }

  function fitAll() {
    document.querySelectorAll("article div.math").forEach(fit);
    document.querySelectorAll("article .math").forEach((box) => {
      // In most tables it is the table that scrolls.
      if (!box.closest("td, th") || getComputedStyle(box).overflowX === "auto") mark(box);
    });
  }

  window.addEventListener("load", () => {
    const ready = window.MathJax && window.MathJax.startup && window.MathJax.startup.promise;
    document.querySelectorAll(".bd-sidebar-secondary a, article :is(h2, h3, td .std-ref)").forEach(breakable);
    if (!ready) return;
    ready.then(() => {
      document.querySelectorAll("article span.math").forEach(keepTogether);
      fitAll();
    });
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      if (window.innerWidth === width) return;
      width = window.innerWidth;
      fitAll();
    });
  });
})();
