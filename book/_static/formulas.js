// A formula that is too long for its line gets smaller; one that would get too small keeps its size and scrolls.
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

  function fitAll() {
    document.querySelectorAll("article div.math").forEach(fit);
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
