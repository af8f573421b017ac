"use strict";
const root = document.documentElement;
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
if (location.hash === "#dark" || location.hash === "#light") root.dataset.theme = location.hash.slice(1);

const COLOURS = 8, DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const escaped = (t) => t.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const number = (v) => {
  if (v === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(v)));
  if (size < -5 || size >= 15) return v.toExponential(2);
  return String(Number(v.toFixed(Math.min(9, Math.max(0, 5 - size))))).replace("-", "\u2212");
};
const svgNode = (name, attributes) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  return node;
};

/* What stands at a tick: powers of ten as such where a log axis has some that are long. */
const label = (v, ruler) => {
  if (!ruler.log || (ruler.low > 0.9e-3 && ruler.high < 1.1e4) || ruler.b - ruler.a < 1) return number(v);
  return "10" + [...String(Math.round(Math.log10(v)))].map((c) => (c === "-" ? "\u207b" : "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"[c])).join("");
};

class Ruler {
  constructor(log, low, high, from, to, wanted) {
    Object.assign(this, { log, low, high, from, to });
    this.a = log ? Math.log10(low) : low;
    this.b = log ? Math.log10(high) : high;
    this.ticks = log ? this.powers() : this.even(wanted);
  }
  even(wanted) {
    const rough = (this.high - this.low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((s) => s >= rough * (1 - 1e-9)) || rough;
    const ticks = [];
    for (let n = Math.ceil(this.low / step - 1e-9); n <= this.high / step + 1e-9 && ticks.length < 50; n++) ticks.push(n * step);
    return ticks;
  }
  powers() {
    const first = Math.ceil(this.a - 1e-9), last = Math.floor(this.b + 1e-9);
    if (last - first < 1) return this.even(6).filter((v) => v > 0);
    const ticks = [], every = Math.floor((last - first) / 8) + 1;
    for (let n = first; n <= last; n += every) ticks.push(10 ** n);
    return ticks;
  }
  place(v) {
    if (v === null || (this.log && v <= 0)) return null;
    const u = ((this.log ? Math.log10(v) : v) - this.a) / (this.b - this.a);
    return Math.min(1e4, Math.max(-1e4, this.from + u * (this.to - this.from)));
  }
  value(p) {
    const u = this.a + ((p - this.from) / (this.to - this.from)) * (this.b - this.a);
    return this.log ? 10 ** u : u;
  }
}

class Plot {
  constructor(figure) {
    this.data = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    this.box = figure.querySelector(".plot");
    this.svg = this.box.querySelector("svg");
    this.tip = this.box.querySelector(".tip");
    this.legend = figure.querySelector(".legend");
    this.hidden = new Set();
    this.zoom = null;
    this.curves = this.svg.querySelector(".curves");
    this.axes = this.svg.querySelector(".axes");
    this.marks = this.svg.querySelector(".marks");
    this.overlay = this.svg.appendChild(svgNode("g", {}));
    [this.width, this.height, this.left, this.right, this.top, this.bottom] = this.data.frame;
    this.x1 = this.width - this.right;
    this.y1 = this.height - this.bottom;
    this.full = this.ends("x");
    this.listen();
  }
  ends(which) {
    const { range, log } = this.data[which];
    if (range) return range;
    let low = Infinity, high = -Infinity;
    const see = (v) => { if (v !== null && (!log || v > 0)) { low = Math.min(low, v); high = Math.max(high, v); } };
    this.data.series.forEach((s, n) => {
      if (which === "y" && this.hidden.has(n)) return;
      s.x.forEach((x, i) => {
        if (which === "x") see(x);
        else if (this.inView(x)) see(s.y[i]);
      });
      for (const [x, l, u] of s.band || []) {
        if (which === "x") see(x);
        else if (this.inView(x)) { see(l); see(u); }
      }
    });
    if (low > high) { low = 1; high = 1; }
    if (log) {
      low = 10 ** Math.floor(Math.log10(low) + 1e-9);
      high = 10 ** Math.ceil(Math.log10(high) - 1e-9);
      return [low, high > low ? high : low * 10];
    }
    if (which === "y") { low = Math.min(0, low); high = Math.max(0, high); }
    if (high - low <= 1e-12 * Math.max(Math.abs(high), Math.abs(low))) high = low + (low === 0 ? 1 : Math.abs(low) * 0.1);
    if (which === "y") high += (high - low) * 0.04;
    return [low, high];
  }
  inView(x) { return !this.zoom || (x >= this.zoom[0] && x <= this.zoom[1]); }
  draw() {
    const [a, b] = this.zoom || this.full, [c, d] = this.ends("y");
    this.x = new Ruler(this.data.x.log, a, b, this.left, this.x1, 9);
    this.y = new Ruler(this.data.y.log, c, d, this.y1, this.top, 6);
    this.drawAxes();
    this.drawMarks();
    this.curves.replaceChildren(...this.data.series.map((s, n) => this.curve(s, n)));
  }
  drawAxes() {
    const parts = [];
    for (const v of this.y.ticks) {
      const y = this.y.place(v);
      parts.push(svgNode("path", { class: "grid", d: `M${this.left} ${y}H${this.x1}` }), this.text("tick end", this.left - 8, y + 4.5, label(v, this.y)));
    }
    for (const v of this.x.ticks) {
      const x = this.x.place(v);
      parts.push(svgNode("path", { class: "axis", d: `M${x} ${this.y1}v5` }), this.text("tick middle", x, this.y1 + 19, label(v, this.x)));
    }
    parts.push(svgNode("path", { class: "axis", d: `M${this.left} ${this.top}V${this.y1}H${this.x1}` }));
    this.axes.replaceChildren(...parts);
  }
  drawMarks() {
    const parts = [];
    let last = -Infinity;
    for (const [at, word] of this.data.marks) {
      const x = this.x.place(at);
      if (x === null || x < this.left - 0.5 || x > this.x1 + 0.5) continue;
      parts.push(svgNode("path", { class: "event", d: `M${x} ${this.top}V${this.y1}` }));
      if (x <= last + 4) continue;
      parts.push(this.text("word", x + 3, this.top + 11, word));
      last = x + 6 * word.length;
    }
    this.marks.replaceChildren(...parts);
  }
  text(kind, x, y, words) {
    const node = svgNode("text", { class: kind, x, y });
    node.textContent = words;
    return node;
  }
  curve(s, n) {
    const group = svgNode("g", {});
    if (this.hidden.has(n)) return group;
    const colour = `stroke:var(--s${s.colour % COLOURS})`;
    if (s.band && s.band.length) {
      const at = ([x, l, u], v) => `${this.x.place(x).toFixed(1)} ${(this.y.place(v) ?? this.y1).toFixed(1)}`;
      const way = "M" + s.band.map((b) => at(b, b[2])).join("L") + "L" + s.band.slice().reverse().map((b) => at(b, b[1])).join("L") + "Z";
      group.append(svgNode("path", { d: way, style: `fill:var(--s${s.colour % COLOURS})`, "fill-opacity": 0.18 }));
    }
    const dash = s.style === "wanted" ? "5 4" : s.style === "line" || s.style === "step" ? DASHES[Math.floor(s.colour / COLOURS) % 4] : "";
    group.append(svgNode("path", {
      d: this.way(s), style: colour, fill: "none", "stroke-linejoin": "round", "stroke-dasharray": dash,
      "stroke-width": { points: 6, bars: 4, wanted: 1.6 }[s.style] || 1.8, "stroke-opacity": s.style === "wanted" ? 0.75 : 1,
      "stroke-linecap": s.style === "points" ? "round" : "butt",
    }));
    return group;
  }
  way(s) {
    let way = "", down = false;
    const steps = s.style === "step" || s.style === "wanted";
    s.x.forEach((t, i) => {
      const x = this.x.place(t), y = this.y.place(s.y[i]);
      if (x === null) return;
      if (s.style === "points") { if (y !== null) way += `M${x.toFixed(1)} ${y.toFixed(1)}h0`; return; }
      if (s.style === "bars") { if (y !== null) way += `M${x.toFixed(1)} ${this.y1}V${y.toFixed(1)}`; return; }
      if (y === null) { if (down && steps) way += `H${x.toFixed(1)}`; down = false; return; }
      if (!down) way += `M${x.toFixed(1)} ${y.toFixed(1)}`;
      else way += steps ? `H${x.toFixed(1)}V${y.toFixed(1)}` : `L${x.toFixed(1)} ${y.toFixed(1)}`;
      down = true;
    });
    return way;
  }
  /* The value of a curve at a place: the held one of steps, the nearest one otherwise. */
  valueAt(s, t) {
    let low = 0, high = s.x.length;
    while (low < high) { const mid = (low + high) >> 1; if (s.x[mid] <= t) low = mid + 1; else high = mid; }
    const before = low - 1;
    if (s.style === "step" || s.style === "wanted") return before < 0 ? null : [t, s.y[before]];
    const near = before < 0 ? 0 : low < s.x.length && s.x[low] - t < t - s.x[before] ? low : before;
    if (near >= s.x.length) return null;
    const room = (this.x.high - this.x.low) / 25;
    return Math.abs(s.x[near] - t) > room && !this.x.log ? null : [s.x[near], s.y[near]];
  }
  show(px) {
    const x = Math.min(this.x1, Math.max(this.left, px)), t = this.x.value(x);
    this.at = x;
    const parts = [svgNode("path", { class: "cursor", d: `M${x} ${this.top}V${this.y1}` })], rows = [];
    this.data.series.forEach((s, n) => {
      if (this.hidden.has(n) || !s.name) return;
      const found = this.valueAt(s, t);
      if (!found || found[1] === null) return;
      const y = this.y.place(found[1]), colour = `var(--s${s.colour % COLOURS})`;
      if (y !== null && s.style !== "wanted") parts.push(svgNode("circle", { class: "dot", cx: this.x.place(found[0]), cy: y, r: 4, style: `fill:${colour}` }));
      rows.push([found[1], `<tr><td><i class="swatch" style="background:${colour}"></i>${escaped(s.name)}<td>${number(found[1])}<td>${escaped(s.unit)}</tr>`]);
    });
    this.overlay.replaceChildren(...parts);
    const many = rows.length > 14;
    if (many) rows.sort((p, q) => q[0] - p[0]);
    const listed = rows.slice(0, 14).map((r) => r[1]).join("") + (many ? `<tr><td>and ${rows.length - 14} below</tr>` : "");
    const word = this.data.marks.filter(([at]) => Math.abs(this.x.place(at) - x) < 4).map((m) => escaped(m[1])).join(", ");
    this.tip.innerHTML = `<b>${escaped(this.data.x.label)}: ${number(Number(t.toPrecision(5)))}</b>${word ? "<br>" + word : ""}<table>${listed}</table>`;
    const box = this.svg.getBoundingClientRect(), scale = box.width / this.width;
    const right = x * scale + 14, fits = right + this.tip.offsetWidth < this.box.clientWidth;
    this.tip.style.left = `${fits ? right : x * scale - this.tip.offsetWidth - 14}px`;
    this.tip.style.top = `${(this.top + 8) * scale}px`;
    this.tip.style.visibility = "visible";
  }
  hide() { this.tip.style.visibility = "hidden"; this.overlay.replaceChildren(); }
  pointer(event) {
    const box = this.svg.getBoundingClientRect();
    return ((event.clientX - box.left) / box.width) * this.width;
  }
  setZoom(range) { this.zoom = range; this.hide(); this.draw(); if (this.hint) this.hint.textContent = range ? "double click: whole" : "drag: zoom"; }
  listen() {
    let from = null;
    this.svg.addEventListener("pointerdown", (event) => { if (event.button === 0 && event.pointerType !== "touch") from = this.pointer(event); });
    this.svg.addEventListener("pointermove", (event) => {
      const x = this.pointer(event);
      if (!this.x) this.draw();
      this.show(x);
      if (from !== null && Math.abs(x - from) > 4) {
        const a = Math.max(this.left, Math.min(from, x)), b = Math.min(this.x1, Math.max(from, x));
        this.overlay.append(svgNode("rect", { class: "brush", x: a, y: this.top, width: Math.max(0, b - a), height: this.y1 - this.top }));
      }
    });
    addEventListener("pointerup", (event) => {
      if (from === null) return;
      const a = Math.max(this.left, Math.min(from, this.pointer(event))), b = Math.min(this.x1, Math.max(from, this.pointer(event)));
      from = null;
      if (b - a > 6 && this.x) this.setZoom([this.x.value(a), this.x.value(b)]);
    });
    this.svg.addEventListener("dblclick", () => this.setZoom(null));
    this.svg.addEventListener("pointerleave", () => this.hide());
    this.svg.addEventListener("blur", () => this.hide());
    this.svg.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -4, ArrowRight: 4, PageUp: -60, PageDown: 60 }[event.key];
      if (event.key === "Escape") { this.setZoom(null); return; }
      if (!by) return;
      event.preventDefault();
      if (!this.x) this.draw();
      this.show((this.at ?? this.left) + by);
    });
    for (const button of this.legend.querySelectorAll("button")) {
      button.addEventListener("click", (event) => this.toggle(Number(button.dataset.place), event.shiftKey));
      button.title = "click: put away or bring back; with shift: this one alone";
    }
    this.hint = document.createElement("li");
    this.hint.className = "hint";
    this.hint.textContent = "drag: zoom";
    this.legend.append(this.hint);
  }
  toggle(place, alone) {
    const all = this.data.series.map((_, n) => n);
    if (alone) {
      const only = this.hidden.size === all.length - 1 && !this.hidden.has(place);
      this.hidden = new Set(only ? [] : all.filter((n) => n !== place));
    } else if (!this.hidden.delete(place)) this.hidden.add(place);
    for (const button of this.legend.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(!this.hidden.has(Number(button.dataset.place))));
    this.draw();
  }
}
for (const figure of document.querySelectorAll(".figure")) new Plot(figure);
