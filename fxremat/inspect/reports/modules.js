// The joint graph by module: forward on the left, backward on the right, saved values across.

const modules = (() => {
  const ROW = 30, WIDTH = 1200, LEFT = 20, BOX = 330, RIGHT = WIDTH - BOX - 20, FEW = 40;
  const root = tree();
  const view = { x: 0, y: 0, width: WIDTH, height: 720 };

  // A tree of module paths, in the order in which the forward comes to them; ops are its leaves.
  function tree() {
    const top = node("", "");
    data.ops.name.forEach((name, op) => {
      const path = text(data.ops.module[op]), parts = path ? path.split(".") : [];
      let here = top;
      parts.forEach((part, k) => { here = child(here, part, parts.slice(0, k + 1).join(".")); });
      here.ops.push(op);
    });
    const runs = new Map();
    data.plan.ops.forEach((op, p) => {
      if (p >= data.plan.boundary) runs.set(op, (runs.get(op) || 0) + 1);
    });
    gather(top);
    weigh(top, runs);
    open(top);
    return top;
  }

  // Ops that stand beside modules become a child of their own, so that all rows are of one kind.
  function gather(here) {
    for (const below of here.children.values()) gather(below);
    if (!here.ops.length || !here.children.size) return;
    const own = child(here, "\u0000", here.path);
    own.label = here.path ? `${here.path}: own ops` : "(no module)";
    own.ops = here.ops;
    here.ops = [];
  }

  function node(label, path) {
    return { label: path, path, children: new Map(), ops: [], open: false, forward: 0, backward: 0, again: 0 };
  }

  function child(parent, part, path) {
    if (!parent.children.has(part)) parent.children.set(part, node(part, path));
    return parent.children.get(part);
  }

  function weigh(here, runs) {
    for (const op of here.ops) {
      const time = data.ops.seconds[op] || 0;
      if (data.ops.late[op]) here.backward += time;
      else { here.forward += time; here.again += time * (runs.get(op) || 0); }
    }
    for (const below of here.children.values()) {
      weigh(below, runs);
      here.forward += below.forward; here.backward += below.backward; here.again += below.again;
    }
  }

  // Open level by level while the rows stay few.
  function open(top) {
    top.open = true;
    let level = [...top.children.values()], rows = level.length;
    while (level.length) {
      const next = level.flatMap((n) => [...n.children.values()]);
      if (!next.length || rows + next.length > FEW) return;
      for (const n of level) n.open = n.children.size > 0;
      rows += next.length;
      level = next;
    }
  }

  function visible(here = root, depth = 0, found = []) {
    for (const below of here.children.values()) {
      found.push({ item: below, depth });
      if (below.open) visible(below, depth + 1, found);
    }
    for (const op of here.open ? here.ops : []) found.push({ op, depth });
    return found;
  }

  // The row of each op: its own, or that of the innermost module that is shown closed.
  function rowsOf(rows) {
    const found = new Map();
    const take = (here, index) => {
      for (const op of here.ops) found.set(op, index);
      for (const below of here.children.values()) take(below, index);
    };
    rows.forEach(({ item, op }, index) => {
      if (op !== undefined) found.set(op, index);
      else if (!item.open) take(item, index);
    });
    return found;
  }

  function bands(place) {
    const sums = new Map();
    for (const [value, maker, readers] of data.cut) {
      const from = place.get(maker), to = place.get(readers[0]);
      if (from === undefined || to === undefined) continue;
      const key = `${from} ${to}`, old = sums.get(key) || { from, to, size: 0, names: [] };
      old.size += data.values.bytes[value];
      old.names.push(data.values.name[value]);
      sums.set(key, old);
    }
    return [...sums.values()].sort((a, b) => b.size - a.size);
  }

  function render() {
    const svg = byId("graph-svg"), rows = visible(), place = rowsOf(rows), found = bands(place);
    const most = Math.max(1, ...found.map((b) => b.size));
    const closed = rows.filter((r) => !r.item || !r.item.open).map(weight);
    const slowest = Math.max(1e-12, ...closed.map((w) => Math.max(w.forward, w.backward + w.again)));
    svg.replaceChildren(
      draw("text", { x: LEFT, y: 18, class: "strong" }, "forward ↓"),
      draw("text", { x: RIGHT + BOX, y: 18, class: "strong", "text-anchor": "end" }, "backward ↑"),
      draw("line", { id: "cut", x1: WIDTH / 2, x2: WIDTH / 2, y1: 26, y2: 34 + rows.length * ROW, stroke: "var(--budget)", "stroke-dasharray": "6 5" }),
      draw("text", { x: WIDTH / 2, y: 18, "text-anchor": "middle" }, "the cut: what is saved"),
      ...found.map((band) => ribbon(band, most)),
      ...rows.flatMap((row, index) => [box(row, index, LEFT, true, slowest), box(row, index, RIGHT, false, slowest)]));
    svg.dataset.rows = rows.length;
    view.total = 50 + rows.length * ROW;
    show();
  }

  const middle = (index) => 34 + index * ROW + ROW / 2;

  function ribbon({ from, to, size, names }, most) {
    const a = middle(from), b = middle(to), x1 = LEFT + BOX, x2 = RIGHT, half = (x2 - x1) / 2;
    const thick = Math.max(1.2, (size / most) * (ROW - 8));
    const path = `M${x1},${a} C${x1 + half},${a} ${x2 - half},${b} ${x2},${b}`;
    const shown = names.slice(0, 6).join(", ") + (names.length > 6 ? `, ${names.length - 6} more` : "");
    return tipped(draw("path", { class: "band", d: path, fill: "none", stroke: "var(--saved)", "stroke-width": thick, "stroke-opacity": 0.55 }),
      `saved: ${bytes(size)} in ${names.length} value${names.length === 1 ? "" : "s"}\n${shown}`);
  }

  function weight({ item, op }) {
    if (item) return item;
    const time = data.ops.seconds[op] || 0, late = data.ops.late[op];
    const runs = data.plan.ops.reduce((n, o, p) => n + (o === op && p >= data.plan.boundary), 0);
    return { forward: late ? 0 : time, backward: late ? time : 0, again: late ? 0 : time * runs };
  }

  function box(row, index, x, first, slowest) {
    const { item, op, depth } = row, own = weight(row), indent = 14 * depth;
    const y = 34 + index * ROW + 3, high = ROW - 6, width = BOX - indent, left = first ? x + indent : x;
    const time = first ? own.forward : own.backward, scale = (s) => (s / slowest) * width;
    const closed = item && !item.open, mark = !item ? "" : item.open ? "▾ " : "▸ ";
    const name = item ? item.label : data.ops.name[op];
    const figure = first ? seconds(own.forward) : `${seconds(own.backward)}${own.again ? ` + ${seconds(own.again)}` : ""}`;
    const parts = [draw("rect", { class: "box", x: left, y, width, height: high, rx: 6 })];
    if (closed || op !== undefined) {
      parts.push(bar(left, y, scale(time), high, first ? "var(--temporary)" : "var(--gradient)"));
      if (!first && own.again) parts.push(bar(left + scale(time), y, scale(own.again), high, "var(--recomputed)"));
    }
    parts.push(draw("text", { x: left + 9, y: y + high / 2 + 4, class: "strong" }, mark + clipped(name, width)),
      draw("text", { x: left + width - 9, y: y + high / 2 + 4, "text-anchor": "end" }, figure));
    const group = draw("g", { class: "row", "data-name": name, tabindex: item ? 0 : -1 }, ...parts);
    if (item) group.addEventListener("click", () => toggle(item));
    if (item) group.addEventListener("keydown", (event) => { if (event.key === "Enter") toggle(item); });
    return tipped(group, `${name}\nforward ${seconds(own.forward)}, backward ${seconds(own.backward)}\nrecomputed ${seconds(own.again)}`);
  }

  const bar = (x, y, width, height, color) =>
    draw("rect", { x, y: y + height - 3, width: Math.max(0, width), height: 3, fill: color, rx: 1.5 });

  function clipped(name, width) {
    const room = Math.floor((width - 130) / 7.2);
    return name.length > room ? `…${name.slice(name.length - room + 1)}` : name;
  }

  function toggle(item) {
    if (moved) return;
    item.open = !item.open;
    tip.hidden = true;
    render();
  }

  // Zoom and pan by the view box.

  let moved = false;

  function show() {
    byId("graph-svg").setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
  }

  function fit() {
    const svg = byId("graph-svg"), ratio = svg.clientHeight / (svg.clientWidth || 1);
    view.width = Math.max(WIDTH, view.total / ratio);
    view.height = view.width * ratio;
    view.x = (WIDTH - view.width) / 2;
    view.y = 0;
    show();
  }

  function zoom(factor, cx = 0.5, cy = 0.5) {
    const width = Math.min(20000, Math.max(200, view.width * factor)), real = width / view.width;
    view.x += view.width * cx * (1 - real);
    view.y += view.height * cy * (1 - real);
    view.width *= real;
    view.height *= real;
    show();
  }

  function drag(event) {
    const svg = byId("graph-svg"), scale = view.width / svg.clientWidth;
    const begin = { x: event.clientX, y: event.clientY, left: view.x, top: view.y };
    moved = false;
    const move = (e) => {
      moved = moved || Math.hypot(e.clientX - begin.x, e.clientY - begin.y) > 4;
      view.x = begin.left - (e.clientX - begin.x) * scale;
      view.y = begin.top - (e.clientY - begin.y) * scale;
      show();
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
    const box = byId("graph-svg").getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  }

  function start() {
    byId("zoom-in").addEventListener("click", () => zoom(1 / 1.25));
    byId("zoom-out").addEventListener("click", () => zoom(1.25));
    byId("zoom-fit").addEventListener("click", fit);
    byId("graph-svg").addEventListener("pointerdown", drag);
    byId("graph-svg").addEventListener("wheel", wheel, { passive: false });
    render();
    const svg = byId("graph-svg"), scale = svg.clientWidth / WIDTH;
    svg.style.height = `${Math.min(1100, Math.max(240, view.total * scale))}px`;
    view.height = svg.clientHeight / scale;
    show();
  }

  return { start };
})();
