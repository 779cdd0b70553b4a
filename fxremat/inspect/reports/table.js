// The values: sorted, filtered, a page at a time; and the largest at the peak.

const table = (() => {
  const v = data.values, PAGE = 100;
  const COLORS = { saved: "saved", recomputed: "recomputed", output: "output", tangent: "tangent", backward: "gradient" };
  const price = (i) => (v.seconds[i] === null || !v.bytes[i] ? null : (v.seconds[i] / v.bytes[i]) * 2 ** 20);
  const columns = [
    ["bytes", "number", (i) => v.bytes[i], (i) => bytes(v.bytes[i])],
    ["name", "", (i) => v.name[i], (i) => make("span", {}, make("code", {}, v.name[i]), sub(text(v.shape[i])))],
    ["module", "", (i) => text(v.module[i]), (i) => make("span", {}, text(v.module[i]) || "–", sub(text(v.op[i])))],
    ["source", "", (i) => text(v.source[i]), (i) => make("span", {}, text(v.source[i]), sub(text(v.code[i]), true))],
    ["choice", "", (i) => text(v.choice[i]), (i) => tag(text(v.choice[i]))],
    ["runs again", "number", (i) => v.runs[i], (i) => String(v.runs[i] || "")],
    ["to make again", "number", (i) => v.seconds[i], (i) => seconds(v.seconds[i])],
    ["a MiB", "number", price, (i) => seconds(price(i))],
    ["why", "", (i) => text(v.reason[i]), (i) => text(v.reason[i])],
  ];
  const shown = { sort: 0, down: true, page: 0, words: "", choice: "decided" };
  let rows = [];

  const sub = (words, code) => make("span", { class: "sub" }, code ? make("code", {}, words) : words);

  function tag(choice) {
    return make("span", { class: "tag" }, make("i", { style: `background:var(--${COLORS[choice] || "temporary"})` }), choice);
  }

  const decided = (choice) => choice === "saved" || choice === "recomputed";

  function matching(i) {
    const choice = text(v.choice[i]);
    if (shown.choice === "decided" ? !decided(choice) : shown.choice !== "all" && choice !== shown.choice) return false;
    if (!shown.words) return true;
    const all = `${v.name[i]} ${text(v.module[i])} ${text(v.op[i])} ${text(v.reason[i])} ${text(v.source[i])}`.toLowerCase();
    return shown.words.split(/\s+/).every((word) => all.includes(word));
  }

  function compare(a, b) {
    const key = columns[shown.sort][2], one = key(a), two = key(b), turn = shown.down ? -1 : 1;
    if (one === two) return a - b;
    if (one === null) return 1; // what has no figure comes last
    if (two === null) return -1;
    return (one < two ? -1 : 1) * turn;
  }

  function refresh() {
    rows = v.name.map((_, i) => i).filter(matching).sort(compare);
    shown.page = 0;
    render();
  }

  function render() {
    const pages = Math.max(1, Math.ceil(rows.length / PAGE));
    const part = rows.slice(shown.page * PAGE, (shown.page + 1) * PAGE);
    byId("values-table").replaceChildren(head(), make("tbody", {}, ...part.map(row)));
    const sum = rows.reduce((total, i) => total + v.bytes[i], 0);
    byId("count").textContent = `${rows.length} of ${v.name.length} values, ${bytes(sum)}`;
    byId("page").textContent = `${shown.page + 1} of ${pages}`;
    byId("previous").disabled = shown.page === 0;
    byId("next").disabled = shown.page >= pages - 1;
  }

  function row(i) {
    const cells = columns.map(([, kind, , cell]) => make("td", { class: kind }, cell(i)));
    return make("tr", { "data-name": v.name[i] }, ...cells);
  }

  function head() {
    return make("thead", {}, make("tr", {}, ...columns.map(([name, kind], k) => {
      const mark = k === shown.sort ? (shown.down ? " ↓" : " ↑") : "";
      const button = make("button", { type: "button", "data-column": name }, name + mark);
      button.addEventListener("click", () => sortBy(k));
      const sorted = k === shown.sort ? { "aria-sort": shown.down ? "descending" : "ascending" } : {};
      return make("th", { class: kind, scope: "col", ...sorted }, button);
    })));
  }

  function sortBy(k) {
    shown.down = k === shown.sort ? !shown.down : columns[k][1] === "number";
    shown.sort = k;
    refresh();
    byId("values-table").querySelectorAll("th button")[k].focus();
  }

  function turn(pages) {
    shown.page += pages;
    render();
    byId("values").scrollIntoView();
  }

  function choices() {
    const kinds = [...new Set(v.choice.map(text))].sort();
    const options = [["decided", "saved and recomputed"], ...kinds.map((k) => [k, k]), ["all", "all"]];
    byId("choice").replaceChildren(...options.map(([value, label]) => make("option", { value }, label)));
  }

  function peak() {
    const names = ["bytes", "value", "there because", "module", "to make again", "why"];
    const line = ([i, holding]) => make("tr", {},
      make("td", { class: "number" }, bytes(v.bytes[i])), make("td", {}, make("code", {}, v.name[i])),
      make("td", {}, tag(holding)), make("td", {}, text(v.module[i]) || "–"),
      make("td", { class: "number" }, decided(text(v.choice[i])) ? seconds(v.seconds[i]) : "–"), make("td", {}, text(v.reason[i])));
    const heads = names.map((name, k) => make("th", { scope: "col", class: k === 0 || k === 4 ? "number" : "" }, name));
    byId("peak-table").replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...data.peak.map(line)));
  }

  function start() {
    choices();
    peak();
    byId("search").addEventListener("input", (event) => { shown.words = event.target.value.trim().toLowerCase(); refresh(); });
    byId("choice").addEventListener("change", (event) => { shown.choice = event.target.value; refresh(); });
    byId("previous").addEventListener("click", () => turn(-1));
    byId("next").addEventListener("click", () => turn(1));
    refresh();
  }

  return { start };
})();
