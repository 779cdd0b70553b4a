"use strict";
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const data = read("data"), charts = read("charts");
const byId = (id) => document.getElementById(id);
const text = (index) => data.texts[index];

function bytes(n) {
  if (Math.abs(n) < 1024) return `${n} B`;
  let size = n, unit = -1;
  while (Math.abs(size) >= 1023.95 && unit < 3) { size /= 1024; unit += 1; }
  return `${size.toFixed(1)} ${["KiB", "MiB", "GiB", "TiB"][unit]}`;
}

function seconds(s) {
  if (s === null) return "–";
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["us", 1e-6]]) {
    if (Math.abs(s) >= size) return `${Number((s / size).toPrecision(3))} ${unit}`;
  }
  return s ? `${Number((s * 1e9).toPrecision(3))} ns` : "0 s";
}

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children); // texts go in as texts: names may hold anything
  return element;
}

// Charts: Vega-Lite draws them; here they get the page's width, its theme and its switches.

async function show(id, chart, parameters = {}) {
  const spec = structuredClone(charts[chart]), style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink"), soft = style.getPropertyValue("--soft");
  const axis = { labelColor: soft, titleColor: soft, gridColor: style.getPropertyValue("--grid") };
  const legend = { labelColor: soft, labelLimit: 400 };
  spec.config = { ...spec.config, background: null, axis, legend: { ...spec.config.legend, ...legend }, padding: 4 };
  spec.width = "container";
  spec.title = undefined;
  for (const one of spec.params || []) {
    if (one.name in parameters) one.value = parameters[one.name];
  }
  const recolour = (layer) => { // ink, and the grey of notes, are those of the theme
    const { mark, layer: parts } = layer;
    (parts || []).forEach(recolour);
    if (mark && mark.color === "#59636e") mark.color = soft;
    else if (mark && (mark.color === "#1b1f24" || mark.type === "text")) mark.color = ink;
  };
  recolour(spec);
  byId(id).view = (await vegaEmbed(byId(id), spec, { actions: false, renderer: "svg" })).view;
  return byId(id).view;
}

const memory = (() => {
  const { ops, levels, workspace, boundary } = data.plan, spans = data.intervals;
  const count = ops.length, shown = { by: "kind", axis: "time", position: 0 };
  const size = (i) => data.values.bytes[spans.value[i]];
  const times = [0];
  for (const op of ops) times.push(times[times.length - 1] + 1e3 * (data.ops.seconds[op] || 0));
  const edge = (p) => (shown.axis === "time" ? times[p] : p);
  let view = null;

  async function draw() {
    view = await show("memory-chart", `timeline_${shown.by}`, { axis: shown.axis });
    view.addEventListener("pointermove", (event) => {
      const box = byId("memory-chart").querySelector("svg").getBoundingClientRect();
      at(view.scale("x").invert(event.clientX - box.left - view.origin()[0]));
    });
    point(shown.position);
  }

  function at(x) {
    let low = 0, high = count - 1;
    while (low < high) {
      const half = (low + high) >> 1;
      if (edge(half + 1) < x) low = half + 1; else high = half;
    }
    point(low);
  }

  function sums(found, name) {
    const total = new Map();
    for (const i of found) total.set(name(i), (total.get(name(i)) || 0) + size(i));
    return [...total].sort((a, b) => b[1] - a[1]);
  }

  function list(title, pairs) {
    const rows = pairs.flatMap(([label, n]) => [make("dt", {}, bytes(n)), make("dd", {}, label)]);
    return make("div", {}, make("h3", {}, title), make("dl", {}, ...rows));
  }

  function link(i) {
    const name = data.values.name[spans.value[i]];
    const button = make("button", { type: "button", class: "link" }, `${name} · ${data.holdings[spans.holding[i]]}`);
    button.addEventListener("click", () => table.find(name));
    return button;
  }

  function point(position) {
    if (!count) return;
    const p = Math.max(0, Math.min(count - 1, position)), op = ops[p], module = text(data.ops.module[op]);
    shown.position = p;
    if (view) view.signal("cursor", (edge(p) + edge(p + 1)) / 2).runAsync();
    const found = spans.value.map((_, i) => i).filter((i) => spans.start[i] <= p && p <= spans.end[i]);
    found.sort((a, b) => size(b) - size(a));
    const kinds = sums(found, (i) => data.holdings[spans.holding[i]]);
    if (workspace[p]) kinds.push(["workspace", workspace[p]]);
    const modules = sums(found, (i) => text(data.values.module[spans.value[i]]) || "(no module)").slice(0, 5);
    const first = list(`${bytes(levels[p])} while ${data.ops.name[op]} runs`, kinds);
    const where = `${p < boundary ? "forward" : "backward"}, op ${p + 1} of ${count}${module ? ` · ${module}` : ""}`;
    first.insertBefore(make("p", {}, where), first.children[1]);
    const largest = found.slice(0, 6).map((i) => [link(i), size(i)]);
    byId("instant").replaceChildren(first, list("by module", modules), list("largest", largest));
  }

  function start() {
    shown.position = levels.indexOf(Math.max(...levels));
    for (const key of ["by", "axis"]) {
      const buttons = [...document.querySelectorAll(`[data-${key}]`)];
      for (const button of buttons) {
        button.addEventListener("click", () => {
          shown[key] = button.dataset[key];
          for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
          draw();
        });
      }
    }
    byId("memory-chart").addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20 }[event.key];
      if (move) { point(shown.position + move); event.preventDefault(); }
    });
  }

  return { start, draw };
})();

// The joint graph: drawings that the page holds, one for each module; here they are moved and opened.

const graph = (() => {
  const stage = byId("drawing"), drawings = new Map();
  for (const one of document.querySelectorAll("template[data-path]")) drawings.set(one.dataset.path, one);
  let svg = null, whole = null, moved = false;

  function open(path) {
    svg = drawings.get(path).content.firstElementChild.cloneNode(true);
    const [width, height] = ["width", "height"].map((name) => Number(svg.getAttribute(name)));
    const high = Math.min(900, Math.max(240, (height * stage.clientWidth) / width));
    whole = { x: 0, y: 0, width: Math.max(width, (height * stage.clientWidth) / high) };
    whole.x = (width - whole.width) / 2;
    svg.setAttribute("width", "100%");
    svg.setAttribute("height", high);
    stage.replaceChildren(svg);
    stage.dataset.path = path;
    for (const box of svg.querySelectorAll("[data-module]")) {
      const inside = box.dataset.module;
      box.addEventListener("click", () => { if (!moved) open(inside); });
      box.addEventListener("keydown", (event) => { if (event.key === "Enter") open(inside); });
    }
    fit();
    const parts = path ? path.split(".") : [];
    const steps = ["", ...parts.map((_, k) => parts.slice(0, k + 1).join("."))].map((step, k) => {
      const button = make("button", { type: "button", class: "link", "data-step": step }, k ? parts[k - 1] : "all modules");
      button.addEventListener("click", () => open(step));
      return button;
    });
    byId("path").replaceChildren(...steps.flatMap((step, k) => (k ? [" › ", step] : [step])));
  }

  let view = { x: 0, y: 0, width: 1 };
  const scale = () => view.width / stage.clientWidth;

  function set(next) {
    view = next;
    svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${svg.clientHeight * scale()}`);
  }

  const fit = () => set({ ...whole });

  function zoom(factor, x = stage.clientWidth / 2, y = svg.clientHeight / 2) {
    const width = Math.min(40000, Math.max(100, view.width * factor)), less = scale() - width / stage.clientWidth;
    set({ x: view.x + x * less, y: view.y + y * less, width });
  }

  function drag(event) {
    const begin = { ...view }, { clientX, clientY } = event, size = scale();
    moved = false;
    const move = (e) => {
      moved = moved || Math.hypot(e.clientX - clientX, e.clientY - clientY) > 4;
      if (moved) set({ ...begin, x: begin.x - (e.clientX - clientX) * size, y: begin.y - (e.clientY - clientY) * size });
    };
    const end = () => {
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", end);
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", end);
  }

  function wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    const box = stage.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, event.clientX - box.left, event.clientY - box.top);
  }

  function start() {
    byId("zoom-in").addEventListener("click", () => zoom(1 / 1.25));
    byId("zoom-out").addEventListener("click", () => zoom(1.25));
    byId("zoom-fit").addEventListener("click", fit);
    stage.addEventListener("pointerdown", drag);
    stage.addEventListener("wheel", wheel, { passive: false });
    open("");
  }

  return { start };
})();

// The values: sorted, filtered, a page at a time.

const table = (() => {
  const v = data.values, PAGE = 100;
  const price = (i) => (v.seconds[i] === null || !v.bytes[i] ? null : (v.seconds[i] / v.bytes[i]) * 2 ** 20);
  const pair = (first, second) => make("span", {}, first, make("span", { class: "sub" }, second));
  const code = (words) => make("code", {}, words);
  const columns = [
    ["bytes", "number", (i) => v.bytes[i], (i) => bytes(v.bytes[i])],
    ["name", "", (i) => v.name[i], (i) => pair(code(v.name[i]), text(v.shape[i]))],
    ["module", "", (i) => text(v.module[i]), (i) => pair(text(v.module[i]) || "–", text(v.op[i]))],
    ["source", "", (i) => text(v.source[i]), (i) => pair(text(v.source[i]), code(text(v.code[i])))],
    ["choice", "", (i) => text(v.choice[i]), (i) => make("span", { class: `tag ${text(v.choice[i])}` }, text(v.choice[i]))],
    ["runs again", "number", (i) => v.runs[i], (i) => String(v.runs[i] || "")],
    ["to make again", "number", (i) => v.seconds[i], (i) => seconds(v.seconds[i])],
    ["a MiB", "number", price, (i) => seconds(price(i))],
    ["why", "", (i) => text(v.reason[i]), (i) => text(v.reason[i])],
  ];
  const shown = { sort: 0, down: true, page: 0, words: "", choice: "decided" };
  const decided = (choice) => choice === "saved" || choice === "recomputed";
  let rows = [];

  function matches(i) {
    const choice = text(v.choice[i]);
    if (shown.choice === "decided" ? !decided(choice) : shown.choice !== "all" && choice !== shown.choice) return false;
    const all = `${v.name[i]} ${text(v.module[i])} ${text(v.op[i])} ${text(v.reason[i])} ${text(v.source[i])}`.toLowerCase();
    return shown.words.split(/\s+/).every((word) => all.includes(word));
  }

  function compare(a, b) {
    const key = columns[shown.sort][2], one = key(a), two = key(b), turn = shown.down ? -1 : 1;
    if (one === two) return a - b;
    if (one === null || two === null) return one === null ? 1 : -1; // what has no figure comes last
    return (one < two ? -1 : 1) * turn;
  }

  function refresh() {
    rows = v.name.map((_, i) => i).filter(matches).sort(compare);
    shown.page = 0;
    render();
  }

  function render() {
    const pages = Math.max(1, Math.ceil(rows.length / PAGE));
    const part = rows.slice(shown.page * PAGE, (shown.page + 1) * PAGE);
    const body = part.map((i) => make("tr", { "data-name": v.name[i] },
      ...columns.map(([, kind, , cell]) => make("td", { class: kind }, cell(i)))));
    byId("values-table").replaceChildren(head(), make("tbody", {}, ...body));
    byId("count").textContent = `${rows.length} of ${v.name.length} values, ${bytes(rows.reduce((sum, i) => sum + v.bytes[i], 0))}`;
    byId("page").textContent = `${shown.page + 1} of ${pages}`;
    byId("previous").disabled = shown.page === 0;
    byId("next").disabled = shown.page >= pages - 1;
  }

  function head() {
    return make("thead", {}, make("tr", {}, ...columns.map(([name, kind], k) => {
      const mark = k === shown.sort ? (shown.down ? " ↓" : " ↑") : "";
      const button = make("button", { type: "button", "data-column": name }, name + mark);
      button.addEventListener("click", () => {
        shown.down = k === shown.sort ? !shown.down : kind === "number";
        shown.sort = k;
        refresh();
        byId("values-table").querySelectorAll("th button")[k].focus();
      });
      const sorted = k === shown.sort ? { "aria-sort": shown.down ? "descending" : "ascending" } : {};
      return make("th", { class: kind, scope: "col", ...sorted }, button);
    })));
  }

  function find(name) {
    byId("choice").value = shown.choice = "all";
    byId("search").value = name;
    shown.words = name.toLowerCase();
    refresh();
    byId("values").scrollIntoView();
  }

  function start() {
    const kinds = [...new Set(v.choice.map(text))].sort();
    const options = [["decided", "saved and recomputed"], ...kinds.map((kind) => [kind, kind]), ["all", "all"]];
    byId("choice").replaceChildren(...options.map(([value, label]) => make("option", { value }, label)));
    byId("search").addEventListener("input", (event) => { shown.words = event.target.value.trim().toLowerCase(); refresh(); });
    byId("choice").addEventListener("change", (event) => { shown.choice = event.target.value; refresh(); });
    for (const [id, step] of [["previous", -1], ["next", 1]]) {
      byId(id).addEventListener("click", () => { shown.page += step; render(); byId("values").scrollIntoView(); });
    }
    refresh();
  }

  return { start, find };
})();

function theme(name) {
  document.documentElement.dataset.theme = name;
  memory.draw();
  if (charts.frontier) show("curve-chart", "frontier");
}

memory.start();
graph.start();
table.start();
theme(window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
byId("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
