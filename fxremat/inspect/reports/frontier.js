// Peak against time: the frontier, its knee, the chosen plan, and what people do by hand.

const frontier = (() => {
  const margin = { left: 76, right: 40, top: 18, bottom: 44 }, height = 360;

  // The curve sets the scale; what costs far more than it stands at the edge, with its figure.
  function render() {
    const { points, knee, chosen, strategies } = data.frontier;
    const svg = byId("curve-svg"), width = svg.parentElement.clientWidth || 1100;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.style.height = `${height}px`;
    const far = points.map((p) => p[0]), cost = [...points, chosen].map((p) => p[1]);
    const most = Math.max(...far, chosen[0]) * 1.05;
    const dearest = Math.max(Math.min(Math.max(...cost), 1.0), 0.02) * 1.12;
    const x = (v) => margin.left + (v / most) * (width - margin.left - margin.right);
    const y = (v) => height - margin.bottom - (Math.min(v, dearest) / dearest) * (height - margin.top - margin.bottom);
    const marks = [];
    const line = points.filter((p) => p[1] <= dearest).map((p) => `${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`);
    svg.replaceChildren(...axes(width, most, dearest, x, y),
      draw("polyline", { id: "frontier-line", points: line.join(" "), fill: "none", stroke: "var(--saved)", "stroke-width": 2.5 }));
    points.forEach((p, i) => marks.push(dot(p, x, y, i === knee ? "knee" : "a plan", i === knee ? "var(--gradient)" : "var(--saved)", i === knee ? 6.5 : 4)));
    strategies.forEach(([name, ...p]) => marks.push(diamond(p, x, y, name, dearest)));
    marks.push(dot(chosen, x, y, "this plan", "var(--budget)", 7.5));
    svg.append(...marks, ...named(points, knee, chosen, strategies, x, y, dearest));
  }

  function axes(width, most, dearest, x, y) {
    const share = niceStep(dearest, 5), size = byteStep(most, 8);
    return [
      ...ticks(dearest, share).flatMap((v) => [
        draw("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(v), y2: y(v) }),
        draw("text", { x: margin.left - 10, y: y(v) + 4, "text-anchor": "end" }, percent(v)),
      ]),
      ...ticks(most, size).map((v) => draw("text", { x: x(v), y: height - 24, "text-anchor": "middle" }, bytes(v))),
      draw("text", { x: width - margin.right, y: height - 6, "text-anchor": "end" }, "predicted peak"),
      draw("text", { x: margin.left, y: 12 }, "extra time"),
    ];
  }

  const words = (name, p) => `${name}\n${bytes(p[0])}, ${percent(p[1])} time\n${bytes(p[2])} saved, ${p[3]} runs recomputed`;

  function dot(p, x, y, name, color, radius) {
    return tipped(draw("circle", { class: "point", "data-name": name, cx: x(p[0]), cy: y(p[1]), r: radius, fill: color, stroke: "var(--card)", "stroke-width": 1.5 }), words(name, p));
  }

  function diamond(p, x, y, name, dearest) {
    const a = x(p[0]), b = y(p[1]), above = p[1] > dearest ? " (above the scale)" : "";
    const points = `${a},${b - 7} ${a + 7},${b} ${a},${b + 7} ${a - 7},${b}`;
    return tipped(draw("polygon", { class: "strategy", "data-name": name, points, fill: "var(--recomputed)", stroke: "var(--card)", "stroke-width": 1.5 }), words(name + above, p));
  }

  // Labels beside their points, moved down or up until none covers another.
  function named(points, knee, chosen, strategies, x, y, dearest) {
    const wanted = [["this plan", chosen, "strong"], ["knee", points[knee], ""],
      ...strategies.map(([name, ...p]) => [p[1] > dearest ? `${name} ${percent(p[1])}` : name, p, ""])];
    const taken = [];
    return wanted.map(([label, p, kind]) => {
      const width = label.length * 7 + 6;
      const places = [[11, -8], [11, 14], [-width - 6, -8], [-width - 6, 14], [11, -22], [11, 28], [-width - 6, -22], [11, -36], [11, 42]];
      const boxes = places.map(([dx, dy]) => ({ x: x(p[0]) + dx, y: y(p[1]) + dy }));
      const clear = (b) => b.y > 12 && taken.every((t) => Math.abs(t.y - b.y) > 13 || b.x + width < t.x || t.x + t.width < b.x);
      const place = boxes.find(clear) || boxes[0];
      taken.push({ ...place, width });
      return draw("text", { x: place.x, y: place.y, class: kind }, label);
    });
  }

  function start() {
    if (!data.frontier) {
      byId("curve").remove();
      byId("to-curve").remove();
      return;
    }
    legend("curve-legend", [["plans of the frontier", "var(--saved)"], ["its knee", "var(--gradient)"],
      ["this plan", "var(--budget)"], ["what people do by hand", "var(--recomputed)"]]);
    window.addEventListener("resize", render);
    render();
  }

  return { start };
})();
