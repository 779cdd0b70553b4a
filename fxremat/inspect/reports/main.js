// The page: headline, theme, and all parts.

function headline() {
  byId("title").textContent = data.title;
  byId("sentence").textContent = data.sentence;
  byId("cards").replaceChildren(...data.cards.map(([what, figure, note]) =>
    make("div", { class: "card" }, make("span", { class: "what" }, what), make("b", {}, figure), make("span", {}, note))));
  byId("notes").replaceChildren(...data.notes.map((note) => make("p", {}, note)));
}

function theme() {
  const set = (name) => { document.documentElement.dataset.theme = name; };
  set(window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  byId("theme").addEventListener("click", () =>
    set(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
}

theme();
headline();
timeline.start();
frontier.start();
table.start();
modules.start();
