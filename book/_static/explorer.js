// The explorer page: reads the controls, computes with ExplorerMath, looks up EXPLORER_RECORD, draws SVG.
(function () {
  "use strict";

  const record = globalThis.EXPLORER_RECORD;
  const math = globalThis.ExplorerMath;
  const root = document.getElementById("explorer");
  if (!root || !record || !math) return;

  const SVG = "http://www.w3.org/2000/svg";
  const WIDTH = 420;
  const HEIGHT = 330;
  const FRAME = { left: 58, right: 12, top: 10, bottom: 46 };
  const NAMES = ["K", "d", "m", "decay", "S", "scale"];
  const START = { K: 3, d: 50, m: 10, decay: 1, S: 3, scale: 0.001 };
  const POLICIES = {
    eofd: "EOFD-MLogB",
    oful: "OFUL-MLogB",
    "first-order": "no curvature",
    random: "random play",
    "eofd-compiled": "EOFD, compiled",
    "oful-compiled": "OFUL, compiled",
  };

  // Numbers as text: so many significant digits, no exponent where a person would write none.
  function show(value, digits = 3) {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size < 1e-4 || size >= 1e6) return value.toExponential(digits - 1).replace("e+", "e");
    return size >= 10 ** digits ? String(Math.round(value)) : String(Number(value.toPrecision(digits)));
  }

  // ---- controls ------------------------------------------------------------------------------------

  const inputs = Object.fromEntries(NAMES.map((name) => [name, document.getElementById(`explorer-${name}`)]));

  function prepare(name) {
    const input = inputs[name];
    const values = record.grid[name];
    const start = values.indexOf(START[name]);
    if (input.tagName === "SELECT") {
      for (const value of values) input.append(new Option(String(value), String(value)));
      input.selectedIndex = start;
    } else {
      Object.assign(input, { min: 0, max: values.length - 1, step: 1, value: start });
    }
    input.addEventListener("input", update);
    input.addEventListener("change", update);
  }

  function valueOf(name) {
    const input = inputs[name];
    const value = input.tagName === "SELECT" ? Number(input.value) : record.grid[name][Number(input.value)];
    const shown = document.getElementById(`explorer-${name}-value`);
    if (shown) shown.textContent = String(value);
    if (input.type === "range") input.setAttribute("aria-valuetext", String(value));
    return value;
  }

  // A preset names what it is about; everything else goes back to the start, so that it always shows the same.
  function setTo(wanted) {
    for (const [name, value] of Object.entries({ ...START, ...wanted })) {
      const place = record.grid[name].indexOf(value);
      if (inputs[name].tagName === "SELECT") inputs[name].selectedIndex = place;
      else inputs[name].value = place;
    }
    update();
  }

  // ---- the address ---------------------------------------------------------------------------------

  // The parameters in the query of the address that the grid has; a part that makes no sense is ignored.
  function asked() {
    const query = new URLSearchParams(location.search);
    const known = NAMES.map((name) => [name, Number(query.get(name) || NaN)]);
    return Object.fromEntries(known.filter(([name, value]) => record.grid[name].includes(value)));
  }

  function remember(chosen) {
    const changed = NAMES.filter((name) => chosen[name] !== START[name]).map((name) => [name, chosen[name]]);
    const query = new URLSearchParams(changed).toString();
    if (query === location.search.slice(1)) return;
    try {
      history.replaceState(null, "", (query ? `?${query}` : location.pathname) + location.hash);
    } catch (error) { /* some browsers refuse this for file:// */ }
  }

  // ---- what is computed, and what is looked up -----------------------------------------------------

  function compute(chosen) {
    const { K, d, m, decay, S, scale } = chosen;
    const ridge = record.regularization;
    const sketch = math.sketchOfAxes(K, d, m, math.schedule(d, decay, record.n_rounds));
    // Places by the full Hessian, the strongest first; the sketch's value is that of the same direction.
    const order = Array.from(sketch.full.keys()).sort(
      (a, b) => sketch.full[b] - sketch.full[a] || sketch.kept[b] - sketch.kept[a] || a - b,
    );
    const full = order.map((place) => sketch.full[place] + ridge);
    const kept = order.map((place) => sketch.kept[place] + ridge);
    const point = math.farthestPoint(K, d, decay, S, record.step_size, ridge);
    const y = order.map((place) => point[place]);
    return {
      full,
      kept,
      rho: sketch.rho,
      y,
      beta: scale * ridge * S * S,
      dual: math.dualRoot(kept, y, S),
      dualFull: math.dualRoot(full, y, S),
    };
  }

  function lookUp(chosen) {
    // A sketch of at least Kd directions is exact: the record has the smallest such m alone.
    const m = Math.min(chosen.m, record.grid.m.find((size) => size >= chosen.K * chosen.d) || chosen.m);
    const key = (...names) => names.map((name) => ({ ...chosen, m })[name]).join("/");
    return {
      regret: {
        eofd: record.regret.eofd[key(...NAMES)],
        oful: record.regret.oful[key("K", "d", "decay", "S", "scale")],
        "first-order": record.regret["first-order"][key("K", "d", "decay", "S", "scale")],
        random: record.regret.random[key("K", "d", "decay", "S")],
      },
      times: record.times[key("K", "d", "m")],
    };
  }

  // ---- drawing -------------------------------------------------------------------------------------

  function element(name, attributes, text) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function ticksOf(low, high, log) {
    if (log) {
      const decades = [];
      for (let e = Math.ceil(Math.log10(low) - 1e-9); 10 ** e <= high * (1 + 1e-9); e += 1) decades.push(10 ** e);
      if (decades.length >= 3) return decades;
      const finer = [];
      for (let e = Math.floor(Math.log10(low)); 10 ** e <= high; e += 1) {
        for (const factor of [1, 2, 5]) {
          const tick = Number((factor * 10 ** e).toPrecision(6));
          if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) finer.push(tick);
        }
      }
      return finer;
    }
    const rough = (high - low) / 5 || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * (1 - 1e-9));
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) {
      ticks.push(Number((i * step).toPrecision(8)));
    }
    return ticks;
  }

  function scaleOf([low, high], [from, to], log) {
    const place = log ? Math.log : (value) => value;
    const [a, b] = [place(low), place(high)];
    return (value) => from + ((place(value) - a) / (b - a || 1)) * (to - from);
  }

  /** A chart in the figure with this id: axes with labels, then what `paint` puts between them. */
  function chart(id, { title, description, x, y, legend, rows, paint }) {
    const lines = Math.ceil(legend.length / 2);
    const height = HEIGHT + 20 * lines;
    const svg = element("svg", {
      viewBox: `0 0 ${WIDTH} ${height}`,
      role: "img",
      "aria-labelledby": `${id}-title ${id}-description`,
    });
    svg.append(element("title", { id: `${id}-title` }, title));
    svg.append(element("desc", { id: `${id}-description` }, description));
    const left = FRAME.left + (rows ? 62 : 0);
    const box = { left, right: WIDTH - FRAME.right, top: FRAME.top, bottom: HEIGHT - FRAME.bottom };
    const px = scaleOf(x.domain, [box.left, box.right], x.log);
    const py = scaleOf(y.domain, [box.bottom, box.top], y.log);
    const grid = element("g", { class: "explorer-axes" });
    for (const tick of ticksOf(...x.domain, x.log)) {
      grid.append(element("line", { x1: px(tick), x2: px(tick), y1: box.top, y2: box.bottom }));
      grid.append(element("text", { x: px(tick), y: box.bottom + 16, "text-anchor": "middle" }, show(tick)));
    }
    const labels = rows || ticksOf(...y.domain, y.log);
    labels.forEach((tick, i) => {
      const at = py(rows ? i : tick);
      grid.append(element("line", { x1: box.left, x2: box.right, y1: at, y2: at }));
      const text = rows ? tick : show(tick);
      grid.append(element("text", { x: box.left - 6, y: at + 4, "text-anchor": "end" }, text));
    });
    const middle = (box.left + box.right) / 2;
    grid.append(element("text", { x: middle, y: box.bottom + 36, "text-anchor": "middle" }, x.label));
    if (y.label) {
      const at = (box.top + box.bottom) / 2;
      const turned = `rotate(-90 14 ${at})`;
      grid.append(element("text", { x: 14, y: at, transform: turned, "text-anchor": "middle" }, y.label));
    }
    svg.append(grid);
    const clip = `${id}-clip`;
    const inside = { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top };
    const path = element("clipPath", { id: clip });
    path.append(element("rect", inside));
    svg.append(path);
    const ink = element("g", { "clip-path": `url(#${clip})` });
    svg.append(ink);
    paint({
      box,
      ink,
      free: svg,
      line: (points, style) => {
        const text = points.map(([a, b]) => `${px(a).toFixed(2)},${py(b).toFixed(2)}`).join(" ");
        ink.append(element("polyline", { points: text, class: `explorer-line explorer-${style}` }));
      },
      band: (points, low, high) => {
        const there = points.map((a, i) => `${px(a).toFixed(2)},${py(high[i]).toFixed(2)}`);
        const back = points.map((a, i) => `${px(a).toFixed(2)},${py(low[i]).toFixed(2)}`).reverse();
        ink.append(element("polygon", { points: [...there, ...back].join(" "), class: "explorer-band" }));
      },
      mark: (a, b, style) => svg.append(marker(px(a), py(b), style)),
      note: (a, b, text) => {
        svg.append(element("text", { x: px(a), y: py(b), class: "explorer-note" }, text));
      },
    });
    legend.forEach(([style, text, kind], i) => {
      const at = { x: 16 + (i % 2) * 200, y: HEIGHT + 10 + 20 * Math.floor(i / 2) };
      svg.append(sample(at, style, kind));
      svg.append(element("text", { x: at.x + 38, y: at.y + 4, class: "explorer-note" }, text));
    });
    document.getElementById(id).replaceChildren(svg);
  }

  function sample({ x, y }, style, kind) {
    if (kind === "band") return element("rect", { x, y: y - 6, width: 30, height: 12, class: "explorer-band" });
    if (kind === "mark") return marker(x + 15, y, style);
    return element("line", { x1: x, x2: x + 30, y1: y, y2: y, class: `explorer-line explorer-${style}` });
  }

  const SHAPES = {
    eofd: "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z",
    oful: "M-4.5 -4.5h9v9h-9Z",
    "first-order": "M0 -5.5L5.5 4.5H-5.5Z",
    random: "M-4.5 -4.5L4.5 4.5M4.5 -4.5L-4.5 4.5",
    "eofd-compiled": "M0 5.5L5.5 -4.5H-5.5Z",
    "oful-compiled": "M0 -6L6 0L0 6L-6 0Z",
    newton: "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z",
    centre: "M-5 0H5M0 -5V5",
  };

  function marker(x, y, style) {
    const transform = `translate(${x.toFixed(2)} ${y.toFixed(2)})`;
    return element("path", { d: SHAPES[style], transform, class: `explorer-mark explorer-${style}` });
  }

  // ---- the five figures ----------------------------------------------------------------------------

  function drawSpectrum(chosen, seen) {
    const index = seen.full.map((_, i) => i + 1);
    const upper = seen.kept.map((value) => value + seen.rho);
    const top = Math.max(...upper, ...seen.full);
    const m = Math.min(chosen.m, index.length);
    const lowest = record.regularization * 0.85;
    chart("explorer-spectrum", {
      title: `Eigenvalues of the full Hessian and of its sketch, m = ${chosen.m}`,
      description:
        `The full Hessian's fall from ${show(seen.full[0])} to ${show(seen.full.at(-1))}; ` +
        `the sketch's largest is ${show(Math.max(...seen.kept))}; rho is ${show(seen.rho)}.`,
      x: { label: "number i of the direction", domain: [1, Math.max(index.length, 2)], log: true },
      y: { label: "eigenvalue, ridge included", domain: [lowest, top * 1.15], log: true },
      legend: [
        ["oful", "full Hessian H"],
        ["eofd", "sketch Z, same directions"],
        ["band", "from Z to Z + ρI", "band"],
        ["limit", `i = m${m < chosen.m ? " (all)" : ""}`],
      ],
      paint: ({ line, band }) => {
        band(index, seen.kept, upper);
        line([[m, lowest], [m, top * 1.15]], "limit");
        line(index.map((i, k) => [i, seen.full[k]]), "oful");
        line(index.map((i, k) => [i, seen.kept[k]]), "eofd");
      },
    });
  }

  function drawDual(chosen, seen) {
    const square = chosen.S * chosen.S;
    const last = 1.25 * Math.max(seen.dual.root, seen.dualFull.root);
    const at = Array.from({ length: 120 }, (_, i) => (last * i) / 119);
    const f = (p, nu) => math.dualFunction(p, seen.y, nu) / square;
    const low = Math.min(f(seen.kept, last), 0.95);
    chart("explorer-dual", {
      title: `Dual function of the projection, root at ${show(seen.dual.root)}`,
      description:
        `f falls from ${show(f(seen.kept, 0))} times S squared; Newton's method takes ` +
        `${seen.dual.iterates.length - 1} steps; for the full Hessian the root is ${show(seen.dualFull.root)}.`,
      x: { label: "multiplier ν (units of an eigenvalue)", domain: [0, last] },
      y: { label: "f(ν) / S², squared length", domain: [low, f(seen.kept, 0) * 1.03] },
      legend: [
        ["eofd", "with the sketch Z"],
        ["oful", "with the full Hessian H"],
        ["limit", "1, the edge of the ball"],
        ["newton", "Newton's iterates", "mark"],
      ],
      paint: ({ line, mark }) => {
        line([[0, 1], [last, 1]], "limit");
        line(at.map((nu) => [nu, f(seen.full, nu)]), "oful");
        line(at.map((nu) => [nu, f(seen.kept, nu)]), "eofd");
        for (const nu of seen.dual.iterates) mark(nu, f(seen.kept, nu), "newton");
      },
    });
  }

  function drawEllipsoid(chosen, seen) {
    const ridge = record.regularization;
    const second = Math.min(chosen.m, seen.full.length - 1);
    const outer = math.halfAxis(seen.beta, ridge);
    const reach = 1.12 * outer || 1;
    const wide = (reach * (WIDTH - FRAME.left - FRAME.right)) / (HEIGHT - FRAME.top - FRAME.bottom);
    const angles = Array.from({ length: 121 }, (_, i) => (2 * Math.PI * i) / 120);
    const outline = (a, b) => {
      const [first, other] = [math.halfAxis(seen.beta, a), math.halfAxis(seen.beta, b)];
      return angles.map((angle) => [first * Math.cos(angle), other * Math.sin(angle)]);
    };
    const axes = (values) => `${show(math.halfAxis(seen.beta, values[0]))} and ` +
      `${show(math.halfAxis(seen.beta, values[second]))}`;
    chart("explorer-ellipsoid", {
      title: `Confidence ellipsoid, beta = ${show(seen.beta)}`,
      description:
        `Half-axes with the sketch: ${axes(seen.kept)}; with the full Hessian: ${axes(seen.full)}; ` +
        `at round 1: ${show(outer)}.`,
      x: { label: "along direction 1 (logits)", domain: [-wide, wide] },
      y: { label: `along direction ${second + 1} (logits)`, domain: [-reach, reach] },
      legend: [
        ["eofd", "sketch Z"],
        ["oful", "full Hessian H"],
        ["first-order", "round 1; no curvature"],
        ["centre", seen.beta ? "estimate" : "β = 0: a point", "mark"],
      ],
      paint: ({ line, mark }) => {
        line(outline(ridge, ridge), "first-order");
        line(outline(seen.full[0], seen.full[second]), "oful");
        line(outline(seen.kept[0], seen.kept[second]), "eofd");
        mark(0, 0, "centre");
      },
    });
  }

  function drawRegret(found) {
    const names = Object.keys(found.regret);
    const last = (name) => found.regret[name].curve.at(-1);
    const top = Math.max(...names.map(last));
    chart("explorer-regret", {
      title: `Cumulative regret over ${record.n_rounds} rounds`,
      description: names.map((name) => `${POLICIES[name]} ${show(last(name))}`).join(", ") + ".",
      x: { label: "round t", domain: [0, record.n_rounds] },
      y: { label: "regret (missed rewards)", domain: [0, top * 1.08] },
      legend: names.map((name) => [name, POLICIES[name]]),
      paint: ({ line, mark }) => {
        for (const name of [...names].reverse()) {
          line([[0, 0], ...record.rounds.map((t, i) => [t, found.regret[name].curve[i]])], name);
        }
        for (const name of names) mark(record.n_rounds * 0.985, last(name), name);
      },
    });
  }

  function drawTime(found) {
    const names = Object.keys(found.times);
    const values = names.map((name) => found.times[name]);
    chart("explorer-time", {
      title: "Time of a round",
      description: names.map((name) => `${POLICIES[name]} ${show(found.times[name])} ms`).join(", ") + ".",
      x: { label: "time of a round (ms)", domain: [Math.min(...values) / 1.6, Math.max(...values) * 4], log: true },
      y: { domain: [names.length - 0.5, -0.5] },
      rows: names.map((name) => POLICIES[name]),
      legend: [],
      paint: ({ mark, note }) => {
        names.forEach((name, i) => {
          mark(values[i], i, name);
          note(values[i] * 1.25, i + 0.12, `${show(values[i])} ms`);
        });
      },
    });
  }

  // ---- the numbers in words ------------------------------------------------------------------------

  function sentence(chosen, seen, found) {
    const { regret, times } = found;
    const total = (name) => `${POLICIES[name]} ${regret[name].curve.at(-1).toFixed(1)} ± ${regret[name].sd.toFixed(1)}`;
    const steps = ({ iterates }) => `${iterates.length - 1} Newton step${iterates.length === 2 ? "" : "s"}`;
    return [
      `K = ${chosen.K}, d = ${chosen.d}, m = ${chosen.m}, decay ${chosen.decay}, S = ${chosen.S}, ` +
        `scale ${chosen.scale}: Kd = ${chosen.K * chosen.d} parameters, β = ${show(seen.beta)}.`,
      `Sketch of the ideal stream: ρ = ${show(seen.rho)}, largest eigenvalue of the data part ` +
        `${show(seen.full[0] - record.regularization)} (in the recorded games ρ = ${show(regret.eofd.rho)}).`,
      `Projection: root ν = ${show(seen.dual.root)} after ${steps(seen.dual)}; with the full Hessian ` +
        `ν = ${show(seen.dualFull.root)} after ${steps(seen.dualFull)}.`,
      `Regret after ${record.n_rounds} rounds: ${Object.keys(regret).map(total).join(", ")}.`,
      `A round of OFUL-MLogB takes ${(times.oful / times.eofd).toFixed(2)} times as long as one of EOFD-MLogB ` +
        `(compiled: ${(times["oful-compiled"] / times["eofd-compiled"]).toFixed(2)} times).`,
    ];
  }

  function provenance() {
    const { version, git_commit: commit, environment } = record.provenance;
    const place = document.getElementById("explorer-provenance");
    if (!place) return;
    place.textContent =
      `Library version ${version}, commit ${(commit || "unknown").slice(0, 12)}, Python ${environment.python}, ` +
      `NumPy ${environment.numpy}; ${environment.cpu}, one thread.`;
  }

  function update() {
    const chosen = Object.fromEntries(NAMES.map((name) => [name, valueOf(name)]));
    remember(chosen);
    const seen = compute(chosen);
    const found = lookUp(chosen);
    drawSpectrum(chosen, seen);
    drawDual(chosen, seen);
    drawEllipsoid(chosen, seen);
    drawRegret(found);
    drawTime(found);
    const lines = sentence(chosen, seen, found).map((text) => {
      const paragraph = document.createElement("p");
      paragraph.textContent = text;
      return paragraph;
    });
    document.getElementById("explorer-summary").replaceChildren(...lines);
  }

  NAMES.forEach(prepare);
  for (const button of root.querySelectorAll("button[data-set]")) {
    button.addEventListener("click", () => setTo(JSON.parse(button.dataset.set)));
  }
  document.getElementById("explorer-reset")?.addEventListener("click", () => setTo({}));
  provenance();
  setTo(asked());
  root.dataset.ready = "true";
})();
