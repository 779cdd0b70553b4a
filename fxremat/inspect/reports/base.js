"use strict";
// What all parts share: the data, writing figures, making elements, the tooltip.

const data = JSON.parse(document.getElementById("data").textContent);
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

const percent = (share) => `${share >= 0 ? "+" : "−"}${Math.abs(100 * share).toFixed(1)} %`;

function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children); // texts go in as texts: names may hold anything
  return element;
}

const tip = byId("tip");

function showTip(event, words) {
  tip.textContent = words;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, window.innerWidth - box.width - 8);
  const below = event.clientY + 18;
  const top = below + box.height > window.innerHeight ? event.clientY - box.height - 10 : below;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

function tipped(element, words) {
  element.addEventListener("pointermove", (event) => showTip(event, words));
  element.addEventListener("pointerleave", () => { tip.hidden = true; });
  return element;
}

function niceStep(span, count) {
  const raw = span / count || 1, base = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((m) => m * base).find((step) => step >= raw);
}

function byteStep(span, count) {
  const raw = Math.max(1, span / count), unit = 1024 ** Math.floor(Math.log(raw) / Math.log(1024));
  return unit * [1, 2, 5, 10, 20, 50, 100, 200, 500, 1024].find((m) => m * unit >= raw);
}

function ticks(most, step) {
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

function pressed(group, chosen) {
  for (const id of group) byId(id).setAttribute("aria-pressed", String(id === chosen));
}

function legend(id, entries) {
  byId(id).replaceChildren(...entries.map(([label, color, rule]) => {
    const mark = make("i", rule ? { class: "rule", style: `border-color:${color}` } : { style: `background:${color}` });
    return make("span", {}, mark, label);
  }));
}

// Modules of one kind, such as layers.0.attn and layers.1.attn, are one group: layers.*.attn.
const pattern = (module) => module.replace(/(^|\.)\d+(?=\.|$)/g, "$1*") || "(no module)";
