// Memory over the step: what is live at each position, stacked by kind or by module.

const timeline = (() => {
  const { ops, levels, workspace, boundary } = data.plan;
  const count = ops.length, spans = data.intervals;
  const kinds = [...data.holdings, "workspace"];
  const shown = { stack: "kind", axis: "time", position: 0 };
  const margin = { left: 76, right: 18, top: 14, bottom: 34 }, height = 380;
  const before = data.before || { ops: [], levels: [], boundary: 0 };
  const labels = moduleLabels();

  function moduleLabels() {
    const weight = new Map();
    spans.value.forEach((value, i) => {
      const name = pattern(text(data.values.module[value]));
      const area = data.values.bytes[value] * (spans.end[i] - spans.start[i] + 1);
      weight.set(name, (weight.get(name) || 0) + area);
    });
    const top = [...weight].sort((a, b) => b[1] - a[1]).slice(0, 7).map(([name]) => name);
    return [...top, "others", "workspace"];
  }

  function groups() {
    if (shown.stack === "kind") {
      return { names: kinds, color: (k) => `var(--${kinds[k]})`, of: (i) => spans.holding[i] };
    }
    const place = new Map(labels.map((name, i) => [name, i])), rest = labels.length - 2;
    const palette = ["saved", "recomputed", "gradient", "output", "m4", "workspace", "m6"];
    return {
      names: labels,
      color: (k) => (k < rest ? `var(--${palette[k]})` : k === rest ? "var(--temporary)" : "var(--floor)"),
      of: (i) => place.get(pattern(text(data.values.module[spans.value[i]]))) ?? rest,
    };
  }

  function stacked(group) {
    const delta = group.names.map(() => new Float64Array(count + 1));
    spans.value.forEach((value, i) => {
      const row = delta[group.of(i)], size = data.values.bytes[value];
      row[spans.start[i]] += size;
      row[spans.end[i] + 1] -= size;
    });
    for (const row of delta) for (let p = 1; p <= count; p += 1) row[p] += row[p - 1];
    workspace.forEach((size, p) => { delta[group.names.length - 1][p] += size; });
    return delta;
  }

  // Where positions stand on the axis: by predicted time, or one after the other.
  function edges(sequence) {
    const found = [0];
    for (const op of sequence) {
      const width = shown.axis === "time" ? data.ops.seconds[op] || 0 : 1;
      found.push(found[found.length - 1] + width);
    }
    return found;
  }

  // Ops a pixel wide and wider; of the narrower ones at most one a pixel, where most is live.
  function sampled(where, sizes, width, scale) {
    const best = new Map(), wide = [];
    sizes.forEach((size, p) => {
      const begin = scale(where[p]), x = Math.floor(begin);
      if (scale(where[p + 1]) - begin >= 1) {
        wide.push(p);
      } else if (!best.has(x) || size > sizes[best.get(x)]) {
        best.set(x, p);
      }
    });
    return [...wide, ...best.values()].sort((a, b) => a - b);
  }

  function render() {
    const svg = byId("memory-svg"), width = svg.parentElement.clientWidth || 1100;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.style.height = `${height}px`;
    const where = edges(ops), earlier = edges(before.ops);
    const most = Math.max(...levels, ...before.levels, data.budget || 0, 1) * 1.04;
    const span = Math.max(where[count] || 1, earlier[earlier.length - 1]);
    const x = (v) => margin.left + (v / span) * (width - margin.left - margin.right);
    const y = (v) => height - margin.bottom - (v / most) * (height - margin.top - margin.bottom);
    svg.replaceChildren(...axes(width, most, span, x, y), ...areas(where, width, x, y), ...outline(earlier, width, x, y), ...rules(where, width, x, y));
    svg.append(draw("line", { id: "cursor", class: "axis", y1: margin.top, y2: height - margin.bottom, stroke: "var(--ink)" }));
    drawn = { where, x };
    point(shown.position);
  }

  let drawn = null;

  function axes(width, most, span, x, y) {
    const lines = ticks(most, byteStep(most, 6)).flatMap((v) => [
      draw("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(v), y2: y(v) }),
      draw("text", { x: margin.left - 10, y: y(v) + 4, "text-anchor": "end" }, bytes(v)),
    ]);
    const name = shown.axis === "time" ? seconds : (v) => String(v);
    const marks = ticks(span, niceStep(span, 8)).map((v) =>
      draw("text", { x: x(v), y: height - 12, "text-anchor": "middle" }, name(v)));
    return [...lines, ...marks];
  }

  function areas(where, width, x, y) {
    const group = groups(), rows = stacked(group), picked = sampled(where, levels, width, x);
    const base = new Float64Array(count);
    legend("memory-legend", [
      ...group.names.map((name, k) => [name, group.color(k)]).filter((_, k) => rows[k].some((v) => v > 0)),
      ["without recomputing", "var(--before)", true],
      ...(data.budget ? [["budget", "var(--budget)", true]] : []),
      ["floor", "var(--floor)", true],
    ]);
    return rows.map((row, k) => {
      const top = picked.map((p) => `${x(where[p]).toFixed(1)},${y(base[p] + row[p]).toFixed(1)} ${x(where[p + 1]).toFixed(1)},${y(base[p] + row[p]).toFixed(1)}`);
      const low = [...picked].reverse().map((p) => `${x(where[p + 1]).toFixed(1)},${y(base[p]).toFixed(1)} ${x(where[p]).toFixed(1)},${y(base[p]).toFixed(1)}`);
      for (let p = 0; p < count; p += 1) base[p] += row[p];
      return draw("polygon", { class: "area", "data-name": group.names[k], points: [...top, ...low].join(" "), fill: group.color(k) });
    });
  }

  function outline(where, width, x, y) {
    const picked = sampled(where, before.levels, width, x);
    const points = picked.map((p) => `${x(where[p]).toFixed(1)},${y(before.levels[p]).toFixed(1)} ${x(where[p + 1]).toFixed(1)},${y(before.levels[p]).toFixed(1)}`);
    return [draw("polyline", { id: "before", points: points.join(" "), fill: "none", stroke: "var(--before)", "stroke-width": 1.6, "stroke-dasharray": "5 4" })];
  }

  function rules(where, width, x, y) {
    const level = (v, color) => draw("line", { x1: margin.left, x2: width - margin.right, y1: y(v), y2: y(v), stroke: color, "stroke-width": 1.5, "stroke-dasharray": "7 4" });
    const middle = x(where[boundary] || 0);
    return [
      ...(data.budget ? [level(data.budget, "var(--budget)")] : []),
      level(data.floor, "var(--floor)"),
      draw("line", { x1: middle, x2: middle, y1: margin.top, y2: height - margin.bottom, stroke: "var(--soft)", "stroke-width": 1 }),
      draw("text", { x: middle - 8, y: margin.top + 10, "text-anchor": "end" }, "forward"),
      draw("text", { x: middle + 8, y: margin.top + 10 }, "backward"),
    ];
  }

  function live(position) {
    const found = [];
    spans.value.forEach((value, i) => {
      if (spans.start[i] <= position && position <= spans.end[i]) found.push(i);
    });
    return found.sort((a, b) => data.values.bytes[spans.value[b]] - data.values.bytes[spans.value[a]]);
  }

  function summed(found, name) {
    const total = new Map();
    for (const i of found) total.set(name(i), (total.get(name(i)) || 0) + data.values.bytes[spans.value[i]]);
    return [...total].sort((a, b) => b[1] - a[1]);
  }

  function list(title, pairs) {
    const rows = pairs.flatMap(([label, size]) => [make("dt", {}, bytes(size)), make("dd", {}, label)]);
    return make("div", {}, make("h3", {}, title), make("dl", {}, ...rows));
  }

  function point(position) {
    if (!count) return;
    shown.position = Math.max(0, Math.min(count - 1, position));
    const p = shown.position, middle = drawn.x((drawn.where[p] + drawn.where[p + 1]) / 2);
    byId("cursor").setAttribute("x1", middle);
    byId("cursor").setAttribute("x2", middle);
    const found = live(p), op = ops[p], module = text(data.ops.module[op]);
    const kindsHere = summed(found, (i) => data.holdings[spans.holding[i]]);
    if (workspace[p]) kindsHere.push(["workspace", workspace[p]]);
    const modules = summed(found, (i) => text(data.values.module[spans.value[i]]) || "(no module)").slice(0, 5);
    const largest = found.slice(0, 6).map((i) => [
      `${data.values.name[spans.value[i]]} · ${data.holdings[spans.holding[i]]}`, data.values.bytes[spans.value[i]]]);
    const half = p < boundary ? "forward" : "backward";
    const first = list(`${bytes(levels[p])} while ${data.ops.name[op]} runs`, kindsHere);
    first.insertBefore(make("p", {}, `${half}, op ${p + 1} of ${count}${module ? ` · ${module}` : ""}`), first.children[1]);
    byId("instant").replaceChildren(first, list("by module", modules), list("largest", largest));
  }

  function at(event) {
    const box = byId("memory-svg").getBoundingClientRect(), wanted = event.clientX - box.left;
    let low = 0, high = count - 1;
    while (low < high) {
      const half = (low + high) >> 1;
      if (drawn.x(drawn.where[half + 1]) < wanted) low = half + 1; else high = half;
    }
    point(low);
  }

  function keys(event) {
    const move = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20 }[event.key];
    if (move) { point(shown.position + move); event.preventDefault(); }
  }

  function choose(key, value, group, id) {
    byId(id).addEventListener("click", () => { shown[key] = value; pressed(group, id); render(); });
  }

  function start() {
    shown.position = levels.indexOf(Math.max(...levels));
    choose("stack", "kind", ["by-kind", "by-module"], "by-kind");
    choose("stack", "module", ["by-kind", "by-module"], "by-module");
    choose("axis", "time", ["by-time", "by-op"], "by-time");
    choose("axis", "op", ["by-time", "by-op"], "by-op");
    byId("memory-svg").addEventListener("pointermove", at);
    byId("memory-svg").addEventListener("keydown", keys);
    window.addEventListener("resize", render);
    render();
  }

  return { start };
})();
