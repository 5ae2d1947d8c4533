// Read off a loaded page of the book what a reader would stumble over; each function returns a list of texts.
// Evaluated by tests/reading.py inside the page; nothing of this is part of the book.
(() => {
  const short = (text, length = 90) => text.replace(/\s+/g, " ").trim().slice(0, length);

  // An element as a selector that a person can find again.
  const named = (element) => {
    const names = [...element.classList].slice(0, 2).map((name) => `.${name}`).join("");
    const text = short(element.textContent || element.getAttribute("src") || "", 40);
    return `<${element.tagName.toLowerCase()}${element.id ? `#${element.id}` : ""}${names}> "${text}"`;
  };

  const isVisible = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });

  // Texts that a reader sees as prose, with their elements: no code, no typeset formulas, no scripts.
  const NOT_PROSE = "pre, code, script, style, noscript, textarea, template, mjx-container";
  const prose = (() => {
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const parent = node.parentElement;
      if (node.textContent.trim() && !parent.closest(NOT_PROSE) && isVisible(parent)) {
        found.push([node.textContent, parent]);
      }
    }
    return found;
  })();

  const untypeset = () =>
    [...document.querySelectorAll(".math")]
      .filter((element) => !element.querySelector("mjx-container"))
      .map((element) => short(element.textContent))
      .concat(
        [...document.querySelectorAll("mjx-merror, [data-mjx-error]")].map(
          (element) => element.getAttribute("data-mjx-error") || short(element.textContent),
        ),
      );

  const RAW = /\$\$|\\\(|\\\[|\\(?:frac|lVert|begin|mathbb|operatorname|sum|lambda)\b|:::|\{(?:prf|eq|ref|doc|cite|math)[:}]/;
  const raw = () => prose.filter(([text]) => RAW.test(text)).map(([text]) => short(text));

  // A file's name says nothing to somebody who does not see the picture.
  const FILE_NAME = /\.(png|svg|jpe?g|gif|webp)\s*$|(^|\/)_images\//i;
  const wordless = () => {
    const found = [];
    for (const image of document.querySelectorAll("img")) {
      const text = (image.getAttribute("alt") || "").trim();
      if (!text || FILE_NAME.test(text)) found.push(`${image.getAttribute("src")} has alt "${text}"`);
    }
    for (const drawing of document.querySelectorAll("svg[role=img]")) {
      if (drawing.closest("mjx-container, [aria-hidden=true], button[aria-label]")) continue;
      const labels = (drawing.getAttribute("aria-labelledby") || "").split(/\s+/).filter(Boolean);
      const text = [
        drawing.getAttribute("aria-label"),
        drawing.querySelector(":scope > title")?.textContent,
        ...labels.map((id) => document.getElementById(id)?.textContent),
      ].filter(Boolean).join(" ").trim();
      if (!text || FILE_NAME.test(text)) found.push(`${named(drawing)} has the name "${text}"`);
    }
    return found;
  };

  const broken = () =>
    [...document.images].filter((image) => image.complete && !image.naturalWidth).map((image) => image.src);

  const links = () =>
    [...document.querySelectorAll("a[href]")] // those of a drawing have no text as their href
      .map((anchor) => new URL(anchor.getAttribute("href"), document.baseURI).href)
      .filter((href) => href.startsWith("file:"));

  const anchors = () => [
    ...[...document.querySelectorAll("[id]")].map((element) => element.id),
    ...[...document.querySelectorAll("a[name]")].map((element) => element.name),
  ];

  // What sticks out to the right, itself or with its text, unless a box around it scrolls or clips.
  const wide = () => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width + 1) return [];
    const clipped = (element) => {
      for (let box = element.parentElement; box && box !== document.body; box = box.parentElement) {
        if (getComputedStyle(box).overflowX !== "visible" && box.getBoundingClientRect().right <= width + 1) return true;
      }
      return false;
    };
    const right = (element) => {
      const box = element.getBoundingClientRect();
      const spills = getComputedStyle(element).overflowX === "visible";
      return Math.max(box.right, spills ? box.left + element.scrollWidth : 0);
    };
    const out = [...document.body.querySelectorAll("*")].filter(
      (element) => right(element) > width + 1 && !clipped(element),
    );
    const outside = new Set(out);
    const around = new Set();
    for (const element of out) {
      for (let box = element.parentElement; outside.has(box); box = box.parentElement) around.add(box);
    }
    const culprits = out.filter((element) => !around.has(element)).slice(0, 4);
    return [
      `${document.documentElement.scrollWidth} px wide`,
      ...culprits.map((element) => `${named(element)} to ${Math.round(right(element))} px`),
    ];
  };

  // What is cut off: an element with more in it than its visible box shows, which does not scroll. A box that a
  // line of text gives an ellipsis or that only a screen reader meets is meant to be cut.
  const cut = () =>
    [...document.querySelectorAll("article *, nav *")]
      .filter((element) => element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 1)
      .filter((element) => !element.closest("mjx-assistive-mml, svg, .sr-only, .visually-hidden") && isVisible(element))
      .filter((element) => /^(hidden|clip)$/.test(getComputedStyle(element).overflowX))
      .filter((element) => getComputedStyle(element).textOverflow !== "ellipsis")
      .map((element) => `${named(element)}, ${element.scrollWidth} px in ${element.clientWidth}`);

  // Formulas that were made smaller than they are typeset, to fit into a narrow box.
  const shrunk = () =>
    [...document.querySelectorAll("mjx-container > svg")]
      .filter((drawing) => isVisible(drawing) && drawing.getBoundingClientRect().width < 0.9 * drawing.width.baseVal.value)
      .map((drawing) => `${named(drawing.closest(".math") || drawing.parentElement)} in ${named(drawing.closest("td, p, li, div, body"))}`);

  // Contrast as WCAG 2 defines it, of the colours that the browser computed.
  const colour = (text) => {
    const parts = (text.match(/[\d.]+(?:e-?\d+)?/g) || []).map(Number);
    const [r, g, b] = text.startsWith("color(") ? parts.slice(0, 3).map((part) => 255 * part) : parts;
    return [r, g, b, parts.length > 3 ? parts[3] : 1];
  };
  const over = ([r, g, b, a], [R, G, B]) => [a * r + (1 - a) * R, a * g + (1 - a) * G, a * b + (1 - a) * B, 1];
  const luminance = ([r, g, b]) => {
    const linear = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (element) => {
    const layers = [];
    for (let box = element; box; box = box.parentElement) {
      const layer = colour(getComputedStyle(box).backgroundColor);
      if (layer[3] > 0) layers.push(layer);
      if (layer[3] >= 1) break;
    }
    return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const contrast = (element) => {
    const below = behind(element);
    const [one, two] = [over(colour(getComputedStyle(element).color), below), below].map(luminance);
    return (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
  };

  const faint = (least) => {
    const elements = new Set(prose.map(([, element]) => element).filter((element) => element.closest("main")));
    const seen = new Map(); // by colours, an element of each
    for (const element of elements) {
      const key = [getComputedStyle(element).color, behind(element)].join();
      if (!seen.has(key)) seen.set(key, [contrast(element), element]);
    }
    return [...seen.values()]
      .filter(([ratio]) => ratio < least)
      .map(([ratio, element]) => `${named(element)} has contrast ${ratio.toFixed(2)}`);
  };

  // A picture with a transparent ground and black lines needs a light box behind it.
  const unlit = () =>
    [...document.querySelectorAll("article img")]
      .filter((image) => isVisible(image) && image.getBoundingClientRect().width > 0)
      .filter((image) => luminance(behind(image)) < 0.5)
      .map((image) => image.getAttribute("src"));

  return { untypeset, raw, wordless, broken, links, anchors, wide, cut, shrunk, faint, unlit };
})()
