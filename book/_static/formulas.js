// A displayed formula that is too long for its line gets smaller; one that would get too small keeps its size and
// scrolls. A formula in a line of text always keeps its size; one that has to scroll is marked.
"use strict";
(() => {
  const SMALLEST = 0.6;

  function excess(block) {
    const boxes = [block, ...block.querySelectorAll("mjx-container")];
    return Math.max(...boxes.map((box) => box.scrollWidth / Math.max(box.clientWidth, 1)));
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

  // Only a box that scrolls can be reached by the keyboard, and only there is something to reach.
  function mark(box) {
    const scrolls = box.scrollWidth > box.clientWidth + 1;
    box.toggleAttribute("data-scrolls", scrolls);
    if (scrolls) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }

  function fitAll() {
    document.querySelectorAll("article div.math").forEach(fit);
    document.querySelectorAll("article span.math").forEach(mark);
  }

  window.addEventListener("load", () => {
    const ready = window.MathJax && window.MathJax.startup && window.MathJax.startup.promise;
    if (!ready) return;
    ready.then(fitAll);
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      if (window.innerWidth === width) return;
      width = window.innerWidth;
      fitAll();
    });
  });
})();
